"""What became of a batch job whose gateway died, by books that know nothing of each other (pure).

The provider's say which batches were created and what each line cost; the gateway's own rows which batches it knows;
the ledger what it knows of each attempt; the published version what readers see. A line that the provider billed was
paid twice if its answer was neither used nor refused by validation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chaos.bulk.rows import Seen
from chaos.oracle import Item
from kit.bill import Agreement, Booked, Charge, compare
from nightmill.kernel.domain.lifecycle import ProviderBatchState

_SETTLED_WITHOUT_RESULT = frozenset({"rejected", "dead_letter", "in_review"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the provider, the gateway and the ledger have written. `created`: batches, as the provider counts them."""

    created: int
    charges: Sequence[Charge]
    rows: Sequence[Seen]
    booked: Sequence[Booked]
    items: Sequence[Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was found after a run."""

    documents: frozenset[str]
    state: str
    published: Sequence[str]
    books: Books
    killed_at_ms: Sequence[int]
    ready_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One death. `states`: of the submissions at that moment. Recovered: ready again, and no create in doubt."""

    states: Mapping[ProviderBatchState, int]
    adopted: int
    never_were: int
    recovered_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the evidence says."""

    state: str
    lost: int
    published_twice: int
    kills: Sequence[Kill]
    created: int
    named: int
    unnamed: frozenset[str]
    submissions: int
    paid_twice: int
    unknown: int
    agreement: Agreement

    @property
    def broken(self) -> list[str]:
        """The promises that were not kept, in words."""
        differences = self.agreement.differences
        checks = (
            (self.state != "published", f"the job ended {self.state}"),
            (self.lost > 0, f"{self.lost} items lost"),
            (self.published_twice > 0, f"{self.published_twice} items published twice"),
            (self.created != self.named, f"{self.created} batches at the provider, {self.named} in rows"),
            (bool(self.unnamed), f"batches that no row names: {', '.join(sorted(self.unnamed))}"),
            (self.paid_twice > 0, f"{self.paid_twice} items paid twice"),
            (self.unknown > 0, f"{self.unknown} attempts whose outcome nobody knows"),
            (
                not self.agreement.agrees,
                f"bill and ledger differ in {len(differences)} places: {'; '.join(differences[:5])}",
            ),
        )
        return [text for is_broken, text in checks if is_broken]


def judge(evidence: Evidence) -> Findings:
    """Compare the books."""
    books, published = evidence.books, Counter(evidence.published)
    otherwise = {item.source_id for item in books.items if item.outcome in _SETTLED_WITHOUT_RESULT}
    named = {seen.row.provider_batch_id for seen in books.rows} - {None}
    at_provider = {charge.batch_id for charge in books.charges if charge.batch_id is not None}
    return Findings(
        state=evidence.state,
        lost=len(evidence.documents - set(evidence.published) - otherwise),
        published_twice=sum(1 for count in published.values() if count > 1) + len(set(published) - evidence.documents),
        kills=[_kill(books.rows, at_ms, evidence.ready_at_ms) for at_ms in evidence.killed_at_ms],
        created=books.created,
        named=len(named),
        unnamed=frozenset(at_provider - named),
        submissions=len({seen.row.submission_id for seen in books.rows}),
        paid_twice=len(_paid_twice(books)),
        unknown=sum(1 for attempt in books.booked if attempt.state == "unknown"),
        agreement=compare(books.charges, books.booked),
    )


def _paid_twice(books: Books) -> set[str]:
    """Items of which an answer was billed that was not needed; lines are told apart, an attempt may have two."""
    used = {item.attempt_id for item in books.items}
    refused = {a.attempt_id for a in books.booked if a.state == "answered" and a.verdict not in ("", "accepted")}
    billed = Counter(charge.attempt_id for charge in books.charges if charge.billed)
    needed = used | refused
    surplus = [attempt for attempt, count in billed.items() if count > 1 or attempt not in needed]
    return {attempt.rpartition("-")[0] for attempt in surplus}


def _kill(rows: Iterable[Seen], at_ms: int, ready_at_ms: int | None) -> Kill:
    before: dict[str, ProviderBatchState] = {}
    after: dict[str, Seen] = {}
    for seen in rows:
        if seen.at_ms <= at_ms:
            before[seen.row.submission_id] = seen.row.state
        else:
            after.setdefault(seen.row.submission_id, seen)
    armed = [ident for ident, state in before.items() if state is ProviderBatchState.ARMED]
    decided = [after[ident] for ident in armed if ident in after]
    ends = [seen.at_ms for seen in decided] + ([] if ready_at_ms is None else [ready_at_ms])
    return Kill(
        states=Counter(before.values()),
        adopted=sum(seen.row.state is ProviderBatchState.SUBMITTED for seen in decided),
        never_were=sum(seen.row.state is ProviderBatchState.WITHDRAWN for seen in decided),
        recovered_ms=max(ends) - at_ms if ends and len(decided) == len(armed) else None,
    )
