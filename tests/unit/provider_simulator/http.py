"""HTTP exchanges with the simulator, what befalls them, and what its books say of them."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from kit.simulator import Simulator

Headers = dict[str, str]


def exchange(
    simulator: Simulator,
    method: str,
    path: str,
    data: Any = None,
    *,
    headers: Headers | None = None,
    timeout_s: float = 20,
) -> tuple[int, Headers, bytes]:
    """Status, headers in lower case, body. `data` is sent as JSON unless it is bytes."""
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    connection = http.client.HTTPConnection("127.0.0.1", simulator.port, timeout=timeout_s)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def chat(text: str = "hi", **changes: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **changes}


def payload(text: str = "Granted under the MIT licence.", **changes: Any) -> bytes:
    return json.dumps(chat(text, **changes)).encode()


def post(
    simulator: Simulator, body: bytes | None = None, *, headers: Headers | None = None, timeout_s: float = 10
) -> tuple[int, Headers, bytes]:
    """A chat call."""
    path = "/v1/chat/completions"
    return exchange(simulator, "POST", path, body or payload(), headers=headers, timeout_s=timeout_s)


def raw_request(body: bytes) -> bytes:
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def get(simulator: Simulator, path: str, headers: Headers | None = None) -> tuple[int, Any]:
    status, _, body = exchange(simulator, "GET", path, headers=headers)
    return status, json.loads(body)


def fault(simulator: Simulator, kind: str, **options: Any) -> None:
    simulator.set_scenario({"faults": [{"kind": kind, **options}]})


def settled(simulator: Simulator) -> dict[str, Any]:
    """The totals once nothing is in flight: the last bytes reach a client before the books are closed."""
    deadline = time.monotonic() + 10
    while (totals := simulator.ledger())["in_flight"] and time.monotonic() < deadline:
        time.sleep(0.01)
    return totals


def calls(simulator: Simulator) -> tuple[int, int, int]:
    """Accepted, billed, delivered."""
    totals = settled(simulator)
    return totals["accepted"]["calls"], totals["billed"]["calls"], totals["delivered"]["calls"]


def only_row(simulator: Simulator) -> dict[str, Any]:
    settled(simulator)
    [row] = simulator.attempts(refused=True)
    return row
