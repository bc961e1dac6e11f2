"""11 to 14: a connection that ends or lingers in every way, odd bodies with 200, work that is billed and never seen."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest

from conformance.faults.site import (
    BOTH,
    CHAT,
    MESSAGES,
    RESPONSES,
    Books,
    Scenario,
    Site,
    asked,
    ids_of,
    only,
    unknown,
    wait,
)
from kit.patience import PATIENCE_S

NOTHING = Books(0, 0, 0, 0)
FAILED = Books(1, 0, 0, 0)
LOST = Books(1, 1, 0, 1)
DELIVERED = Books(1, 1, 1, 0)


def connection(site: Site, scenario: Scenario) -> None:
    """What the client sees of the connection, and what the books say of the call."""
    fault = only(scenario)
    for path in BOTH:
        site.play(scenario)
        match fault["kind"]:
            case "reset_early":
                _reset_before_the_body(site, path)
            case "reset_before_billing":
                with pytest.raises(ConnectionResetError):
                    site.ask(path)
                assert site.books(received=1) == FAILED
            case "disconnect":
                with pytest.raises(http.client.RemoteDisconnected):
                    site.ask(path)
                assert site.books(received=1) == FAILED
            case "hang":
                _hangs(site, path)
                assert site.books(received=1) == FAILED
            case "drip":
                _drips(site, path, scenario)
            case "bad_gzip":
                got = site.ask(path)
                assert (got.status, got.headers["content-encoding"]) == (200, "gzip")
                assert not got.body.startswith(b"\x1f\x8b")
                assert site.books(received=1) == LOST
            case "cut_json":
                _cut(site, path, fault["framing"])
                assert site.books(received=1) == LOST
            case kind:
                unknown(kind)


def _reset_before_the_body(site: Site, path: str) -> None:
    """The head alone is answered with a reset; the books know nothing of such a call."""
    with socket.create_connection(("127.0.0.1", site.simulator.port), timeout=PATIENCE_S) as opened:
        opened.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".encode())
        with pytest.raises(ConnectionResetError):
            opened.recv(1)
    assert site.books(received=0) == NOTHING


def _hangs(site: Site, path: str) -> None:
    """The call has come, its answer has not, and nobody closes."""
    with site.opened(path, asked(path)) as opened:
        wait(lambda: site.simulator.ledger()["in_flight"] == 1, "the call to arrive")
        opened.setblocking(False)
        with pytest.raises(BlockingIOError):
            opened.recv(1)


def _drips(site: Site, path: str, scenario: Scenario) -> None:
    """The right answer, in so many pieces that it takes its time; each comes before a client's patience ends."""
    site.play({})
    whole = site.ask(path)
    site.play(scenario)
    dripped = site.ask(path)
    assert (dripped.status, dripped.body[-100:]) == (200, whole.body[-100:])
    assert site.books(received=1) == DELIVERED
    fault, row = only(scenario), site.row()
    least_ms = (len(whole.body) // fault["chunk_bytes"] - 1) * fault["every_ms"]
    assert row["ended_at_ms"] - row["started_at_ms"] >= least_ms > 100


def _cut(site: Site, path: str, framing: str) -> None:
    """With a length or with chunks the end is seen to be missing; without, only the JSON tells."""
    if framing != "close":
        with pytest.raises(http.client.IncompleteRead) as broken:
            site.ask(path)
        assert (broken.value.expected is None) is (framing == "chunked")
        return
    got = site.ask(path)
    assert (got.status, got.headers["connection"]) == (200, "close")
    assert not {"content-length", "transfer-encoding"} & got.headers.keys()
    with pytest.raises(json.JSONDecodeError):
        got.json()


def odd_body(site: Site, scenario: Scenario) -> None:
    """200, and no answer in it."""
    fault = only(scenario)
    for path in BOTH:
        site.play(scenario)
        got = site.ask(path)
        assert got.status == 200
        match fault.get("form", fault["kind"]):
            case "html":
                assert got.headers["content-type"].startswith("text/html")
                assert got.body.startswith(b"<!DOCTYPE html>")
            case "error":
                assert got.error["type"] == ("server_error" if path == CHAT else "api_error")
            case "empty":
                assert got.body == b""
            case "malformed":
                with pytest.raises(json.JSONDecodeError):
                    got.json()
            case "null":
                assert got.body == b"null"
            case "bom":
                assert got.body.startswith(b"\xef\xbb\xbf{")
            case "event_stream":
                assert got.headers["content-type"].startswith("text/event-stream")
                first, _, rest = got.body.removeprefix(b"data: ").partition(b"\n\n")
                assert "error" in json.loads(first)
                assert rest == b"data: [DONE]\n\n"
            case form:
                unknown(form)
        assert site.books(received=1) == FAILED


def late_success(site: Site, scenario: Scenario) -> None:
    """E6: the work is done and billed, though the client saw a failure; the books have it under the client's own id."""
    fault = only(scenario)
    for path in BOTH:
        site.play(scenario)
        match fault["kind"]:
            case "reset_after_billing":
                with pytest.raises(ConnectionResetError):
                    site.ask(path)
            case "hang":
                _hangs(site, path)
            case "disconnect":
                with pytest.raises(http.client.RemoteDisconnected):
                    site.ask(path)
            case "server_error":
                assert site.ask(path).status == 500
            case kind:
                unknown(kind)
        assert site.books(received=1) == LOST
        row = site.row()
        assert (row["fault"], row["billed"], row["delivered"]) == (fault["kind"], True, False)
        assert row["billed_prompt_tokens"] > 0
        assert row["billed_completion_tokens"] > 0


def beyond_ascii(site: Site, scenario: Scenario) -> None:
    """Ids of answers and of batch lines hold letters beyond ASCII, and arrive as they are."""
    for path in (CHAT, RESPONSES, MESSAGES):
        got: Any = site.ask(path).json()
        assert not got["id"].isascii()
    ids = ["Ünïcode-é", "行-2", "plain"]
    batch = site.ended(site.post("/v1/batches", site.wanted(ids)).json())
    rows = site.rows(batch)
    assert sorted(ids_of(rows)) == sorted(ids)
    assert not any(row["response"]["body"]["id"].isascii() for row in rows)
    assert {row["attempt_id"] for row in site.simulator.attempts() if row["batch_id"]} == set(ids)
