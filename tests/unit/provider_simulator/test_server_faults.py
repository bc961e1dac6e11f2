"""The simulator as a process, over real sockets: every fault as a client sees it, and what the books say."""

from __future__ import annotations

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from kit.simulator import Simulator
from unit.provider_simulator.http import calls, fault, only_row, payload, post, raw_request, settled


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"retry_after_s": 3}, "3"),
        ({"retry_after": "garbage"}, "soon"),
        ({"retry_after": "missing"}, None),
    ],
)
def test_rate_limited(simulator: Simulator, options: dict[str, Any], header: str | None) -> None:
    """E9"""
    fault(simulator, "rate_limited", dimension="tokens", **options)
    status, headers, body = post(simulator)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (429, "rate_limit_exceeded", "tokens")
    assert headers.get("retry-after") == header
    assert calls(simulator) == (0, 0, 0)


def test_rate_limited_with_a_date(simulator: Simulator) -> None:
    fault(simulator, "rate_limited", retry_after="http_date", retry_after_s=90)
    asked_at_s = time.time()
    _, headers, _ = post(simulator)
    assert 85 <= parsedate_to_datetime(headers["retry-after"]).timestamp() - asked_at_s <= 91


@pytest.mark.parametrize(
    ("kind", "options", "status", "code", "accepted"),
    [
        ("quota_exhausted", {}, 429, "insufficient_quota", 0),
        ("unauthorized", {}, 401, "invalid_api_key", 0),
        ("context_length_exceeded", {}, 400, "context_length_exceeded", 0),
        ("server_error", {}, 500, None, 1),
        ("server_error", {"status": 503}, 503, "server_is_overloaded", 1),
    ],
)
def test_error_bodies(
    simulator: Simulator, kind: str, options: dict[str, Any], status: int, code: str | None, accepted: int
) -> None:
    fault(simulator, kind, **options)
    got, headers, body = post(simulator)
    assert (got, json.loads(body)["error"]["code"]) == (status, code)
    assert "retry-after" not in headers
    assert calls(simulator) == (accepted, 0, 0)
    assert only_row(simulator)["fault"] == kind


@pytest.mark.parametrize(("status", "billed"), [(502, False), (200, False), (200, True)])
def test_html_page_is_no_delivery(simulator: Simulator, status: int, billed: bool) -> None:
    fault(simulator, "html", status=status, billed=billed)
    got, headers, body = post(simulator)
    assert got == status
    assert headers["content-type"].startswith("text/html")
    assert body.startswith(b"<!DOCTYPE html>")
    assert calls(simulator) == (1, int(billed), 0)
    assert simulator.ledger()["lost"]["calls"] == int(billed)


def test_billed_server_error(simulator: Simulator) -> None:
    fault(simulator, "server_error", billed=True, retry_after="seconds", retry_after_s=2)
    assert post(simulator)[1]["retry-after"] == "2"
    assert calls(simulator) == (1, 1, 0)


@pytest.mark.parametrize("framing", ["content_length", "chunked"])
def test_cut_body_that_can_be_seen(simulator: Simulator, framing: str) -> None:
    """E6: billed, and the usage is lost."""
    fault(simulator, "cut_json", framing=framing)
    with pytest.raises(http.client.IncompleteRead):
        post(simulator)
    assert calls(simulator) == (1, 1, 0)
    assert only_row(simulator)["status"] == 200


def test_cut_body_that_only_the_json_tells(simulator: Simulator) -> None:
    whole = post(simulator)[2]
    fault(simulator, "cut_json", framing="close", keep=0.25)
    status, headers, body = post(simulator)
    assert status == 200
    assert "content-length" not in headers
    assert len(body) == len(whole) // 4
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert calls(simulator) == (2, 2, 1)


def test_reset_after_billing(simulator: Simulator) -> None:
    """E6"""
    fault(simulator, "reset_after_billing", occurrences=[1])
    with pytest.raises(ConnectionResetError):
        post(simulator, headers={"X-Client-Request-Id": "a-1"})
    assert calls(simulator) == (1, 1, 0)
    assert (only_row(simulator)["status"], only_row(simulator)["attempt_id"]) == (None, "a-1")
    assert post(simulator)[0] == 200  # the second time this body is seen
    assert calls(simulator) == (2, 2, 1)


def test_reset_before_billing(simulator: Simulator) -> None:
    fault(simulator, "reset_before_billing")
    with pytest.raises(ConnectionResetError):
        post(simulator)
    assert calls(simulator) == (1, 0, 0)


