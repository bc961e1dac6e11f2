"""The form reader: the same bytes, however the body is cut."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nightmill.provider_simulator.multipart import BadForm, Form, FormReader, boundary_of

MARK = b"--x7"


def body(content: bytes, purpose: str = "batch") -> bytes:
    return (
        MARK
        + b'\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n'
        + purpose.encode()
        + b"\r\n"
        + MARK
        + b'\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\nContent-Type: x\r\n\r\n'
        + content
        + b"\r\n"
        + MARK
        + b"--\r\nepilogue"
    )


@given(
    content=st.lists(st.sampled_from([b"\r\n", b"--", b"\r\n--x", b"x7", b"--x7", b"\n", b"abc"]), max_size=30).map(
        b"".join
    ),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=60),
)
def test_any_cut_gives_the_same(content: bytes, cuts: list[int]) -> None:
    assume(b"\r\n--x7" not in b"\r\n" + content + b"\r\n")  # no client chooses a boundary that is in the file
    form, data, out = Form(), body(content), b""
    reader = FormReader(b"x7", form)
    place = at = 0
    while at < len(data):
        size = cuts[place % len(cuts)]
        out += reader.feed(data[at : at + size])
        at, place = at + size, place + 1
    assert reader.done
    assert out == content
    assert (form.fields, form.filename, form.file_field) == ({"purpose": "batch"}, "a.jsonl", "file")


def test_bodies_that_are_no_form() -> None:
    with pytest.raises(BadForm, match="no name"):
        FormReader(b"x7", Form()).feed(b"--x7\r\nContent-Disposition: form-data\r\n\r\nx\r\n--x7--")
    with pytest.raises(BadForm, match="field is too long"):
        FormReader(b"x7", Form()).feed(body(b"", "p" * 70_000))
    with pytest.raises(BadForm, match="head of a part is too long"):
        FormReader(b"x7", Form()).feed(b"--x7\r\n" + b"h" * 20_000)
    reader = FormReader(b"x7", Form())
    reader.feed(body(b"abc")[:-20])
    assert not reader.done


@pytest.mark.parametrize("header", [None, "application/json", "multipart/form-data"])
def test_headers_without_a_boundary(header: str | None) -> None:
    with pytest.raises(BadForm):
        boundary_of(header)


def test_boundary() -> None:
    assert boundary_of('multipart/form-data; boundary="a b"') == b"a b"
    assert boundary_of("multipart/form-data; boundary=ab; x=y") == b"ab"
