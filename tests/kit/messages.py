"""Small valid messages for tests; a test overrides the fields it is about."""

import hashlib
from base64 import urlsafe_b64encode
from typing import Any

from nightmill.kernel.domain.lifecycle import ItemState, Reuse
from nightmill.kernel.wire.messages import ItemPlanned, ItemStateRow, RowRef, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace

JOB = "acme.tickets.20261129-120000-aaaa"
BATCH = f"{JOB}.1"


def key_of(source_id: str) -> str:
    """An item key that depends on the source id alone."""
    return urlsafe_b64encode(hashlib.sha256(source_id.encode()).digest()).rstrip(b"=").decode()


def item_planned(source_id: str, *, key: str | None = None, **fields: Any) -> ItemPlanned:
    message = ItemPlanned(
        item_key=key or key_of(source_id),
        batch_id=BATCH,
        job_id=JOB,
        dataset_id="acme.tickets",
        generation=1,
        ordinal=0,
        source_id=source_id,
        row=RowRef(block="b" * 64, row=0),
        pipeline_digest="p" * 64,
        input_tokens=100,
        max_output_tokens=32,
        prefix="0" * 16,
        reuse=Reuse.ACCEPTED,
        priority=0,
        deadline_at_ms=None,
    )
    return replace(message, **fields)


def item_state_row(planned: ItemPlanned, **fields: Any) -> ItemStateRow:
    """The row of a planned item that waits to be packed."""
    row = ItemStateRow(
        item_key=planned.item_key,
        state=ItemState.READY,
        job_id=planned.job_id,
        dataset_id=planned.dataset_id,
        source_id=planned.source_id,
        row=planned.row,
        pipeline_digest=planned.pipeline_digest,
        input_tokens=planned.input_tokens,
        max_output_tokens=planned.max_output_tokens,
        prefix=planned.prefix,
        priority=planned.priority,
        deadline_at_ms=planned.deadline_at_ms,
        waiters=(Waiter(batch_id=planned.batch_id, generation=planned.generation, ordinal=planned.ordinal),),
        settled=(),
        ordinal=0,
        tries=0,
        repairs=0,
        overdue=0,
        totals=NO_TOTALS,
        planned_at_ms=1_796_000_000_000,
    )
    return replace(row, **fields)
