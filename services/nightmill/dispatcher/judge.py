"""What the judgement of an item's current attempt means for the item (E8, Q1, Q2).

verdict  accepted                 -> ends accepted
         repairable               -> one repair call while repairs, budget and context allow, else review
         review, rejected         -> ends so
failure  transient, internal      -> waits and is called again, until the retry budget is used
         capacity, account        -> waits; the budget is untouched
         output_invalid           -> as repairable
         policy                   -> review
         bad_input, downstream    -> dead letter: another call would not help, or would pay again for a lost write
of an embedding, repairable and output_invalid -> as transient, then dead letter: nobody can mend a vector
neither, never sent               -> ready again, as if it had not been dispatched
neither, outcome unknown          -> as transient, under a new ordinal
"""

from dataclasses import dataclass

from nightmill.dispatcher import retry
from nightmill.dispatcher.pools import repair_tokens
from nightmill.dispatcher.retry import GiveUp, RetryAt
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.ids import attempt_id
from nightmill.kernel.domain.lifecycle import AttemptState, ItemEvent, ItemOutcome, ItemState, VerdictKind
from nightmill.kernel.domain.settings import Retry
from nightmill.kernel.wire.messages import AttemptAnswered, AttemptJudged, Failure, ItemStateRow, Verdict

#: A repair shows the model at most so much of its own answer.
REPAIR_BYTES = 8192
#: How the validator says that an answer ended at its limit of tokens.
CUT = ("finish_reason", "length")
#: No model of the providers' lists takes less; asking for more than a model has would stop its pool.
_MOST_OUTPUT = 4096

#: How the gateway calls a call whose time was over, at the server or here.
_TIMED_OUT = frozenset({"request_timeout", "deadline_passed"})
#: No answer of so few tokens is what a call's time is over for.
_QUICK_OUTPUT = 256

