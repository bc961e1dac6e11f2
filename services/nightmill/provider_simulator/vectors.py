"""Embeddings: a vector of length 1 for each text, the same one for the same text, as floats or as base64."""

from __future__ import annotations

import hashlib
import math
from array import array
from base64 import b64encode

from nightmill.provider_simulator.rules import VectorForm


def vector(text: str, *, dimensions: int, seed: int) -> array[float]:
    """`dimensions` floats of 32 bits whose squares add up to 1."""
    drawn = array("h")
    drawn.frombytes(hashlib.shake_128(f"{seed}\x00{text}".encode("utf-8", "surrogatepass")).digest(2 * dimensions))
    norm = math.sqrt(sum(value * value for value in drawn)) or 1.0
    return array("f", [value / norm for value in drawn])


def vectors(texts: tuple[str, ...], *, dimensions: int, seed: int, form: VectorForm) -> list[array[float]]:
    """One vector a text, spoiled as `form` says."""
    found = [vector(text, dimensions=dimensions, seed=seed) for text in texts]
    match form:
        case VectorForm.PLAIN:
            pass
        case VectorForm.COUNT:
            found.pop()
        case VectorForm.DIMENSION:
            found[-1] = found[-1][:-1]
        case VectorForm.NAN:
            found[-1][0] = math.nan
        case VectorForm.ZERO:
            found[-1] = array("f", bytes(4 * dimensions))
    return found


def encoded(values: array[float], *, base64: bool) -> bytes:
    """The vector as JSON: a list, or a text of little-endian floats. NaN stays, as a broken server sends it."""
    if base64:
        return b'"' + b64encode(values.tobytes()) + b'"'
    return f"[{','.join(repr(round(value, 8)) if value == value else 'NaN' for value in values)}]".encode()
