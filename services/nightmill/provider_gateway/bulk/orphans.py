"""Which batch is a submission that nobody saw the answer of, where a batch carries no key of ours (E6). Pure.

A batch is known again by the custom ids in its results, so it must have ended. Every request has one line there, says
Anthropic's Batch guide (2026-11-29), and nothing but what succeeded is billed. So of a batch that has ended without a
line that can be read two things may be true. If nothing of it succeeded, nothing of it was billed, and whosever it is,
to make the submission again pays nothing twice. Else it may be ours and paid, and nobody can tell: it is looked at
again for days, people are told, and then they decide.
"""

from collections.abc import Iterable, Set
from enum import StrEnum

from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import BatchSeen, ResultLine


class Sign(StrEnum):
    """What a candidate shows."""

    OURS = "ours"
    ANOTHERS = "anothers"
    RUNNING = "running"  #: it shows nothing before it has ended
    FREE = "free"  #: no line, and nothing was billed
    MUTE = "mute"  #: no line, and something may have been billed


def sign_of(seen: BatchSeen, line: ResultLine | None, ids: Set[str]) -> Sign:
    """Of a candidate whose results begin with that line; None: they are empty, or it can not be read."""
    if seen.output_id is None:
        return Sign.RUNNING
    if line is not None:
        return Sign.OURS if line.custom_id in ids else Sign.ANOTHERS
    return Sign.FREE if seen.billed == 0 else Sign.MUTE


def recognised(signs: Iterable[tuple[BatchSeen, Sign]]) -> BatchSeen | e.Absent | e.Undecided:
    """The submission's batch, if one shows that it is; what is still running is waited for first."""
    found = list(signs)
    for seen, sign in found:
        if sign is Sign.OURS:
            return seen
    if any(sign is Sign.RUNNING for _, sign in found):
        return e.Undecided()
    mute = tuple(seen.id for seen, sign in found if sign is Sign.MUTE)
    return e.Undecided(mute=mute) if mute else e.Absent()
