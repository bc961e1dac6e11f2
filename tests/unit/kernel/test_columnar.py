"""Reading many records at once gives what reading each of them gives, and refuses what that refuses."""

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.bytes_of import CLEAN_TEXTS, damaged
from kit.ledger_columns import values_of
from nightmill.kernel.wire.columnar import Columns, Numbers, Symbols, Texts, columns_of

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Crate",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "weight", "type": ["null", "long"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["fig", "sloe"]}},
        {
            "name": "label",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Label",
                    "fields": [
                        {"name": "text", "type": ["null", "string"]},
                        {"name": "kind", "type": "Kind"},
                        {"name": "size", "type": "int"},
                    ],
                },
            ],
        },
        {"name": "ripe", "type": "boolean"},
    ],
}
PARSED = fastavro.parse_schema(SCHEMA)
HEAD = b"head"
read = columns_of(SCHEMA)

KINDS = st.sampled_from(["fig", "sloe"])
LABELS = st.fixed_dictionaries(
    {"text": st.none() | CLEAN_TEXTS, "kind": KINDS, "size": st.integers(-(2**31), 2**31 - 1)}
)
CRATES = st.fixed_dictionaries(
    {
        "name": CLEAN_TEXTS | st.just("ü" * 200),
        "weight": st.none() | st.integers(-(2**63), 2**63 - 1),
        "kind": KINDS,
        "label": st.none() | LABELS,
        "ripe": st.booleans(),
    }
)


def written(crate: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, crate)
    return HEAD + out.getvalue()


def flat(crate: dict[str, Any]) -> dict[str, Any]:
    """A crate as columns tell it: what is null has no text and no symbol."""
    label = crate["label"] or {"text": "", "kind": "", "size": None}
    plain = {name: crate[name] for name in ("name", "weight", "kind", "ripe")}
    inner = {f"label.{name}": label[name] for name in ("kind", "size")}
    return {**plain, **inner, "label": crate["label"] is not None, "label.text": label["text"] or ""}


def rows(columns: Columns) -> list[dict[str, Any]]:
    values = {path: values_of(column) for path, column in columns.by_path.items()}
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


@given(st.lists(CRATES, min_size=1, max_size=12))
def test_columns_hold_what_the_records_hold(crates: list[dict[str, Any]]) -> None:
    """E9: fastavro wrote them."""
    assert rows(read([written(crate) for crate in crates], len(HEAD))) == [flat(crate) for crate in crates]


@given(st.lists(CRATES, min_size=1, max_size=8))
def test_some_of_the_records_are_kept(crates: list[dict[str, Any]]) -> None:
    columns = read([written(crate) for crate in crates], len(HEAD))
    ripe = columns.where(columns.of(Numbers, "ripe").values == 1)
    assert rows(ripe) == [flat(crate) for crate in crates if crate["ripe"]]


@given(
    st.lists(CRATES, max_size=3),
    damaged(CRATES.map(written), inserts=[b"\xff" * 9, b"\x80", b"\x02"]),
    st.lists(CRATES, max_size=3),
)
def test_a_damaged_record_is_refused_or_read_as_what_it_is(before: Any, record: bytes, after: Any) -> None:
    """E9: it is never read into its neighbours, and theirs are right."""
    company = [*map(written, before), record, *map(written, after)]
    try:
        found = rows(read(company, len(HEAD)))
    except (ValueError, UnicodeDecodeError):
        return
    alone = rows(read([record], len(HEAD)))
    assert found == [*map(flat, before), *alone, *map(flat, after)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a\x00\x00\x00\x00",  # a name of eight exabytes
        b"\x01\x00\x00\x00\x00",  # a length below zero
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00\x00\x00\x00",  # a number of 77 bits
        b"\x00\x04\x00\x00\x00",  # a third branch of two
        b"\x00\x00\x04\x00\x00",  # a third symbol of two
        b"\x00\x00\x00\x00\x02",  # neither true nor false
        b"\x00\x00\x00\x00\x00\x00",  # a byte too many
    ],
)
def test_bytes_that_lie_are_refused(body: bytes) -> None:
    good = written({"name": "a", "weight": 1, "kind": "fig", "label": None, "ripe": True})
    for company in ([HEAD + body], [good, HEAD + body, good], [HEAD + body, good]):
        with pytest.raises(ValueError, match=r"a record|a length|a number|a symbol"):
            read(company, len(HEAD))


def test_a_column_is_asked_for_by_its_kind() -> None:
    columns = read([written({"name": "a", "weight": 1, "kind": "fig", "label": None, "ripe": True})], len(HEAD))
    assert columns.of(Texts, "name").listed() == ["a"]
    assert columns.of(Symbols, "kind").are("fig").tolist() == [True]
    with pytest.raises(TypeError, match="weight is a column of Numbers, not of Texts"):
        columns.of(Texts, "weight")