#: States in which an item takes an accepted answer of an attempt that it had given up. Ended ones absorb it.
_TAKES_LATE = frozenset(
    {
        ItemState.READY,
        ItemState.DISPATCHED,
        ItemState.RETRY_WAIT,
        ItemState.REPAIR,
        ItemState.IN_REVIEW,
        ItemState.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a pipeline and the installation allow an item."""

    attempts: int  #: retry budget
    repairs: int
    retry: Retry
    mends: bool = True  #: an answer can be mended, by its model or a person; a vector can only be asked for again


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The item has its outcome; for `in_review`, until a person decides."""

    event: ItemEvent
    outcome: ItemOutcome
    verdict: Verdict | None = None
    failure: Failure | None = None
    output: str | None = None
    output_digest: str | None = None
    attempt_id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAgain:
    """Called again at its time."""

    at: RetryAt
    failure: Failure
    max_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """A repair call that names `problem`."""

    problem: str
    max_output_tokens: int
    verdict: Verdict | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Requeue:
    """Ready again; nothing was used."""


Ruling = End | CallAgain | Mend | Requeue


def is_current(row: ItemStateRow, attempt: AttemptAnswered) -> bool:
    """Whether the row waits for just this attempt; anything else is stale, repeated or late."""
    return (
        row.state is ItemState.DISPATCHED
        and attempt.ordinal == row.ordinal
        and attempt.minted_at_ms == row.minted_at_ms
    )


def judge(
    row: ItemStateRow, judged: AttemptJudged, *, rules: Rules, headroom_tokens: int, now_ms: int, jitter: float
) -> Ruling:
    """Rules on the current attempt. `headroom_tokens` is what the longest allowed context leaves for a repair."""
    verdict = judged.verdict
    if verdict is None:
        return _by_failure(row, judged.attempt, rules, headroom_tokens, now_ms, jitter)
    match verdict.kind:
        case VerdictKind.ACCEPTED:
            return accepted(judged, verdict)
        case VerdictKind.REPAIRABLE:
            if not rules.mends:
                return _retry_or_bury(row, judged.attempt, _invalid(verdict), rules, now_ms, jitter)
            return _mend_or_park(row, judged.attempt, rules, headroom_tokens, verdict=verdict, failure=None)
        case VerdictKind.REVIEW:
            return _answered(ItemEvent.PARK, ItemOutcome.IN_REVIEW, judged.attempt, verdict=verdict)
        case VerdictKind.REJECTED:
            return _answered(ItemEvent.REJECT, ItemOutcome.REJECTED, judged.attempt, verdict=verdict)


def late(row: ItemStateRow, judged: AttemptJudged) -> End | None:
    """The end that an answer of an earlier attempt brings: it was paid for, so it is taken if it was accepted.

    None when it changes nothing: not accepted, the item has ended, or was planned anew since.
    """
    verdict = judged.verdict
    if verdict is None or verdict.kind is not VerdictKind.ACCEPTED or row.state not in _TAKES_LATE:
        return None
    if judged.attempt.minted_at_ms < row.planned_at_ms or judged.attempt.ordinal > row.ordinal:
        return None
    return accepted(judged, verdict)


def accepted(judged: AttemptJudged, verdict: Verdict) -> End:
    """The end of an item whose answer was accepted."""
    attempt = judged.attempt
    return End(
        event=ItemEvent.ACCEPT,
        outcome=ItemOutcome.ACCEPTED,
        verdict=verdict,
        output=judged.output,
        output_digest=judged.output_digest,
        attempt_id=attempt_id(attempt.item_key, attempt.ordinal),
        model=attempt.model,
    )


def buried(failure: Failure) -> End:
    """The end of an item that no further call can help."""
    return End(event=ItemEvent.BURY, outcome=ItemOutcome.DEAD_LETTER, failure=failure)


def _by_failure(
    row: ItemStateRow, attempt: AttemptAnswered, rules: Rules, headroom_tokens: int, now_ms: int, jitter: float
) -> Ruling:
    failure = attempt.failure
    if failure is None:
        if attempt.state is AttemptState.NOT_SENT:
            return Requeue()
        failure = _unnamed(attempt)
    match failure.failure_class:
        case FailureClass.OUTPUT_INVALID if rules.mends:
            return _mend_or_park(row, attempt, rules, headroom_tokens, verdict=None, failure=failure)
        case FailureClass.POLICY:
            return _answered(ItemEvent.PARK, ItemOutcome.IN_REVIEW, attempt, failure=failure)
        case FailureClass.BAD_INPUT | FailureClass.DOWNSTREAM:
            return _answered(ItemEvent.BURY, ItemOutcome.DEAD_LETTER, attempt, failure=failure)
        case (
            FailureClass.TRANSIENT
            | FailureClass.INTERNAL
            | FailureClass.CAPACITY
            | FailureClass.ACCOUNT
            | FailureClass.OUTPUT_INVALID
        ):
            return _retry_or_bury(row, attempt, failure, rules, now_ms, jitter)


def _retry_or_bury(
    row: ItemStateRow, attempt: AttemptAnswered, failure: Failure, rules: Rules, now_ms: int, jitter: float
) -> Ruling:
    following = retry.after_failure(
        failure,
        tries=row.tries,
        waits=row.ordinal - row.tries - 1,
        planned_at_ms=row.planned_at_ms,
        attempts=rules.attempts,
        policy=rules.retry,
        now_ms=now_ms,
        jitter=jitter,
    )
    match following:
        case GiveUp():
            return _answered(ItemEvent.BURY, ItemOutcome.DEAD_LETTER, attempt, failure=failure)
        case RetryAt():
            most = _less_output(row, failure, rules)
            return CallAgain(at=following, failure=failure, max_output_tokens=most)


def _less_output(row: ItemStateRow, failure: Failure, rules: Rules) -> int:
    """What is out of time for the second time asks for half as many tokens, once.

    Only where a repair is left: an answer that is cut for it then gets as many again.
    """
    before = row.failure
    again = row.tries == 1 and before is not None and before.signal in _TIMED_OUT and failure.signal in _TIMED_OUT
    mends = rules.mends and row.repairs < rules.repairs and row.tries + 2 < rules.attempts
    tokens = row.max_output_tokens
    return max(-(-tokens // 2), _QUICK_OUTPUT) if again and mends and _QUICK_OUTPUT < tokens <= _MOST_OUTPUT else tokens


def _invalid(verdict: Verdict) -> Failure:
    """A failure for a vector that was refused: rule and value in words."""
    return Failure(
        failure_class=FailureClass.OUTPUT_INVALID,
        signal=verdict.rule or "invalid",
        message=verdict.value or "the vector was refused",
        uses_retry_budget=True,
        billed=Billed.YES,
    )


def _unnamed(attempt: AttemptAnswered) -> Failure:
    """A failure for an attempt that names none: its outcome is not known, or its record was cut short."""
    unknown = attempt.state is AttemptState.UNKNOWN
    return Failure(
        failure_class=FailureClass.TRANSIENT if unknown else FailureClass.INTERNAL,
        signal="unknown_outcome" if unknown else "no_verdict",
        message="the call may have been made; its answer is lost" if unknown else "neither a verdict nor a failure",
        uses_retry_budget=True,
        billed=Billed.UNKNOWN,
    )


def _mend_or_park(
    row: ItemStateRow,
    attempt: AttemptAnswered,
    rules: Rules,
    headroom_tokens: int,
    *,
    verdict: Verdict | None,
    failure: Failure | None,
) -> Ruling:
    problem = _problem(verdict, failure)
    chars = REPAIR_BYTES if attempt.output is None else min(len(attempt.output), REPAIR_BYTES)
    fits = repair_tokens(chars + len(problem)) <= headroom_tokens
    if fits and row.repairs < rules.repairs and row.tries + 1 < rules.attempts:
        more = _more_output(row, verdict, headroom_tokens - repair_tokens(chars + len(problem)))
        most = row.max_output_tokens + more
        return Mend(problem=problem, max_output_tokens=most, verdict=verdict, failure=failure)
    return _answered(ItemEvent.PARK, ItemOutcome.IN_REVIEW, attempt, verdict=verdict, failure=failure)


def _more_output(row: ItemStateRow, verdict: Verdict | None, headroom_tokens: int) -> int:
    """An answer that was cut at its limit gets as much again, up to what every model takes and the context holds."""
    if verdict is None or (verdict.rule, verdict.value) != CUT:
        return 0
    return max(0, min(row.max_output_tokens, _MOST_OUTPUT - row.max_output_tokens, headroom_tokens))


def _answered(
    event: ItemEvent,
    outcome: ItemOutcome,
    attempt: AttemptAnswered,
    *,
    verdict: Verdict | None = None,
    failure: Failure | None = None,
) -> End:
    """An end other than accepted keeps the raw answer, for whoever looks into it."""
    return End(
        event=event,
        outcome=outcome,
        verdict=verdict,
        failure=failure,
        output=attempt.output,
        output_digest=attempt.output_digest,
        model=attempt.model,
    )


def _problem(verdict: Verdict | None, failure: Failure | None) -> str:
    """Rule, field and value in words, for the model."""
    if verdict is None:
        return "" if failure is None else f"{failure.signal}: {failure.message}"
    parts = [f"rule {verdict.rule}"] if verdict.rule else []
    if verdict.field:
        parts.append(f"field {verdict.field}")
    if verdict.value is not None:
        parts.append(f"value {verdict.value}")
    return ", ".join(parts) or "the answer was refused"
