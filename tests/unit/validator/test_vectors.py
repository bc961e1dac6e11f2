"""The gate of embeddings: one verdict for every text."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.kernel.domain.vectors import decode_vector, encode_vector
from nightmill.validator.vectors import VectorGate

GATE = VectorGate(3)


def no_row() -> Mapping[str, Any]:
    raise AssertionError("a vector is judged without its row")


@pytest.mark.parametrize(
    ("text", "rule", "says"),
    [
        ("", "vector_dimensions", "0 numbers instead of 3"),
        ("no vector", "vector_unreadable", "base64"),
        ("AAAA", "vector_unreadable", "3 bytes"),
        (encode_vector([1, 2]), "vector_dimensions", "2 numbers instead of 3; see embedding.dimensions"),
        (encode_vector([1, 2, 3, 4]), "vector_dimensions", "4 numbers"),
        (encode_vector([1, math.nan, 3]), "vector_not_finite", "number 1 is nan"),
        (encode_vector([1, 2, -math.inf]), "vector_not_finite", "number 2 is -inf"),
        (encode_vector([1e300, 2, 3]), "vector_not_finite", "number 0 is inf"),
        (encode_vector([0, -0.0, 0]), "vector_zero", "no direction"),
    ],
)
def test_what_is_refused_and_why(text: str, rule: str, says: str) -> None:
    """Q1, row 39."""
    verdict, kept = GATE.judge(text, None, no_row)
    assert (verdict.kind, verdict.rule, kept) == (VerdictKind.REPAIRABLE, rule, None)
    assert says in (verdict.value or "")


def test_a_vector_is_kept_as_it_came() -> None:
    text = encode_vector([0, 0.25, -1])
    verdict, kept = GATE.judge(text, "stop", no_row)
    assert (verdict.kind, kept, GATE.stored(kept)) == (VerdictKind.ACCEPTED, text, text.encode())


@given(st.text() | st.lists(st.floats(width=32), max_size=5).map(encode_vector))
def test_every_text_has_a_verdict(text: str) -> None:
    """Q1: what is accepted has as many finite numbers as were declared."""
    verdict, kept = GATE.judge(text, None, no_row)
    assert (verdict.kind is VerdictKind.ACCEPTED) == (kept is not None)
    if kept is not None:
        numbers = decode_vector(kept)
        assert len(numbers) == 3
        assert all(map(math.isfinite, numbers))
