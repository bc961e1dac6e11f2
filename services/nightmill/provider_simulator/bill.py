"""The provider's books: one row per call that makes a model work, and totals over them.

delivered ⊆ billed ⊆ accepted. *Accepted*: valid, with a good key and within the limits, so the provider took it up.
*Billed*: the model ran; its tokens are charged whatever the client saw of them. *Delivered*: the whole answer was
handed to the socket of a client that was still there; an error page is never a delivery. A client that dies with the
answer in its socket buffer counts as delivered: no server can know better. The lines of batches have books of their
own (`bulk.books`), which are added to these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from nightmill.provider_simulator.prices import Usage

Totals = dict[str, int]


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
    billed_nano_usd: int | None = None  # None: nothing billed, or a model without a price
    tier: str = "default"
    delivered: bool = False
    usage_told: bool = True  # by the answer, should it be delivered
    status: int | None = None  # None: no status line was sent
    code: str | None = None  # of the error body
    fault: str | None = None
    ended_at_ms: int | None = None

    def as_row(self) -> dict[str, JsonValue]:
        """The row of the ledger's JSON lines; keys are stable."""
        usage = self.billed
        row: dict[str, JsonValue] = {
            "attempt_id": self.attempt_id,
            "body_digest": self.body_digest.hex(),
            "occurrence": self.occurrence,
            "model": self.model,
            "accepted": self.accepted,
            "billed": usage is not None,
            "billed_prompt_tokens": usage.prompt_tokens if usage else 0,
            "billed_completion_tokens": usage.completion_tokens if usage else 0,
            "billed_cached_tokens": usage.cached_tokens if usage else 0,
            "billed_cache_write_tokens": usage.cache_write_tokens if usage else 0,
            "billed_cache_write_1h_tokens": usage.cache_write_1h_tokens if usage else 0,
            "billed_nano_usd": self.billed_nano_usd,
            "tier": self.tier,
            "delivered": self.delivered,
            "usage_delivered": self.delivered and self.usage_told,
            "status": self.status,
            "code": self.code,
            "fault": self.fault,
            "started_at_ms": self.started_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "prompt_tokens": self.prompt_tokens,
            "batch_id": None,
        }
        return row


def call_of_row(row: Mapping[str, JsonValue]) -> Call:
    """The call that `as_row` wrote."""

    def number(name: str) -> int:
        value = row.get(name)
        return value if isinstance(value, int) else 0

    def text(name: str) -> str | None:
        value = row.get(name)
        return value if isinstance(value, str) else None

    usage = Usage(
        prompt_tokens=number("billed_prompt_tokens"),
        completion_tokens=number("billed_completion_tokens"),
        cached_tokens=number("billed_cached_tokens"),
        cache_write_tokens=number("billed_cache_write_tokens"),
        cache_write_1h_tokens=number("billed_cache_write_1h_tokens"),
    )
    return Call(
        attempt_id=text("attempt_id"),
        body_digest=bytes.fromhex(text("body_digest") or ""),
        occurrence=number("occurrence"),
        started_at_ms=number("started_at_ms"),
        model=text("model"),
        prompt_tokens=number("prompt_tokens"),
        accepted=row.get("accepted") is True,
        billed=usage if row.get("billed") is True else None,
        billed_nano_usd=None if row.get("billed_nano_usd") is None else number("billed_nano_usd"),
        tier=text("tier") or "default",
        delivered=row.get("delivered") is True,
        usage_told=row.get("usage_delivered") is row.get("delivered"),
        status=None if row.get("status") is None else number("status"),
        code=text("code"),
        fault=text("fault"),
        ended_at_ms=number("ended_at_ms"),
    )


@dataclass(slots=True, kw_only=True)
class Sums:
    """Calls, tokens and money of one column of the books."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    nano_usd: int = 0
    unpriced: int = 0

    def add(self, prompt_tokens: int, completion_tokens: int, nano_usd: int | None) -> None:
        self.calls += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if nano_usd is None:
            self.unpriced += 1
        else:
            self.nano_usd += nano_usd

    def merge(self, other: Sums) -> None:
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.nano_usd += other.nano_usd
        self.unpriced += other.unpriced

    def tokens(self) -> Totals:
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }


@dataclass(slots=True, kw_only=True)
class Page:
    """The sums of a part of the books: all realtime calls, or one batch."""

    received: int = 0
    accepted: Sums = field(default_factory=Sums)
    billed: Sums = field(default_factory=Sums)
    delivered: Sums = field(default_factory=Sums)
    lost: Sums = field(default_factory=Sums)  # billed and not delivered
    faults: Counter[str] = field(default_factory=Counter)

    def merge(self, other: Page) -> None:
        self.received += other.received
        self.accepted.merge(other.accepted)
        self.billed.merge(other.billed)
        self.delivered.merge(other.delivered)
        self.lost.merge(other.lost)
        self.faults.update(other.faults)


class Ledger:
    """All realtime calls since the last reset."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self._calls: list[Call] = list(calls)
        self._seen: dict[bytes, int] = Counter(call.body_digest for call in self._calls)
        self._in_flight = 0
        self._max_in_flight = 0

    @property
    def in_flight(self) -> int:
        """Calls that arrived and are not closed."""
        return self._in_flight

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

    def totals(self, batches: Page | None = None) -> dict[str, object]:
        """Sums over all calls, and over the lines of batches if their page is given."""
        page = self._page()
        page.merge(batches or Page())
        refused = [call for call in self._calls if call.ended_at_ms is not None and not call.accepted]
        totals: dict[str, object] = {
            "received": {"calls": page.received},
            "accepted": {"calls": page.accepted.calls, "prompt_tokens": page.accepted.prompt_tokens},
            "billed": page.billed.tokens(),
            "delivered": page.delivered.tokens(),
            "lost": page.lost.tokens(),
            "refused": {"calls": len(refused), "by_code": _count(call.code for call in refused)},
            "by_fault": dict(sorted(page.faults.items())),
            "distinct_bodies": len(self._seen),
            "in_flight": self._in_flight,
            "max_concurrency": self._max_in_flight,
            "money": {
                "billed_nano_usd": page.billed.nano_usd,
                "delivered_nano_usd": page.delivered.nano_usd,
                "lost_nano_usd": page.lost.nano_usd,
                "unpriced_calls": page.billed.unpriced,
            },
        }
        return totals

    def _page(self) -> Page:
        page = Page(received=len(self._calls))
        for call in self._calls:
            if call.fault is not None:
                page.faults[call.fault] += 1
            if call.accepted:
                page.accepted.add(call.prompt_tokens, 0, None)
            if call.billed is not None:
                column = page.delivered if call.delivered else page.lost
                for sums in (page.billed, column):
                    sums.add(call.billed.prompt_tokens, call.billed.completion_tokens, call.billed_nano_usd)
        return page


def _count(names: Iterable[str | None]) -> Totals:
    return dict(sorted(Counter(name or "none" for name in names).items()))
