"""A small job: its pipeline, its id, and what the views hold of it."""

from typing import Any

from kit.ledger_events import COUNTS, sealed, totals
from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.wire.messages import PublicationRow

YAML = """\
name: label
input: {id: id, fields: [text]}
prompt: "Label {{ text }}"
output: {type: object}
model: {pools: [sim], max_output_tokens: 10}
"""
JOB = "default.label.20260101-000000-aa"


def publication(job: str = JOB, state: BatchState = BatchState.PUBLISHED, **fields: Any) -> PublicationRow:
    batch = ids.batch_id(job)
    seal = sealed(job_id=job, batch_id=batch, dataset_id="default.label", planned=1, refused_rows=0)
    base: dict[str, Any] = {
        "batch_id": batch,
        "job_id": job,
        "dataset_id": "default.label",
        "generation": 1,
        "state": state,
        "sealed": seal,
        "counts": COUNTS,
        "totals": totals(attempts=1, cost_nano_usd=1_500, unknown_attempts=1),
        "approved": False,
        "commands": (),
        "opened_at_ms": 1_000,
        "updated_at_ms": 2_000,
    }
    return PublicationRow(**{**base, **fields})
