"""What the end of an errand means for its submission: the row that follows, answers, or orders that wait again."""

import logging

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import ProviderBatchEvent
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.wire.messages import AttemptAnswered, Failure
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.answers import faulty, lost
from nightmill.provider_gateway.bulk.dialect import BatchSeen, Stage
from nightmill.provider_gateway.bulk.effect import Effect, again_later, still_gone, tell, withdraw
from nightmill.provider_gateway.bulk.harvests import all_lost, answered, fetched
from nightmill.provider_gateway.bulk.limits import Size
from nightmill.provider_gateway.bulk.refusals import why_refused
from nightmill.provider_gateway.bulk.standing import Standing
from nightmill.provider_gateway.bulk.steps import Step, Timing, doubt_ends_at_ms, poll_ms
from nightmill.provider_gateway.bulk.submission import Submission, ended
from nightmill.provider_gateway.failures import Signal, failure, plain
from nightmill.provider_gateway.orders import refused

log = logging.getLogger(__name__)

_MOST_REMOVALS = 5
_TAKES_INPUT = frozenset({Step.UPLOAD, Step.CREATE})


class Outcomes:
    """Decides on one outcome at a time; remembers nothing itself."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing

    def of(self, step: Step, submission: Submission, standing: Standing, outcome: e.Outcome, now_ms: int) -> Effect:
        """The consequence of an errand's end for the submission it was for."""
        effect = Effect()
        match outcome:
            case e.Polled():
                self._polled(submission, standing, outcome, effect, now_ms)
            case e.Blocked(reason=reason):
                again_later(submission, self._timing, now_ms)
                log.warning("bulk work waits", extra={"action": "bulk_waits", "reason": reason})
            case e.Unsure(failure=found) if step is Step.CREATE:
                submission.doubt, submission.due_at_ms = True, doubt_ends_at_ms(submission, self._timing)
                tell(submission, "submission in doubt", "submission_in_doubt", signal=found.signal)
            case e.Refused(failure=found) if step in _TAKES_INPUT and found.failure_class is FailureClass.BAD_INPUT:
                self._refused_whole(submission, standing, _of_the_whole(found), effect, now_ms)
            case e.Refused(failure=found) if step is Step.REMOVE and submission.tries + 1 >= _MOST_REMOVALS:
                # the provider forgets them by itself, in days
                effect.put.append(submission.note(removed_at_ms=now_ms))
                tell(submission, "files left at the provider", "files_left", level=logging.WARNING, why=found.message)
            case e.Refused(failure=found) | e.Unsure(failure=found):
                submission.strays = submission.strays or (step is Step.UPLOAD and isinstance(outcome, e.Unsure))
                submission.misfits += step is Step.FETCH and found.signal == Signal.BODY_INCOMPLETE
                again_later(submission, self._timing, now_ms, found)
            case _:
                self._went_well(step, submission, outcome, effect, now_ms)
        return effect

    def answered(self, submission: Submission, standing: Standing, answers: e.Answers, now_ms: int) -> None:
        """Take answers in that were read from the results. Where the provider was short of room, less goes together."""
        answered(submission, timing=self._timing, now_ms=now_ms)
        if not submission.crowded and any(map(_lacked_room, answers)):
            submission.crowded = True
            standing.too_much(_size(submission), in_tokens=False)

    def _went_well(self, step: Step, submission: Submission, outcome: e.Outcome, effect: Effect, now_ms: int) -> None:
        match step, outcome:
            case Step.UPLOAD, str(file_id):
                effect.put.append(submission.move(ProviderBatchEvent.ARM, file_id=file_id, armed_at_ms=now_ms))
            case ((Step.CREATE | Step.LOOK_UP), BatchSeen()):
                self._submitted(submission, outcome, effect, now_ms)
            case Step.LOOK_UP, e.Absent():
                self._absent(submission, effect, now_ms)
            case Step.LOOK_UP, e.Undecided(mute=mute):
                self._undecided(submission, mute, effect, now_ms)
            case Step.FENCE, e.Done():
                submission.fenced, submission.tries = True, 0
                submission.due_at_ms = now_ms + self._timing.list_lag
            case Step.CANCEL, e.Done():
                effect.put.append(submission.note(cancelled_at_ms=now_ms))
                submission.looks, submission.due_at_ms = 0, now_ms
            case Step.FETCH, (e.Harvest() | e.Absent()):
                fetched(submission, outcome, effect, timing=self._timing, now_ms=now_ms)
            case Step.REMOVE, e.Done():
                effect.put.append(submission.note(removed_at_ms=now_ms))
            case _:
                # a create that came too late: the row is armed anew
                submission.due_at_ms = now_ms

    def _polled(
        self, submission: Submission, standing: Standing, polled: e.Polled, effect: Effect, now_ms: int
    ) -> None:
        row = submission.row
        seen = next((each for each in polled.batches if each.id == row.provider_batch_id), None)
        if seen is None:
            again_later(submission, self._timing, now_ms)
            if row.provider_batch_id not in polled.gone:
                submission.gone_since_ms = None
            elif still_gone(submission, self._timing, now_ms):
                tell(submission, "batch lost", "batch_lost", level=logging.ERROR)
                effect.put.append(submission.move(ProviderBatchEvent.END, ended_at_ms=now_ms))
                submission.harvest, submission.due_at_ms = all_lost(submission), now_ms
            return
        submission.tries, submission.gone_since_ms = 0, None
        match seen.stage:
            case Stage.RUNNING:
                submission.looks += 1
                submission.due_at_ms = now_ms + poll_ms(submission.looks, self._timing)
            case Stage.ENDED:
                standing.taken()
                self._ended(submission, seen, effect, now_ms)
            case Stage.REFUSED:
                self._refused(submission, standing, seen, effect, now_ms)

    # -- one by one

    def _submitted(self, submission: Submission, seen: BatchSeen, effect: Effect, now_ms: int) -> None:
        submission.doubt = False
        submission.due_at_ms = now_ms + self._timing.poll
        changes = {"provider_batch_id": seen.id, "submitted_at_ms": now_ms}
        effect.put.append(submission.move(ProviderBatchEvent.SUBMIT, **changes))
        tell(submission, "submission made", "submission_made", requests=submission.row.requests)

    def _absent(self, submission: Submission, effect: Effect, now_ms: int) -> None:
        submission.absent, submission.tries = True, 0
        submission.mute, submission.gone_since_ms = (), None
        if submission.fenced:
            withdraw(submission, effect, now_ms)
            tell(submission, "submission never was", "submission_absent")
        elif submission.row.file_id is None:
            # there is no input to remove: its time alone keeps a create from being sent late
            submission.fenced, submission.due_at_ms = True, now_ms + self._timing.list_lag

    def _undecided(self, submission: Submission, mute: tuple[str, ...], effect: Effect, now_ms: int) -> None:
        """A batch may be the submission. If it has ended and does not tell, people decide in the end, not we."""
        if not mute:
            submission.looks += 1
            submission.due_at_ms = now_ms + poll_ms(submission.looks, self._timing)
            submission.mute, submission.gone_since_ms = (), None
            return
        if mute != submission.mute:
            tell(submission, "a batch does not tell whose it is", "orphan_mute", level=logging.ERROR, may_be=list(mute))
        submission.mute = mute
        again_later(submission, self._timing, now_ms)
        if still_gone(submission, self._timing, now_ms):
            tell(submission, "submission given up", "orphan_given_up", level=logging.ERROR, may_be=list(mute))
            why = f"it may have been batch {plain(mute[0])}; to send it again may pay twice"
            effect.answers += [lost(order, submission.row, why) for order in submission.orders]
            withdraw(submission, effect, now_ms)
            effect.again = ()

    def _ended(self, submission: Submission, seen: BatchSeen, effect: Effect, now_ms: int) -> None:
        facts = dict(ended(seen, now_ms))
        if seen.fingerprint is not None and seen.fingerprint != submission.row.fingerprint:
            tell(submission, "batch has another input", "fingerprint_differs", level=logging.ERROR)
            metrics.count("bulk_lines_strange", submission.row.requests, pool=submission.row.pool)
            facts |= {"output_id": None, "error_id": None}
        effect.put.append(submission.move(ProviderBatchEvent.END, **facts))
        submission.ran = seen.ran
        tell(submission, "batch ended", "batch_ended", status=plain(seen.status))

    # -- refusals of the whole

    def _refused(
        self, submission: Submission, standing: Standing, seen: BatchSeen, effect: Effect, now_ms: int
    ) -> None:
        """What becomes of a batch of which nothing ran stands in `refusals`."""
        signal = why_refused(seen.faults, lines=len(submission.orders))
        codes = sorted({fault.code for fault in seen.faults})
        names = [plain(code) for code in codes]
        tell(submission, "batch refused", "batch_refused", level=logging.WARNING, signal=signal, codes=names)
        match signal:
            case Signal.ENQUEUED_FULL:
                standing.refusals += 1
                standing.too_much(_size(submission), in_tokens=True)
                if len(submission.orders) == 1:  # nothing smaller can be tried: it waits, and people are told why
                    standing.stop(failure(signal), now_ms)
                withdraw(submission, effect, now_ms)
            case Signal.BAD_REQUEST:
                by_line = {fault.line: fault for fault in seen.faults}
                named = [(order, by_line.get(number)) for number, order in enumerate(submission.orders, 1)]
                effect.answers += [faulty(order, fault, now_ms) for order, fault in named if fault is not None]
                withdraw(submission, effect, now_ms)
                effect.again = [order for order, fault in named if fault is None]
            case _:
                self._refused_whole(
                    submission, standing, failure(signal, code=codes[0] if codes else None), effect, now_ms
                )

    def _refused_whole(
        self, submission: Submission, standing: Standing, found: Failure, effect: Effect, now_ms: int
    ) -> None:
        standing.refusals += 1
        is_size, no_reason = found.signal == Signal.TOO_LARGE, found.signal == Signal.BATCH_REFUSED
        if len(submission.orders) > 1 and (is_size or (no_reason and standing.refusals == 1)):
            standing.too_much(_size(submission), in_tokens=False)
            withdraw(submission, effect, now_ms)
            return
        if found.failure_class is FailureClass.ACCOUNT:
            standing.stop(found, now_ms)
        effect.answers += [refused(order, found, now_ms=now_ms) for order in submission.orders]
        withdraw(submission, effect, now_ms)
        effect.again = ()


def _lacked_room(answered: AttemptAnswered) -> bool:
    """The provider limited its own batch. That its time was over says nothing of its size."""
    found = answered.failure
    capacity = found is not None and found.failure_class is FailureClass.CAPACITY
    return capacity and found is not None and found.signal != Signal.BATCH_EXPIRED


def _of_the_whole(found: Failure) -> Failure:
    """A refused upload or create: if it is not too large, it is we who ask wrongly, and no request is at fault."""
    return found if found.signal == Signal.TOO_LARGE else failure(Signal.BATCH_REFUSED, detail=found.message)


def _size(submission: Submission) -> Size:
    row = submission.row
    return Size(requests=row.requests, bytes=row.bytes, tokens=row.input_tokens)
