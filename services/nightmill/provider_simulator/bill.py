"""The provider's books: one row per chat call that arrived, and totals over them.

delivered ⊆ billed ⊆ accepted. *Accepted*: valid, with a good key and within the limits, so the provider took it up.
*Billed*: the model ran; its tokens are charged whatever the client saw of them. *Delivered*: the whole answer was
handed to the socket of a client that was still there; an error page is never a delivery. A client that dies with the
answer in its socket buffer counts as delivered: no server can know better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Totals = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one answer."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(slots=True, kw_only=True)
class Call:
    """One arrival, written as it happens."""

    attempt_id: str | None  # header X-Client-Request-Id
    body_digest: bytes
    occurrence: int
    started_at_ms: int
    model: str | None = None
    prompt_tokens: int = 0
    accepted: bool = False
    billed: Usage | None = None
    delivered: bool = False
    status: int | None = None  # None: no status line was sent
    code: str | None = None  # of the error body
    fault: str | None = None
    ended_at_ms: int | None = None

    def as_row(self) -> dict[str, object]:
        """The row of the ledger's JSON lines; keys are stable."""
        usage = self.billed
        return {
            "attempt_id": self.attempt_id,
            "body_digest": self.body_digest.hex(),
            "occurrence": self.occurrence,
            "model": self.model,
            "accepted": self.accepted,
            "billed": usage is not None,
            "billed_prompt_tokens": usage.prompt_tokens if usage else 0,
            "billed_completion_tokens": usage.completion_tokens if usage else 0,
            "delivered": self.delivered,
            "status": self.status,
            "code": self.code,
            "fault": self.fault,
            "started_at_ms": self.started_at_ms,
            "ended_at_ms": self.ended_at_ms,
        }


class Ledger:
    """All calls since the last reset."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._seen: dict[bytes, int] = {}
        self._in_flight = 0
        self._max_in_flight = 0

    def open(self, *, attempt_id: str | None, body_digest: bytes, now_ms: int) -> Call:
        """A call has arrived; it is in flight until `close`."""
        occurrence = self._seen.get(body_digest, 0) + 1
        self._seen[body_digest] = occurrence
        call = Call(attempt_id=attempt_id, body_digest=body_digest, occurrence=occurrence, started_at_ms=now_ms)
        self._calls.append(call)
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        return call

    def close(self, call: Call, *, now_ms: int) -> None:
        """The last byte was written, or the connection is gone."""
        call.ended_at_ms = now_ms
        self._in_flight -= 1

    def calls(self, *, refused: bool = False) -> Iterator[Call]:
        """The accepted calls in order of arrival; with `refused`, all of them."""
        return (call for call in self._calls if refused or call.accepted)

    def totals(self) -> dict[str, object]:
        """Sums over all calls; `lost` = billed and not delivered."""
        billed = [call for call in self._calls if call.billed is not None]
        refused = [call for call in self._calls if call.ended_at_ms is not None and not call.accepted]
        accepted = [call for call in self._calls if call.accepted]
        return {
            "received": {"calls": len(self._calls)},
            "accepted": {"calls": len(accepted), "prompt_tokens": sum(call.prompt_tokens for call in accepted)},
            "billed": _sum(billed),
            "delivered": _sum(call for call in billed if call.delivered),
            "lost": _sum(call for call in billed if not call.delivered),
            "refused": {"calls": len(refused), "by_code": _count(call.code for call in refused)},
            "by_fault": _count(call.fault for call in self._calls if call.fault is not None),
            "distinct_bodies": len(self._seen),
            "in_flight": self._in_flight,
            "max_concurrency": self._max_in_flight,
        }


def _sum(calls: Iterable[Call]) -> Totals:
    count = prompt_tokens = completion_tokens = 0
    for call in calls:
        if call.billed is not None:
            count += 1
            prompt_tokens += call.billed.prompt_tokens
            completion_tokens += call.billed.completion_tokens
    return {"calls": count, "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}


def _count(names: Iterable[str | None]) -> Totals:
    return dict(sorted(Counter(name or "none" for name in names).items()))
