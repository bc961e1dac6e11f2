"""The stand-in for an answer whose record could not be read: whose it was, from the record's headers."""

from collections.abc import Mapping

from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, Lane
from nightmill.kernel.wire.messages import AttemptAnswered, Failure, RowRef


def unreadable(headers: Mapping[str, str], now_ms: int) -> AttemptAnswered | None:
    """A failed attempt of class internal and unknown cost; None when the headers do not say whose it was.

    What only the body told (pool, model, row, tokens) stays empty.
    """
    try:
        return AttemptAnswered(
            item_key=headers["item"],
            ordinal=int(headers["ordinal"]),
            minted_at_ms=int(headers["minted"]),
            shard_id=headers["shard"],
            batch_id=headers["batch"],
            job_id=headers["job"],
            generation=int(headers["generation"]),
            source_id="",
            row=RowRef(block="", row=0),
            pipeline_digest="",
            pool="",
            model="",
            lane=Lane.REALTIME,
            state=AttemptState.FAILED,
            failure=_FAILURE,
            reserved_nano_usd=0,
            price_version="",
            is_repair=False,
            late=False,
            ended_at_ms=now_ms,
        )
    except (KeyError, ValueError):
        return None


_FAILURE = Failure(
    failure_class=FailureClass.INTERNAL,
    signal="unreadable_answer",
    message="the record of the answer could not be handled; see attempt-answered-dlq",
    uses_retry_budget=True,
    billed=Billed.UNKNOWN,
)
