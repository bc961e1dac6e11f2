"""One HTTP exchange with the simulator."""

from __future__ import annotations

import http.client
import json
from typing import Any

from kit.simulator import Simulator


def exchange(
    simulator: Simulator, method: str, path: str, data: Any = None, *, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers in lower case, body. `data` is sent as JSON unless it is bytes."""
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    connection = http.client.HTTPConnection("127.0.0.1", simulator.port, timeout=20)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


def chat(text: str = "hi", **changes: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **changes}
