"""What the end of an errand may do to its submission: rows, answers, orders that wait again, and patience."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from nightmill.kernel.domain.lifecycle import ProviderBatchEvent
from nightmill.kernel.wire.messages import AttemptAnswered, Failure, ProviderBatchRow
from nightmill.provider_gateway.bulk.steps import Timing, backoff_ms
from nightmill.provider_gateway.bulk.submission import Submission
from nightmill.provider_gateway.orders import Order

log = logging.getLogger(__name__)

#: looks at something that the provider says it has not, before it counts as lost
_MOST_ABSENT = 5


@dataclass(slots=True)
class Effect:
    """What is to be done about a submission."""

    put: list[ProviderBatchRow] = field(default_factory=list)
    answers: list[AttemptAnswered] = field(default_factory=list)
    again: Sequence[Order] = ()  #: orders that wait for another submission


def withdraw(submission: Submission, effect: Effect, now_ms: int) -> None:
    """Take a submission back that surely never ran: its orders wait for another."""
    effect.put.append(submission.move(ProviderBatchEvent.WITHDRAW, closed_at_ms=now_ms))
    effect.again, submission.orders = submission.orders, []
    submission.due_at_ms = now_ms


def again_later(submission: Submission, timing: Timing, now_ms: int, found: Failure | None = None) -> None:
    """The same step once more, later each time, and not before a time that the provider has named."""
    submission.tries += 1
    hinted_ms = 0 if found is None or found.retry_after_ms is None else found.retry_after_ms
    submission.due_at_ms = now_ms + max(backoff_ms(submission.tries, timing), hinted_ms)


def still_gone(submission: Submission, timing: Timing, now_ms: int) -> bool:
    """Take in that the provider says that it has it not; whether it is waited for no longer.

    Time counts from when it said so first: that we were away for days says nothing of what the provider has.
    """
    if submission.gone_since_ms is None:
        submission.gone_since_ms = now_ms
    return submission.tries >= _MOST_ABSENT and now_ms - submission.gone_since_ms >= timing.lost


def tell(submission: Submission, text: str, action: str, *, level: int = logging.INFO, **facts: object) -> None:
    """One line of log about a submission."""
    row = submission.row
    extra = {"action": action, "submission": row.submission_id, "pool": row.pool, "batch": row.provider_batch_id}
    log.log(level, text, extra=extra | facts)
