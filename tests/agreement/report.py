"""What a run says, in words: the figures, what is wrong, and each lost call by itself. Pure.

A cost is known where the provider's usage arrived, and then it is the bill's. Where it did not, the cost is unknown and
the attempt keeps its reservation, which covers what was billed. A client can not tell a call that was billed and lost
from one that was never carried out: those are unknown as well, and counted apart.
"""

from collections import Counter
from collections.abc import Iterator

from agreement import befallings
from agreement.run import JobBooks, Outcome
from kit.bill import Unknown


def lost(outcome: Outcome) -> list[Unknown]:
    """Calls on the bill of whose usage nobody was told."""
    return [each for each in outcome.agreement.unknown if each.charged]


def lines(outcome: Outcome) -> list[str]:
    """Figures, an empty line, and then one line for each lost call."""
    books, losses = outcome.agreement, lost(outcome)
    unbilled = Counter(each.fault or "never heard of" for each in books.unknown if not each.charged)
    untold = outcome.untold
    attempts = sum(len(job.attempts) for job in outcome.jobs)
    charged, reserved = sum(each.charged_nano_usd for each in losses), sum(each.reserved_nano_usd for each in losses)
    return [
        f"attempts in the ledger    {attempts:,}",
        f"billed by the providers   {books.billed:,} calls, {books.bill_nano_usd:,} nano-USD",
        f"agreed to the nano-dollar {books.known:,} calls, {books.known_nano_usd:,} nano-USD",
        f"usage lost                {len(losses):,} calls, {charged:,} nano-USD billed, {reserved:,} reserved "
        f"(by the providers' books {len(untold):,} calls, {sum(each.nano_usd for each in untold):,} nano-USD)",
        f"unknown, but not billed   {unbilled.total():,}: {_counted(unbilled)}",
        f"faults                    {_counted(Counter(outcome.faults))}",
        "",
        *(
            f"lost {each.attempt_id} {each.fault or 'usage not told'}, {each.signal or 'answered'}: "
            f"{each.charged_nano_usd} billed, {each.reserved_nano_usd} reserved"
            for each in losses
        ),
    ]


def problems(outcome: Outcome) -> list[str]:
    """What does not agree; nothing if all is well."""
    books, losses = outcome.agreement, lost(outcome)
    found = list(books.differences)
    if not books.agrees and not found:
        found.append(f"known and unknown costs are not the whole bill: {books.known_nano_usd} of {books.bill_nano_usd}")
    untold, listed = {each.attempt_id for each in outcome.untold}, {each.attempt_id for each in losses}
    found += [f"lost by the provider's books, and not unknown: {each}" for each in sorted(untold - listed)]
    found += [f"unknown, and not lost by the provider's books: {each}" for each in sorted(listed - untold)]
    for job in outcome.jobs:
        found += [f"{job.job_id}: {problem}" for problem in _of_job(job)]
    never = befallings.kinds_of_calls() - outcome.faults.keys()
    found += [f"fault {kind} befell nobody" for kind in sorted(never)]
    return found


def _of_job(job: JobBooks) -> Iterator[str]:
    """A job's sums: by the publisher, by the ledger's answer, and by its rows."""
    unknown = [attempt for attempt in job.attempts if attempt.cost_nano_usd is None]
    known = sum(attempt.cost_nano_usd or 0 for attempt in job.attempts)
    if job.costs is not None:
        names = ("calls", "cost_nano_usd", "unknown_calls")
        answered, rows = [sum(row[name] or 0 for row in job.costs) for name in names], len(job.attempts)
        if answered != [rows, known, len(unknown)]:
            yield f"the ledger answers {answered}, its rows sum up to {[rows, known, len(unknown)]}"
    reserved = sum(attempt.reserved_nano_usd for attempt in unknown)
    totals = job.totals
    if (totals.cost_nano_usd, totals.unknown_attempts, totals.reserved_nano_usd) != (known, len(unknown), reserved):
        yield f"the publisher counted {totals}, the ledger has {known}, and {reserved} for {len(unknown)} unknown costs"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
