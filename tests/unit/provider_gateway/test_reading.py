"""Strict JSON: the quick reader and the one that says what is wrong agree about every body."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.provider_gateway.adapters.reading import strict_json
from nightmill.provider_gateway.failures import Signal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES, st.booleans())
def test_a_document_is_read_as_it_was_written(value: Any, ascii_only: bool) -> None:
    """E7: numbers of any size, letters as escapes and as they are."""
    assert strict_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    ("body", "meaning"),
    [
        (b'{"a":"\\ud800"}', {"a": "\ud800"}),  # half of a pair
        (b'{"a":1e999}', {"a": float("inf")}),
        (b'{"a":123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a":NaN}', Signal.BODY_MALFORMED),
        (b'{"a":Infinity}', Signal.BODY_MALFORMED),
        (b'{"a":"\xff"}', Signal.BODY_MALFORMED),
        (b'{"a":"\xe2\x80', Signal.BODY_CUT),
        (b'{"a":"b', Signal.BODY_CUT),
        (b'{"a":', Signal.BODY_CUT),
        (b"", Signal.BODY_MALFORMED),
        (b"<html>", Signal.BODY_MALFORMED),
        (b"[" * 100_000, Signal.BODY_MALFORMED),
    ],
)
def test_what_a_body_is(body: bytes, meaning: Any) -> None:
    """E8: cut and malformed are told apart, for a cut answer was billed."""
    assert strict_json(body) == meaning
