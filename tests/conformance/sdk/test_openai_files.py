"""`openai`: files, from upload to deletion."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from conformance.sdk.conftest import STRICT
from conformance.sdk.lines import jsonl, line, upload
from kit.simulator import Simulator

DATA = jsonl(line(f"i-{n}") for n in range(50))


def test_file_from_upload_to_deletion(gpt: openai.OpenAI) -> None:
    made = gpt.files.create(
        file=("a.jsonl", DATA), purpose="batch", expires_after={"anchor": "created_at", "seconds": 7200}
    )
    assert (made.bytes, made.filename, made.purpose, made.status) == (len(DATA), "a.jsonl", "batch", "processed")
    assert made.expires_at == made.created_at + 7200
    assert gpt.files.retrieve(made.id) == made
    assert gpt.files.content(made.id).read() == DATA
    assert gpt.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        gpt.files.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        gpt.files.content(made.id)


def test_large_file_keeps_its_bytes(gpt: openai.OpenAI) -> None:
    data = b"".join(b"--boundary-like \r\n--%d \xe2\x80\xa8 text\r\n" % n for n in range(200_000))
    ident = upload(gpt, data)
    assert gpt.files.content(ident).read() == data


def test_download_goes_on_where_it_broke(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """E6"""
    ident = upload(gpt, DATA)
    simulator.set_scenario({**STRICT, "faults": [{"kind": "cut_json", "on": ["file_content"], "first": 1}]})
    with pytest.raises(openai.APIConnectionError):
        gpt.files.content(ident).read()
    rest = gpt.files.content(ident, extra_headers={"Range": f"bytes={len(DATA) // 2}-"})
    assert rest.response.status_code == 206
    assert rest.response.headers["content-range"] == f"bytes {len(DATA) // 2}-{len(DATA) - 1}/{len(DATA)}"
    assert rest.read() == DATA[len(DATA) // 2 :]
    with pytest.raises(openai.APIStatusError) as beyond:
        gpt.files.content(ident, extra_headers={"Range": f"bytes={len(DATA)}-"})
    assert beyond.value.status_code == 416


def test_pages(gpt: openai.OpenAI) -> None:
    made = [upload(gpt, b"{}\n", f"{n}.jsonl") for n in range(5)]
    seen = [file.id for file in gpt.files.list(limit=2, purpose="batch")]
    assert seen[:5] == made[::-1]
    oldest_first = [file.id for file in gpt.files.list(limit=3, order="asc")]
    assert oldest_first == seen[::-1]
    assert list(gpt.files.list(purpose="evals")) == []
    with pytest.raises(openai.BadRequestError):
        gpt.files.list(limit=0)


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("a.txt", {}, "Must be .jsonl"),
        ("a.jsonl", {"purpose": "homework"}, "Supported values are"),
        ("a.jsonl", {"expires_after": {"anchor": "created_at", "seconds": 10}}, "expires_after"),
        ("a.jsonl", {"extra_body": {"colour": "red"}}, "Unknown parameter: 'colour'"),
    ],
)
def test_uploads_that_are_refused(gpt: openai.OpenAI, name: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(openai.BadRequestError, match=said):
        gpt.files.create(**{"file": (name, b"{}\n"), "purpose": "batch", **more})


@pytest.mark.parametrize("form", ["format", "too_large"])
def test_refused_by_scenario(gpt: openai.OpenAI, simulator: Simulator, form: str) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "upload_refused", "form": form, "first": 1}]})
    with pytest.raises(openai.BadRequestError):
        upload(gpt, DATA)
    assert gpt.files.content(upload(gpt, DATA)).read() == DATA


def test_uploaded_and_processed_later(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "file_pending", "for_ms": 3_600_000}]})
    ident = upload(gpt, DATA)
    assert gpt.files.retrieve(ident).status == "uploaded"
    simulator.set_clock(advance_s=3601)
    assert gpt.files.retrieve(ident).status == "processed"


def test_upload_that_loses_bytes(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "upload_altered", "lose_bytes": 3}]})
    made = gpt.files.create(file=("a.jsonl", DATA), purpose="batch")
    assert made.bytes == len(DATA) - 3
    assert gpt.files.content(made.id).read() == DATA[:-3]


def test_upload_whose_answer_is_lost_leaves_a_file(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "faults": [{"kind": "reset_after_billing", "on": ["file_create"]}]})
    with pytest.raises(openai.APIConnectionError):
        upload(gpt, DATA, "lost.jsonl")
    assert "lost.jsonl" in [file.filename for file in gpt.files.list()]


def test_files_expire(gpt: openai.OpenAI, simulator: Simulator) -> None:
    ident = upload(gpt, DATA)
    simulator.set_clock(advance_s=31 * 86_400)
    with pytest.raises(openai.NotFoundError):
        gpt.files.content(ident)


def test_content_comes_as_a_stream(gpt: openai.OpenAI) -> None:
    """E6: in pieces, without the whole of it in memory."""
    data = b"".join(b'{"n":%d}\n' % n for n in range(50_000))
    ident = upload(gpt, data)
    with gpt.files.with_streaming_response.content(ident) as content:
        pieces = list(content.iter_bytes(65_536))
    assert (b"".join(pieces), len(pieces) > 5) == (data, True)
    with gpt.files.with_streaming_response.content(ident) as content:
        assert sum(1 for _ in content.iter_lines()) == 50_000