def test_slow_and_latency_are_waited_for(simulator: Simulator) -> None:
    simulator.set_scenario(
        {"latency": {"fixed_ms": 30, "jitter_ms": 10}, "faults": [{"kind": "slow", "delay_ms": 100}]}
    )
    assert post(simulator)[0] == 200
    row = only_row(simulator)
    assert row["ended_at_ms"] - row["started_at_ms"] >= 129  # both clocks are cut to milliseconds
    assert (row["fault"], row["delivered"]) == ("slow", True)


def test_client_that_gave_up_is_billed_and_not_delivered(simulator: Simulator) -> None:
    """E6: a timeout on our side does not stop the provider's work."""
    fault(simulator, "slow", delay_ms=300)
    with pytest.raises(TimeoutError):
        post(simulator, timeout_s=0.05)
    assert calls(simulator) == (1, 1, 0)


def test_drip_arrives_in_the_end(simulator: Simulator) -> None:
    whole = json.loads(post(simulator)[2])["choices"]
    fault(simulator, "drip", chunk_bytes=100, every_ms=5)
    assert json.loads(post(simulator)[2])["choices"] == whole
    assert calls(simulator) == (2, 2, 2)


def test_drip_to_a_client_that_leaves(simulator: Simulator) -> None:
    fault(simulator, "drip", chunk_bytes=10, every_ms=50)
    with socket.create_connection(("127.0.0.1", simulator.port)) as client:
        client.sendall(raw_request(payload()))
        assert client.recv(10)
    assert calls(simulator) == (1, 1, 0)


@pytest.mark.parametrize("reads", [True, False])
def test_large_answer_is_delivered_only_if_it_is_read(simulator: Simulator, reads: bool) -> None:
    """E6: bytes that never left the provider's buffer are not delivered."""
    simulator.set_scenario({"answers": [{"content": "x" * 20_000_000}]})
    with socket.create_connection(("127.0.0.1", simulator.port)) as client:
        client.sendall(raw_request(payload()))
        expected = 20_000_000 if reads else 1000  # the head and all but the end of the JSON
        while expected > 0:
            expected -= len(client.recv(min(expected, 2**20)))
        if reads:
            assert client.recv(2**20)  # the end of the JSON
    assert calls(simulator) == (1, 1, int(reads))


@pytest.mark.parametrize("billed", [False, True])
def test_hang(simulator: Simulator, billed: bool) -> None:
    fault(simulator, "hang", billed=billed)
    with pytest.raises(TimeoutError):
        post(simulator, timeout_s=0.1)
    assert calls(simulator) == (1, int(billed), 0)  # and nothing is left in flight


def test_hang_that_ends_closes_without_an_answer(simulator: Simulator) -> None:
    fault(simulator, "hang", for_ms=50)
    with pytest.raises(http.client.RemoteDisconnected):
        post(simulator)
    assert calls(simulator) == (1, 0, 0)


def test_first_and_reset(simulator: Simulator) -> None:
    fault(simulator, "server_error", first=2)
    assert [post(simulator)[0] for _ in range(3)] == [500, 500, 200]
    simulator.reset()
    assert simulator.ledger()["received"]["calls"] == 0
    assert post(simulator)[0] == 500


def test_concurrent_calls_with_faults_add_up(simulator: Simulator) -> None:
    """E6 E12: what clients saw and what the books say agree, call by call."""
    simulator.set_scenario(
        {
            "seed": 5,
            "latency": {"fixed_ms": 5},
            "faults": [
                {"kind": "rate_limited", "rate": 0.1},
                {"kind": "reset_after_billing", "rate": 0.1},
                {"kind": "cut_json", "rate": 0.1},
                {"kind": "server_error", "rate": 0.1},
            ],
        }
    )

    def one(n: int) -> str:
        try:
            status, _, _ = post(simulator, payload(f"document {n}"), headers={"X-Client-Request-Id": str(n)})
        except ConnectionResetError:
            return "reset_after_billing"
        except http.client.IncompleteRead:
            return "cut_json"
        return {200: "none", 429: "rate_limited", 500: "server_error"}[status]

    with ThreadPoolExecutor(16) as pool:
        seen = dict(zip(map(str, range(300)), pool.map(one, range(300)), strict=True))
    settled(simulator)
    rows = simulator.attempts(refused=True)
    assert {row["attempt_id"]: row["fault"] or "none" for row in rows} == seen
    assert {row["attempt_id"] for row in rows if row["delivered"]} == {n for n, what in seen.items() if what == "none"}
    totals = simulator.ledger()
    assert totals["lost"]["calls"] == sum(what in ("reset_after_billing", "cut_json") for what in seen.values())
    assert 1 < totals["max_concurrency"] <= 16
    assert set(seen.values()) == {"none", "rate_limited", "reset_after_billing", "cut_json", "server_error"}
