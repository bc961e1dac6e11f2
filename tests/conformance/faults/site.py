"""One running simulator, the calls that the effects of its faults are read from, and what its books say of them."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from kit.patience import PATIENCE_S
from kit.simulator import Simulator

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
BOTH = (CHAT, MESSAGES)
RESPONSES, EMBEDDINGS = "/v1/responses", "/v1/embeddings"
FILES, BATCHES, MESSAGE_BATCHES = "/v1/files", "/v1/batches", "/v1/messages/batches"
ENDED = ("completed", "failed", "expired", "cancelled", "ended")
DAY_S = 86_400

Scenario = dict[str, Any]
Headers = dict[str, str]

KEYS = {"Authorization": "Bearer k", "x-api-key": "k", "anthropic-version": "2026-10-21"}


class Got(NamedTuple):
    """One answer; the names of its headers are in lower case."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The error object, which both providers nest in the same way."""
        return self.json()["error"]


class Books(NamedTuple):
    """Calls and lines by what became of them."""

    accepted: int
    billed: int
    delivered: int
    lost: int  # billed and not delivered


def only(scenario: Scenario, part: str = "faults") -> dict[str, Any]:
    """The first rule of a scenario."""
    rule: dict[str, Any] = scenario[part][0]
    return rule


def unknown(form: object) -> None:
    """A form of a row that nobody shows is a failure."""
    pytest.fail(f"no effect is known of {form}")


def wait(come: Callable[[], bool], what: object) -> None:
    """Look until it has come."""
    deadline = time.monotonic() + PATIENCE_S
    while not come():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def asked(path: str, text: str = "Which licence?", **changes: Any) -> dict[str, Any]:
    """A body that the path takes."""
    model = changes.pop("model", "m")
    if path == EMBEDDINGS:
        return {"model": model, "input": [f"{text} {n}" for n in range(3)], **changes}
    if path == RESPONSES:
        return {"model": model, "input": text, **changes}
    return {"model": model, "max_tokens": 200, "messages": [{"role": "user", "content": text}], **changes}


@dataclass(frozen=True, slots=True)
class Site:
    """The simulator, empty and under the scenario of one form of a row."""

    simulator: Simulator
    keys: Headers = field(default_factory=lambda: KEYS)  # sent with every call

    def play(self, scenario: Scenario) -> None:
        """Begin anew under this scenario."""
        self.simulator.set_scenario(scenario)
        self.simulator.reset()

    def call(self, method: str, path: str, body: bytes | None = None, headers: Headers | None = None) -> Got:
        """One exchange, to the end of its body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.simulator.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body=body, headers={**self.keys, **(headers or {})})
            answer = connection.getresponse()
            return Got(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Headers | None = None) -> Got:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, value: Any = None, headers: Headers | None = None) -> Got:
        body = b"" if value is None else json.dumps(value).encode()
        return self.call("POST", path, body, {"Content-Type": "application/json", **(headers or {})})

    def ask(self, path: str = CHAT, text: str = "Which licence?", headers: Headers | None = None, **more: Any) -> Got:
        """One call that makes a model work."""
        return self.post(path, asked(path, text, **more), headers)

    def opened(self, path: str, value: Any) -> socket.socket:
        """A connection on which the whole request was sent, and nothing was read."""
        body = json.dumps(value).encode()
        head = "".join(f"{name}: {text}\r\n" for name, text in self.keys.items())
        said = f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode()
        connection = socket.create_connection(("127.0.0.1", self.simulator.port), timeout=PATIENCE_S)
        connection.sendall(said + body)
        return connection

    def books(self, received: int | None = None) -> Books:
        """The totals once `received` calls have come and none of them is in flight."""

        def settled() -> bool:
            totals = self.simulator.ledger()
            return not totals["in_flight"] and (received is None or totals["received"]["calls"] == received)

        wait(settled, "a call that never ends")
        totals = self.simulator.ledger()
        return Books(*(totals[name]["calls"] for name in Books._fields))

    def row(self) -> dict[str, Any]:
        """What the books say of the only call there was."""
        self.books(received=1)
        [row] = self.simulator.attempts(refused=True)
        return row

    def upload(self, data: bytes, headers: Headers | None = None) -> Got:
        """A file for a batch."""
        purpose = b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        file = b'--B\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
        form = {"Content-Type": "multipart/form-data; boundary=B", **(headers or {})}
        return self.call("POST", FILES, purpose + file + data + b"\r\n--B--\r\n", form)

    def wanted(self, ids: list[str], path: str = BATCHES, **more: Any) -> dict[str, Any]:
        """The body that creates a batch of these lines, their file uploaded where there is one."""
        bodies = {ident: asked(CHAT, f"Which licence? {ident}") for ident in ids}
        if path == MESSAGE_BATCHES:
            return {"requests": [{"custom_id": ident, "params": body} for ident, body in bodies.items()], **more}
        line = {"method": "POST", "url": CHAT}
        lines = [json.dumps({"custom_id": ident, **line, "body": body}) for ident, body in bodies.items()]
        file_id = self.upload("".join(f"{one}\n" for one in lines).encode()).json()["id"]
        return {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **more}

    def create(self, count: int = 10, path: str = BATCHES, **more: Any) -> Any:
        """A batch of `i-0`, `i-1`, ..."""
        made = self.post(path, self.wanted([f"i-{n}" for n in range(count)], path, **more))
        assert made.status == 200, made
        return made.json()

    def again(self, batch: Any) -> Any:
        """The batch as it is now."""
        path = MESSAGE_BATCHES if batch.get("type") == "message_batch" else BATCHES
        return self.get(f"{path}/{batch['id']}").json()

    def until(self, batch: Any, *states: str) -> Any:
        """The batch once it is in one of these states."""
        seen = [batch]

        def come() -> bool:
            seen[0] = self.again(batch)
            return state_of(seen[0]) in states

        wait(come, (batch, states))
        return seen[0]

    def ended(self, batch: Any) -> Any:
        """The batch once it has ended."""
        return self.until(batch, *ENDED)

    def billed(self, lines: int) -> None:
        """Wait until so many lines ran."""
        wait(lambda: bool(self.simulator.ledger()["billed"]["calls"] == lines), f"{lines} lines that are billed")

    def advance(self, seconds: float) -> None:
        """Put the clock of files, batches and webhooks forward."""
        self.simulator.set_clock(advance_s=seconds)

    def content(self, batch: Any, which: str = "output") -> bytes:
        """The bytes of a result file; Anthropic's have one."""
        if batch.get("type") == "message_batch":
            return self.get(f"{MESSAGE_BATCHES}/{batch['id']}/results").body
        ident = batch[f"{which}_file_id"]
        return self.get(f"{FILES}/{ident}/content").body if ident else b""

    def rows(self, batch: Any, which: str = "output") -> list[Any]:
        """The rows of a result file, split on line feeds alone."""
        return [json.loads(row) for row in self.content(batch, which).split(b"\n") if row]


def state_of(batch: Any) -> Any:
    """The state, under the name that the provider has for it."""
    return batch.get("status") or batch.get("processing_status")


def ids_of(rows: list[Any]) -> list[str]:
    """The `custom_id` of each row."""
    return [row["custom_id"] for row in rows]
