"""Vectors of embeddings as text: base64 of 32-bit floats, little-endian, as OpenAI sends them when asked for base64.

A third of the same numbers in JSON, and 1,536 of them are just what a message may hold. On the wire, in the store and
in staged results a vector is such a text; only what is published is numbers. Pure.
"""

import binascii
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence

_FLOAT_BYTES = 4


class NotAVector(ValueError):
    """A text that stands for no vector."""


def encode_vector(values: Sequence[float]) -> str:
    """The text of numbers; one beyond 32 bits becomes an infinity, which no check lets pass."""
    floats = array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    return b64encode(floats.tobytes()).decode()


def decode_vector(text: str) -> "array[float]":
    """The numbers of a text. Raises `NotAVector`."""
    try:
        raw = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotAVector("it is no base64") from error
    if len(raw) % _FLOAT_BYTES:
        raise NotAVector(f"{len(raw)} bytes are no whole number of floats")
    floats = array("f")
    floats.frombytes(raw)
    if sys.byteorder == "big":
        floats.byteswap()
    return floats
