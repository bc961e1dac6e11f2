"""From many records to the columns of the three tables that grow with the items, in the order of tables.py.

A call has a row in `attempts` and, if it was answered or judged, one in `verdicts`; an item's settlement has one in
`items`. Every value is a function of its record alone, so that the same record gives the same row whenever it comes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.store.columns import Table
from nightmill.kernel.wire.codec import Undecodable, codecs
from nightmill.kernel.wire.columnar import Column, Columns, Flags, Numbers, Symbols, Texts
from nightmill.kernel.wire.messages import AttemptJudged, ItemSettled
from nightmill.ledger import tables
from nightmill.ledger.rows import ForeignId, submitted_at_ms, tenant_and_pipeline

#: columns of one table, in its order, all of one length
Block = list[Sequence[Any] | Column]

#: revisions of one generation before the next generation begins
_REVISIONS = 1 << 16

_OF_VERDICT = {"verdict": "verdict.kind", **{name: f"verdict.{name}" for name in ("rule", "field", "value")}}
_OF_FAILURE = {"failure_class": "failure_class", "failure_signal": "signal", "failure_message": "message"}

#: paths of the columns that are not called as their field is
_ATTEMPT_PATHS = {
    **_OF_VERDICT,
    **{column: f"attempt.failure.{name}" for column, name in _OF_FAILURE.items()},
    **{name: f"attempt.usage.{name}" for name in tables.USAGE},
    **{f"{name}_usd": f"attempt.{name}_nano_usd" for name in ("cost", "reserved")},
    **{f"{name}_at": f"attempt.{name}_at_ms" for name in ("minted", "started", "ended")},
    "judged_at": "judged_at_ms",
}
_ITEM_PATHS = {
    **_OF_VERDICT,
    **{column: f"failure.{name}" for column, name in _OF_FAILURE.items()},
    **{name: f"totals.{name}" for name in ("attempts", "retries", "repairs", "unknown_attempts")},
    **{name: f"totals.{name}" for name in ("input_tokens", "cached_tokens", "output_tokens")},
    "cost_usd": "totals.cost_nano_usd",
    **{f"{name}_at": f"{name}_at_ms" for name in ("planned", "settled")},
}


def attempts(records: Sequence[bytes]) -> Block:
    """Rows of `attempts`, of judged attempts; a call that surely never left costs nothing and is none.

    Raises `Undecodable` and `ForeignId`, without telling whose.
    """
    read = codecs()[AttemptJudged].columns(records)
    calls = read.where(happened(read))
    owners = _owners(calls.of(Texts, "attempt.job_id"))
    computed = {**owners, "billed": _billed(calls), "ver": attempt_versions(calls)}
    return _block(tables.ATTEMPTS, calls, _ATTEMPT_PATHS, "attempt.", computed)


def verdicts(records: Sequence[bytes]) -> Block:
    """Rows of `verdicts`, of judged attempts that have an answer or a verdict. Raises as `attempts`."""
    read = codecs()[AttemptJudged].columns(records)
    texts = (read.of(Texts, f"attempt.{name}").known for name in ("output", "output_digest"))
    judged = read.of(Numbers, "verdict").values == 1
    told = read.where(happened(read) & np.logical_or.reduce((judged, *texts)))
    computed = {**_owners(told.of(Texts, "attempt.job_id")), "ver": attempt_versions(told)}
    return _block(tables.VERDICTS, told, _ATTEMPT_PATHS, "attempt.", computed)


def items(records: Sequence[bytes]) -> Block:
    """Rows of `items`, of settlements: a newer generation replaces an older, within one a newer revision.

    Raises as `attempts`.
    """
    read = codecs()[ItemSettled].columns(records)
    jobs = read.of(Texts, "job_id")
    generations, revisions = (read.of(Numbers, name) for name in ("generation", "revision"))
    computed = {
        **_owners(jobs),
        "submitted_at": [submitted_at_ms(job) for job in jobs.listed()],
        "ver": Numbers(generations.values * _REVISIONS + revisions.values, generations.known),
    }
    return _block(tables.ITEMS, read, _ITEM_PATHS, "", computed)


#: what reads the rows of a table from records
READERS: Mapping[str, Callable[[Sequence[bytes]], Block]] = {
    tables.ATTEMPTS.name: attempts,
    tables.VERDICTS.name: verdicts,
    tables.ITEMS.name: items,
}


def fault(table: Table, record: bytes) -> str | None:
    """Why the rows of `table` can not be read from a record; None when they can."""
    message = ItemSettled if table is tables.ITEMS else AttemptJudged
    try:
        codecs()[message].decode(record)
        READERS[table.name]([record])
    except (Undecodable, ForeignId) as error:
        return str(error)
    return None


def happened(judged: Columns) -> Flags:
    """Which calls happened or may have happened."""
    state = judged.of(Symbols, "attempt.state")
    return ~(state.are(AttemptState.NOT_SENT) | state.are(AttemptState.MINTED))


def attempt_versions(judged: Columns) -> Numbers:
    """Place in the life of an attempt: unknown, then answered or failed, then corrected by a late answer."""
    late = judged.of(Numbers, "attempt.late")
    answered = np.where(late.values == 1, 4, 3)
    return Numbers(np.where(judged.of(Symbols, "attempt.state").are(AttemptState.UNKNOWN), 2, answered), late.known)


def _billed(judged: Columns) -> Symbols:
    """What a failure says of it, else yes, but unknown for a call of which nobody knows what became."""
    said = judged.of(Symbols, "attempt.failure.billed")
    unknown = judged.of(Symbols, "attempt.state").are(AttemptState.UNKNOWN)
    unsaid = np.where(unknown, said.names.index(Billed.UNKNOWN), said.names.index(Billed.YES))
    return Symbols(np.where(said.are(""), unsaid, said.codes), said.names)


def _owners(jobs: Texts) -> dict[str, Sequence[str]]:
    owners = [tenant_and_pipeline(job) for job in jobs.listed()]
    return {"tenant": [tenant for tenant, _ in owners], "pipeline": [pipeline for _, pipeline in owners]}


def _block(table: Table, read: Columns, paths: Mapping[str, str], prefix: str, computed: Mapping[str, Any]) -> Block:
    return [computed[name] if name in computed else read[paths.get(name, f"{prefix}{name}")] for name in table.names]
