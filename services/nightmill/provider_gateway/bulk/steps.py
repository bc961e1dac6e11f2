"""What a submission does next, and when. Pure.

INTENT     upload the input, where it is a file; nothing was created yet, so a new owner withdraws it and begins again
ARMED      create, if its time is not over: the clock is looked at again right before the send; else arm anew
           in doubt: look it up, but not before every create of it must be over; absent → remove its input, so that no
           sleeping owner can create it any more, and look again; absent again → it never was. A look that fails says
           nothing, and waits
SUBMITTED  poll until it has ended; cancel what nobody wants or what is stuck
ENDED      fetch the results, read them
closed     remove its files
"""

from dataclasses import dataclass
from enum import StrEnum

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.provider_gateway.bulk.submission import Submission

_MOST_DOUBLINGS = 16
#: downloads of a result file that is never as long as it is said to be; then it is read as it is
MOST_DOWNLOADS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Milliseconds. The defaults are for real providers."""

    gather: int = 5_000  #: orders wait so long for company
    submit_within: int = 60_000  #: T: a create leaves so long after the row that allows it, or not at all
    request: int = 60_000  #: a create is over so long after it left
    guard: int = 30_000  #: and clocks differ by less than this
    list_lag: int = 15_000  #: a batch may be missing from lists so long after it was created
    poll: int = 2_000  #: after a submission, growing by half
    longest_poll: int = 300_000
    retry: int = 2_000  #: after a failed errand, doubling
    longest_retry: int = 300_000
    stuck: int = 26 * 3_600_000  #: a batch that has not ended by then is cancelled
    cancel_again: int = 600_000
    tidy: int = 600_000  #: from one look for downloads that nobody needs to the next
    #: what the provider says that it has not is looked for so long; a month is what providers promise to keep it
    lost: int = 72 * 3_600_000

    @property
    def doubt(self) -> int:
        """From the row that allows a create until it must be over, whoever made it."""
        return self.submit_within + self.request + self.guard


class Step(StrEnum):
    """What is to be done with a submission."""

    WAIT = "wait"
    UPLOAD = "upload"
    ARM = "arm"
    CREATE = "create"
    LOOK_UP = "look_up"
    FENCE = "fence"
    POLL = "poll"
    CANCEL = "cancel"
    FETCH = "fetch"
    READ = "read"
    REMOVE = "remove"


def next_step(submission: Submission, *, now_ms: int, timing: Timing) -> Step:
    """The next step of a submission that is not in the middle of one."""
    if submission.busy or submission.uncommitted or now_ms < submission.due_at_ms:
        return Step.WAIT
    match submission.state:
        case ProviderBatchState.INTENT:
            is_inline = submission.access.dialect is not None and submission.access.dialect.frame is not None
            return Step.ARM if is_inline and submission.built is not None else Step.UPLOAD
        case ProviderBatchState.ARMED:
            return _armed(submission, now_ms, timing)
        case ProviderBatchState.SUBMITTED:
            return Step.CANCEL if _to_cancel(submission, now_ms, timing) else Step.POLL
        case ProviderBatchState.ENDED:
            return Step.FETCH if submission.harvest is None else Step.READ
        case ProviderBatchState.HARVESTED | ProviderBatchState.WITHDRAWN:
            return Step.REMOVE if submission.row.removed_at_ms is None else Step.WAIT


def doubt_ends_at_ms(submission: Submission, timing: Timing) -> int:
    """When every create of an armed submission must be over."""
    return (submission.row.armed_at_ms or 0) + timing.doubt


def backoff_ms(tries: int, timing: Timing) -> int:
    """How long to wait after so many failures in a row."""
    return min(timing.retry << min(max(tries - 1, 0), _MOST_DOUBLINGS), timing.longest_retry)


def poll_ms(looks: int, timing: Timing) -> int:
    """How long to wait before the next look at a batch that has not ended: growing by half."""
    growth = min(looks, 24)
    return min(timing.poll * int(3**growth) // int(2**growth), timing.longest_poll)


def takes_any_size(misfits: int) -> bool:
    """Whether results are read although they have another size than they are said to have, so often in a row."""
    return misfits >= MOST_DOWNLOADS


def _armed(submission: Submission, now_ms: int, timing: Timing) -> Step:
    if submission.doubt:
        return Step.FENCE if submission.absent and not submission.fenced else Step.LOOK_UP
    armed_at_ms = submission.row.armed_at_ms or 0
    return Step.CREATE if armed_at_ms <= now_ms < armed_at_ms + timing.submit_within else Step.ARM


def _to_cancel(submission: Submission, now_ms: int, timing: Timing) -> bool:
    row = submission.row
    if row.cancelled_at_ms is not None:
        return now_ms - row.cancelled_at_ms >= timing.cancel_again
    stuck = row.submitted_at_ms is not None and now_ms - row.submitted_at_ms >= timing.stuck
    return stuck or submission.called_off
