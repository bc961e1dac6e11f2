"""Makers for tests of the bulk lane's decisions."""

from typing import Any

from nightmill.kernel.domain.lifecycle import Lane, ProviderBatchState
from nightmill.kernel.wire.messages import ProviderBatchRow, RowRef, ShardAttempt, ShardDispatched
from nightmill.provider_gateway.bulk.submission import Submission
from nightmill.provider_gateway.orders import Order
from unit.provider_gateway.makers import BATCH, JOB, NOW_MS, POOL, PRICE, make_access


def make_order(number: int, shard_id: str = "s1", *, tokens: int = 100, index: int | None = None) -> Order:
    index = number if index is None else index
    attempts = tuple(
        ShardAttempt(
            item_key=f"item{number:039d}",
            ordinal=1,
            minted_at_ms=NOW_MS,
            batch_id=BATCH,
            generation=1,
            source_id=str(number),
            row=RowRef(block="b", row=number),
            input_tokens=tokens,
            max_output_tokens=64,
        )
        for _ in range(index + 1)
    )
    shard = ShardDispatched(
        shard_id=shard_id,
        pool=POOL,
        lane=Lane.BULK,
        job_id=JOB,
        pipeline_digest="p",
        attempts=attempts,
        dispatched_at_ms=NOW_MS,
    )
    return Order(shard=shard, index=index, partition=0, model="small", periods=(PRICE.period(),), price_version="p1")


def make_row(state: ProviderBatchState = ProviderBatchState.ARMED, **changes: Any) -> ProviderBatchRow:
    fields: dict[str, Any] = {
        "submission_id": "s1-b1",
        "anchor": "s1",
        "pool": POOL,
        "state": state,
        "spans": (),
        "requests": 3,
        "bytes": 300,
        "input_tokens": 300,
        "fingerprint": "f",
        "owner": "0",
        "intent_at_ms": NOW_MS,
        "armed_at_ms": NOW_MS,
        "file_id": "file-1",
        "absent_not_run": False,
    }
    return ProviderBatchRow(**(fields | changes))


def make_submission(state: ProviderBatchState = ProviderBatchState.ARMED, **changes: Any) -> Submission:
    row = make_row(state, **changes)
    orders = [make_order(number) for number in range(row.requests)]
    return Submission(row=row, access=make_access(), orders=orders, due_at_ms=NOW_MS)
