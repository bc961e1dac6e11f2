"""A scripted provider: takes calls, bills some of them, answers in its own time; it keeps the bill by attempt.

Every event has its moment on the world's clock. Whether the caller still lives when the answer is ready is not the
provider's business: what it carried out is on the bill.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.wire.messages import ShardAttempt
from nightmill.provider_gateway.caller import Call
from nightmill.provider_gateway.exchange import Response
from simulation.mix import Mix

LABELS = ("a", "b", "c")
MARKER = "XQZMARKER"  #: a word in every document and prompt; no log line may hold it
_CLOSED_MS = 4_500  #: a provider notices a closed connection within this time


@dataclass(slots=True)
class Exchange:
    """One request on its way through the provider."""

    call: Call
    sent_at_ms: int
    kind: str
    accept_at_ms: int
    ready_at_ms: int  #: the answer stands in the caller's socket; the provider's slot is free
    response: Response | None = None
    error: BaseException | None = None
    accepted: bool = False
    closed: bool = False  #: the caller is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """A line of the bill."""

    item_key: str
    batch_id: str
    input_tokens: int
    output_tokens: int
    delivered: str | None  #: the answer's text, when one was made
    lane: Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """What became of an attempt at the provider."""

    text: str
    finish: str
    status: int
    headers: dict[str, str]
    usage: tuple[int, int]  #: tokens read and written


@dataclass(slots=True)
class Provider:
    """All calls of a world, over every pool."""

    random: Random
    mix: Mix
    input_factor: int  #: billed input tokens per estimated one
    bill: dict[str, Billed] = field(default_factory=dict)  #: by attempt key
    texts: dict[tuple[str, int], str] = field(default_factory=dict)  #: delivered answers by item and ordinal
    running: list[Exchange] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)  #: requests that arrived, by attempt key
    arrivals: list[tuple[Call, int, int]] = field(default_factory=list)  #: call, time, and requests in flight with it
    landed: dict[str, str] = field(default_factory=dict)  #: attempts whose answer is in an outbox, and in whose
    now_ms: int = 0

    def send(self, call: Call) -> Exchange:
        """A request leaves the caller."""
        now_ms = self.now_ms
        kind = self.draw_kind()
        accept = now_ms + (0 if kind == "not_connected" else self.random.randint(0, 150))
        work_ms = self.random.choice((5, 60, 400, 1_500))
        deadline_ms = now_ms + int(call.deadline_s * 1000)
        ready = deadline_ms if kind == "hang" else min(deadline_ms, accept + self.random.randint(1, work_ms))
        exchange = Exchange(call, now_ms, kind, accept, ready)
        if kind == "not_connected":
            exchange.error = ConnectionRefusedError()
        else:
            key = call.order.key
            self.seen[key] = self.seen.get(key, 0) + 1
            self.running.append(exchange)
            pool = call.order.shard.pool
            self.arrivals.append((call, now_ms, self._in_flight(pool)))
        return exchange

    def work(self, now_ms: int) -> None:
        """Let everything happen that is due by now."""
        self.now_ms = now_ms
        for exchange in self.running:
            if not exchange.accepted and exchange.accept_at_ms <= now_ms:
                exchange.accepted = True
                self._accept(exchange)
        self.running = [exchange for exchange in self.running if exchange.ready_at_ms > now_ms]

    def close(self, exchange: Exchange) -> None:
        """The caller's end of the connection is gone."""
        now_ms = self.now_ms
        exchange.closed = True
        exchange.ready_at_ms = min(exchange.ready_at_ms, now_ms + self.random.randint(0, _CLOSED_MS))
        if not exchange.accepted and self.random.random() < 0.5:
            exchange.accept_at_ms = exchange.ready_at_ms + 1  # the bytes never left

    def _in_flight(self, pool: str) -> int:
        running = (each for each in self.running if each.ready_at_ms > self.now_ms)
        return sum(1 for exchange in running if exchange.call.order.shard.pool == pool)

    # -- what the provider does

    def draw_kind(self) -> str:
        """How the next request ends."""
        at = self.random.random()
        for kind in _KINDS:
            share = getattr(self.mix, kind)
            if at < share:
                return kind
            at -= share
        return "right"

    def _accept(self, exchange: Exchange) -> None:
        order = exchange.call.order
        done = self.perform(exchange.kind, order.key, order.attempt)
        if exchange.kind == "hang":
            exchange.error = TimeoutError()
        elif exchange.kind == "broken":
            exchange.error = aiohttp.ServerDisconnectedError()
        else:
            exchange.response = _response(exchange.kind, done, exchange.call)

    def perform(self, kind: str, key: str, attempt: ShardAttempt, lane: Lane = Lane.REALTIME) -> Performed:
        """Carry an attempt out, or refuse it, and bill what was done."""
        usage = (attempt.input_tokens * self.input_factor, self.random.randint(1, attempt.max_output_tokens))
        text, finish, status, headers = _ANSWERS[kind](self.random, attempt.source_id)
        if kind in _BILLED or (status == 500 and self.random.random() < 0.5):
            self.bill[key] = Billed(
                item_key=attempt.item_key,
                batch_id=attempt.batch_id,
                input_tokens=usage[0],
                output_tokens=usage[1],
                delivered=text,
                lane=lane,
            )
            self.texts[(attempt.item_key, attempt.ordinal)] = text
        return Performed(text=text, finish=finish, status=status, headers=headers, usage=usage)


