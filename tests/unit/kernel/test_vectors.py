"""Vectors as text: what is encoded is decoded, and what is no vector is told."""

import math
from array import array
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.vectors import NotAVector, decode_vector, encode_vector


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=50))
def test_what_is_encoded_is_decoded(numbers: list[float]) -> None:
    assert list(decode_vector(encode_vector(numbers))) == numbers


def test_the_text_is_base64_of_little_endian_floats() -> None:
    """As OpenAI sends it: 1.0 is 00 00 80 3f."""
    assert encode_vector([1.0, -2.0]) == b64encode(b"\x00\x00\x80\x3f\x00\x00\x00\xc0").decode()


def test_a_number_beyond_32_bits_is_an_infinity_and_nan_stays() -> None:
    found = decode_vector(encode_vector([1e300, -1e300, math.nan]))
    assert (found[0], found[1]) == (math.inf, -math.inf)
    assert math.isnan(found[2])


@pytest.mark.parametrize(("text", "why"), [("%%%", "base64"), ("AAAA", "3 bytes"), ("äöü", "base64"), ("A", "base64")])
def test_what_is_no_vector(text: str, why: str) -> None:
    with pytest.raises(NotAVector, match=why):
        decode_vector(text)


def test_1536_numbers_are_just_what_a_message_may_hold() -> None:
    assert len(encode_vector(array("f", [0.5] * 1_536))) == 8 << 10
