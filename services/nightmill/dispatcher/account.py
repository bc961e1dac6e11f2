"""What an item's calls used and nobody was charged for yet: the account that its row carries as `totals`.

The payer's settlement is charged the whole account, which then begins at nothing again. What was under way at a cancel
stays on the account until its batch is resumed. A call that was never sent, or failed without being billed, is none; a
cost that is not known is counted as such, with the attempt's reservation, never as nothing.
"""

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.wire.messages import AttemptAnswered, ItemStateRow, Totals, Waiter
from nightmill.kernel.wire.totals import NO_TOTALS
from nightmill.kernel.wire.values import replace


def charge(totals: Totals, attempt: AttemptAnswered, *, is_retry: bool) -> Totals:
    """The account with one more call on it."""
    if not _counts(attempt):
        return totals
    usage, cost = attempt.usage, attempt.cost_nano_usd
    return Totals(
        attempts=totals.attempts + 1,
        input_tokens=totals.input_tokens + (usage.input_tokens if usage else 0),
        cached_tokens=totals.cached_tokens + (usage.cached_tokens if usage else 0),
        output_tokens=totals.output_tokens + (usage.output_tokens if usage else 0),
        cost_nano_usd=totals.cost_nano_usd + (cost or 0),
        unknown_attempts=totals.unknown_attempts + (cost is None),
        repairs=totals.repairs + attempt.is_repair,
        retries=totals.retries + (is_retry and not attempt.is_repair),
        reserved_nano_usd=totals.reserved_nano_usd + (attempt.reserved_nano_usd if cost is None else 0),
    )


def charge_late(totals: Totals, attempt: AttemptAnswered, payer: Waiter | None) -> Totals:
    """The account when the answer of a given-up call arrives.

    The call itself was counted when it was given up, as unknown: here if it is the payer's own, and not charged since.
    Nobody pays for a call that another batch caused.
    """
    if payer is None or payer.batch_id != attempt.batch_id:
        return totals
    known = charge(totals, attempt, is_retry=False)
    was_unknown = min(totals.unknown_attempts, 1)
    unknown = known.unknown_attempts - was_unknown
    was_reserved = min(totals.reserved_nano_usd, attempt.reserved_nano_usd) if was_unknown else 0
    return replace(
        known,
        attempts=totals.attempts,
        unknown_attempts=unknown,
        repairs=totals.repairs,
        reserved_nano_usd=known.reserved_nano_usd - was_reserved if unknown else 0,
    )


def owed_by(row: ItemStateRow, batch_id: str) -> Totals:
    """What a batch has still to be charged for the row: the whole account if it is the payer, else nothing."""
    return row.totals if row.payer is not None and row.payer.batch_id == batch_id else NO_TOTALS


def with_unknown(totals: Totals, reserved_nano_usd: int) -> Totals:
    """The account with a call of which nothing is known but that it was dispatched, and what it costs at the most."""
    return replace(
        totals,
        attempts=totals.attempts + 1,
        unknown_attempts=totals.unknown_attempts + 1,
        reserved_nano_usd=totals.reserved_nano_usd + reserved_nano_usd,
    )


def _counts(attempt: AttemptAnswered) -> bool:
    match attempt.state:
        case AttemptState.ANSWERED | AttemptState.UNKNOWN:
            return True
        case AttemptState.FAILED:
            return attempt.failure is None or attempt.failure.billed is not Billed.NO
        case AttemptState.NOT_SENT | AttemptState.MINTED:
            return False