_KINDS = (
    "wrong",
    "fenced",
    "cut",
    "refusal",
    "rejected",
    "rate_limit",
    "server_error",
    "broken",
    "hang",
    "not_connected",
    "account",
    "spoilt_body",
)
_BILLED = frozenset({"right", "wrong", "fenced", "cut", "refusal", "rejected", "broken", "hang", "spoilt_body"})

_Answer = tuple[str, str, int, dict[str, str]]


def _right(random: Random, source_id: str, label: str | None = None) -> str:
    return json.dumps({"label": label or random.choice(LABELS), "about": f"{MARKER} {source_id}"})


def _answers() -> dict[str, Callable[[Random, str], _Answer]]:
    def ok(text: Callable[[Random, str], str], finish: str = "stop") -> Callable[[Random, str], _Answer]:
        return lambda random, source: (text(random, source), finish, 200, {})

    def no(status: int, headers: Callable[[Random], dict[str, str]]) -> Callable[[Random, str], _Answer]:
        return lambda random, source: ("", "", status, headers(random))

    def wait(random: Random) -> dict[str, str]:
        return random.choice(({"retry-after-ms": "700"}, {"retry-after": "2"}, {}))

    def none(random: Random) -> dict[str, str]:
        return {}

    return {
        "right": ok(_right),
        "wrong": ok(lambda r, s: r.choice(('{"label": "zzz"}', "no JSON at all", '{"about": 1}'))),
        "fenced": ok(lambda r, s: f"```json\n{_right(r, s)}\n```"),
        "cut": ok(lambda r, s: _right(r, s)[:12], "length"),
        "refusal": ok(lambda r, s: "I can not help with that", "content_filter"),
        "rejected": ok(lambda r, s: _right(r, s, r.choice(("rejected", "doubtful")))),
        "broken": ok(_right),
        "hang": ok(_right),
        "spoilt_body": ok(_right),
        "rate_limit": no(429, wait),
        "server_error": lambda random, source: ("", "", random.choice((500, 503)), {}),
        "account": no(402, none),
        "not_connected": no(0, none),
    }


_ANSWERS = _answers()


def _response(kind: str, done: Performed, call: Call) -> Response:
    if done.status != 200:
        code = {402: "billing_error", 429: "rate_limit_exceeded" if done.headers else ""}.get(done.status, "")
        error = {"error": {"message": "no", "type": "", "code": code}}
        return Response(status=done.status, headers=done.headers, body=json.dumps(error).encode())
    raw = json.dumps(completion_of(done, call.order.model)).encode()
    return Response(status=200, headers={}, body=raw[: len(raw) // 2] if kind == "spoilt_body" else raw)


def completion_of(done: Performed, model: str) -> dict[str, Any]:
    """A chat completion."""
    return {
        "model": model,
        "choices": [{"message": {"role": "assistant", "content": done.text}, "finish_reason": done.finish}],
        "usage": {"prompt_tokens": done.usage[0], "completion_tokens": done.usage[1]},
    }
