"""Requests that no client of a provider sends: each is refused in its words, none ends as a failure of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kit.simulator import Simulator
from unit.provider_simulator.http import chat, exchange

KEY = {"Authorization": "Bearer k"}


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator({"dialect": "openai"}) as running:
        yield running


def form(filename: str = "a.jsonl", **fields: str) -> bytes:
    parts = {"purpose": "batch", **fields}
    said = "".join(f'--B\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in parts.items())
    head = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'
    return f"{said}{head}{{}}\r\n--B--\r\n".encode()


def upload(simulator: Simulator, body: bytes) -> tuple[int, Any]:
    headers = {**KEY, "Content-Type": "multipart/form-data; boundary=B"}
    status, _, answer = exchange(simulator, "POST", "/v1/files", body, headers=headers)
    return status, json.loads(answer)


@pytest.mark.parametrize("seconds", ["²²²²", "٣٦٠٠", "9" * 5_000, "-1", "3600.0", ""])
def test_an_expiry_that_is_no_number(simulator: Simulator, seconds: str) -> None:
    """E12"""
    expiry = {"expires_after[anchor]": "created_at", "expires_after[seconds]": seconds}
    status, answer = upload(simulator, form(**expiry))
    assert (status, answer["error"]["param"]) == (400, "expires_after.seconds")


@pytest.mark.parametrize("filename", ["a\nb.jsonl", "a\rb.jsonl", "a\0b.jsonl"])
def test_a_file_name_that_no_header_holds(simulator: Simulator, filename: str) -> None:
    """E12: its download could never be answered."""
    assert upload(simulator, form(filename))[0] == 400


@pytest.mark.parametrize(("wanted", "status"), [(f"bytes={'9' * 18}-", 416), (f"bytes={'9' * 5_000}-", 200)])
def test_a_range_beyond_all_files(simulator: Simulator, wanted: str, status: int) -> None:
    """E12: what is no range is passed over."""
    ident = upload(simulator, form())[1]["id"]
    assert exchange(simulator, "GET", f"/v1/files/{ident}/content", headers={**KEY, "Range": wanted})[0] == status


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/batches", "/v1/messages/count_tokens"])
def test_a_version_that_is_no_text(simulator: Simulator, path: str) -> None:
    """E12"""
    status, _, answer = exchange(simulator, "POST", path, chat(), headers={**KEY, "anthropic-version": "\xe9"})
    assert (status, json.loads(answer)["error"]["type"]) == (400, "invalid_request_error")
