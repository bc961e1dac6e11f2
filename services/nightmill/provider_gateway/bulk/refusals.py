"""Why a provider refused a batch as a whole. Pure. Nothing of it ran, nothing is billed, and no innocent uses a retry.

BAD_REQUEST     lines are named: those end, with their field, and the others go again
ENQUEUED_FULL   all go again, fewer tokens at a time, when others have ended
TOO_LARGE       all go again in halves; a request that is too large alone ends
BATCH_REFUSED   nobody says why: halves once, and then as the next
account class   every other batch would fare the same: its attempts fail for the account's sake, which keeps the items,
                and no batch is made until a pause is over; told to people

Codes and texts of OpenAI's Batch guide and of issues about it, as of 2026-11-29.
"""

import re
from collections.abc import Sequence

from nightmill.provider_gateway.bulk.dialect import InputFault
from nightmill.provider_gateway.failures import Signal

CODES = {
    "token_limit_exceeded": Signal.ENQUEUED_FULL,
    "too_many_tasks": Signal.TOO_LARGE,
    "file_too_large": Signal.TOO_LARGE,
    "too_large": Signal.TOO_LARGE,
    "duplicate_custom_id": Signal.BATCH_FAULTY,
    "url_mismatch": Signal.BATCH_FAULTY,
    "mismatched_model": Signal.BATCH_FAULTY,
    "model_mismatch": Signal.BATCH_FAULTY,
    "empty_file": Signal.BATCH_FAULTY,
}
_TEXTS = (
    (re.compile(r"enqueued token limit", re.I), Signal.ENQUEUED_FULL),
    (re.compile(r"larger than the \d+ maximum|file is too large", re.I), Signal.TOO_LARGE),
    (re.compile(r"billing|quota|credit|spend limit|usage limit", re.I), Signal.OUT_OF_CREDIT),
)


def why_refused(faults: Sequence[InputFault], *, lines: int) -> Signal:
    """What the faults of a refused batch come to: what is said of the whole goes before what is said of lines.

    A line that the batch has not is nobody's: if it were believed, all would go again, and be refused, for ever.
    """
    whole = [signal for fault in faults if (signal := _recognised(fault)) is not None]
    if whole:
        return whole[0]
    named = any(fault.line is not None and 0 < fault.line <= lines for fault in faults)
    return Signal.BAD_REQUEST if named else Signal.BATCH_REFUSED


def _recognised(fault: InputFault) -> Signal | None:
    by_text = (signal for pattern, signal in _TEXTS if pattern.search(f"{fault.code} {fault.text}"))
    return CODES.get(fault.code) or next(by_text, None)
