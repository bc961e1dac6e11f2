"""What became of a run, by three books that know nothing of each other: the provider's, the ledger and the results.

Pure. The provider's books are the truth of what was paid; an item is paid twice when the provider billed an answer that
the product had no reason to ask for again. Reasons are an answer that failed validation, and an answer that the
provider itself kept back by one of its faults. A gateway that dies or stands still is allowed the calls that it had in
flight at that moment, and no others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: faults by which the provider bills an answer that nobody can receive
_KEPT_BACK = frozenset({"cut_json", "reset_after_billing"})
_RESETS = frozenset({"reset_before_billing", "reset_after_billing"})
#: a call that left just before the gateway's end is heard by a busy provider so much later
_HEARD_MS = 1_000
#: an answer that was sent just before the gateway's end may not have been on its disk yet
_LANDED_MS = 250
_SETTLED_WITHOUT_RESULT = frozenset({"rejected", "dead_letter", "in_review"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as the provider booked it."""

    attempt_id: str
    billed: bool
    input_tokens: int
    output_tokens: int
    fault: str | None
    started_at_ms: int
    ended_at_ms: int | None

    @property
    def item_key(self) -> str:
        return self.attempt_id.rpartition("-")[0]

    def was_open(self, at_ms: int) -> bool:
        """Whether its answer may not have been on the caller's disk at this moment."""
        begun = self.started_at_ms <= at_ms + _HEARD_MS
        return begun and (self.ended_at_ms is None or self.ended_at_ms >= at_ms - _LANDED_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A call as the ledger has it."""

    attempt_id: str
    state: str
    billed: str
    verdict: str
    input_tokens: int | None
    output_tokens: int | None
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item as the ledger has it."""

    source_id: str
    outcome: str
    attempt_id: str
    settled_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was found after a run. `lost_calls_at_ms`: when a gateway died or stood still."""

    documents: frozenset[str]
    state: str
    spent_tokens: int
    published: Sequence[str]
    calls: Sequence[Call]
    attempts: Sequence[Attempt]
    items: Sequence[Item]
    fault_at_ms: int
    lost_calls_at_ms: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the evidence says. Times are in ms from the fault; None: nothing of the kind happened after it."""

    state: str
    lost: int
    published_twice: int
    called_twice: int
    paid_twice: int
    in_flight: int
    unexplained: int
    unknown: int
    unknown_by_provider: int
    mismatches: tuple[str, ...]
    next_settled_ms: int | None
    standstill_ms: int | None

    @property
    def broken(self) -> list[str]:
        """The promises that were not kept, in words."""
        checks = (
            (self.state != "published", f"the job ended {self.state}"),
            (self.lost > 0, f"{self.lost} items lost"),
            (self.published_twice > 0, f"{self.published_twice} items published twice"),
            (self.called_twice > 0, f"{self.called_twice} attempts called more than once"),
            (self.paid_twice > self.in_flight, f"{self.paid_twice} paid twice, {self.in_flight} calls in flight"),
            (self.unexplained > 0, f"{self.unexplained} calls paid again that were not in flight at the fault"),
            (
                bool(self.mismatches),
                f"the books differ in {len(self.mismatches)} places: {'; '.join(self.mismatches[:5])}",
            ),
        )
        return [text for is_broken, text in checks if is_broken]


def judge(evidence: Evidence) -> Findings:
    """Compare the books."""
    surplus = _surplus(evidence)
    losses = evidence.lost_calls_at_ms
    in_flight = {call.attempt_id for call in evidence.calls for at_ms in losses if call.was_open(at_ms)}
    unknown = {attempt.attempt_id for attempt in evidence.attempts if attempt.state == "unknown"}
    resets = {call.attempt_id for call in evidence.calls if call.fault in _RESETS}
    published = Counter(evidence.published)
    next_ms, standstill_ms = _pace(evidence)
    return Findings(
        state=evidence.state,
        lost=_lost(evidence),
        published_twice=sum(1 for count in published.values() if count > 1) + len(set(published) - evidence.documents),
        called_twice=sum(1 for count in Counter(call.attempt_id for call in evidence.calls).values() if count > 1),
        paid_twice=len({call.item_key for call in surplus}),
        in_flight=len(in_flight),
        unexplained=sum(1 for call in surplus if call.attempt_id not in in_flight),
        unknown=len(unknown),
        unknown_by_provider=len(unknown & resets),
        mismatches=_mismatches(evidence),
        next_settled_ms=next_ms,
        standstill_ms=standstill_ms,
    )


def _lost(evidence: Evidence) -> int:
    """Documents that are neither in the results nor settled in another way."""
    otherwise = {item.source_id for item in evidence.items if item.outcome in _SETTLED_WITHOUT_RESULT}
    return len(evidence.documents - set(evidence.published) - otherwise)


def _surplus(evidence: Evidence) -> list[Call]:
    """Billed calls whose answer was neither used, nor refused by validation, nor kept back by the provider."""
    used = {item.attempt_id for item in evidence.items}
    refused = {a.attempt_id for a in evidence.attempts if a.state == "answered" and a.verdict not in ("", "accepted")}
    return [
        call
        for call in evidence.calls
        if call.billed
        and call.attempt_id not in used
        and call.attempt_id not in refused
        and call.fault not in _KEPT_BACK
    ]


def _mismatches(evidence: Evidence) -> tuple[str, ...]:
    """Attempts of which the ledger says something else than the bill; and a job's total that is not their sum."""
    calls = {call.attempt_id: call for call in evidence.calls}
    booked = Counter(attempt.attempt_id for attempt in evidence.attempts)
    found = [
        f"{attempt}, {calls.get(attempt.attempt_id)}" for attempt in evidence.attempts if not _agrees(attempt, calls)
    ]
    found += [f"{attempt_id} stands {count} times in the ledger" for attempt_id, count in booked.items() if count > 1]
    found += [f"{attempt_id} is not in the ledger" for attempt_id in calls if attempt_id not in booked]
    least, most = _charge(evidence)
    if not least <= evidence.spent_tokens <= most:
        found.append(f"the job was charged {evidence.spent_tokens} tokens, its attempts sum up to {least} to {most}")
    return tuple(found)


def _charge(evidence: Evidence) -> tuple[int, int]:
    """The least and the most tokens that a job may be charged: they differ by late answers that were not used.

    Such an answer is charged if it came before its item had given it up.
    """
    used = {item.attempt_id for item in evidence.items}
    least = sum(_tokens(each) for each in evidence.attempts if not each.late or each.attempt_id in used)
    return least, sum(map(_tokens, evidence.attempts))


def _agrees(attempt: Attempt, calls: Mapping[str, Call]) -> bool:
    call = calls.get(attempt.attempt_id)
    known = (attempt.input_tokens, attempt.output_tokens)
    if attempt.state == "answered" or known != (None, None):
        return call is not None and call.billed and known == (call.input_tokens, call.output_tokens)
    # an unknown attempt claims nothing
    return not (attempt.billed == "no" and call is not None and call.billed)


def _tokens(attempt: Attempt) -> int:
    return (attempt.input_tokens or 0) + (attempt.output_tokens or 0)


def _pace(evidence: Evidence) -> tuple[int | None, int | None]:
    """From the fault to the next settled item, and the longest time without one from then on."""
    after = sorted(item.settled_at_ms for item in evidence.items if item.settled_at_ms > evidence.fault_at_ms)
    if not after:
        return None, None
    steps = [evidence.fault_at_ms, *after]
    return after[0] - evidence.fault_at_ms, max(later - earlier for earlier, later in zip(steps, after, strict=False))
