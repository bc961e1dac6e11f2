"""How each attempt of a submission ended, from its line in the results or the lack of one. Pure.

answered + failed + missing = sent: whatever the provider counts, each order gets exactly one end here.
"""

import dataclasses
from collections.abc import Collection

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.wire.messages import AttemptAnswered, Failure, ProviderBatchRow
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.bulk.dialect import Fate, InputFault, ResultLine
from nightmill.provider_gateway.bulk.results import ResultFile
from nightmill.provider_gateway.exchange import Adapter, Reply
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import Order, concluded, not_sent, refused, unknown
from nightmill.provider_gateway.unreadable import with_body

_SIGNALS = {
    Fate.EXPIRED: Signal.BATCH_EXPIRED,
    Fate.TIMED_OUT: Signal.REQUEST_TIMEOUT,
    Fate.FAILED: Signal.LINE_FAILED,
}


def answer(
    order: Order, line: ResultLine | None, row: ProviderBatchRow, adapter: Adapter, gone: Collection[ResultFile] = ()
) -> AttemptAnswered:
    """The message of an order whose submission has ended; files that are `gone` are not waited for any more."""
    ended_at_ms = row.ended_at_ms or 0
    if line is None:
        return unlisted(order, row, gone)
    if line.fate is Fate.CANCELLED:
        return not_sent(order, now_ms=ended_at_ms)
    if line.response is not None:
        reply = with_body(adapter.reply(line.response, now_ms=ended_at_ms), line.response)
        if reply.failure is not None:
            reply = dataclasses.replace(reply, failure=_of_a_line(reply.failure, line))
    else:
        reply = Reply(failure=failure(_SIGNALS.get(line.fate, Signal.LINE_FAILED), code=line.code))
    return concluded(
        order,
        reply,
        started_at_ms=row.submitted_at_ms or row.intent_at_ms,
        ended_at_ms=ended_at_ms,
        http_status=None if line.response is None else line.response.status,
        provider_request_id=line.request_id,
    )


def unlisted(order: Order, row: ProviderBatchRow, gone: Collection[ResultFile]) -> AttemptAnswered:
    """The message of an order without a line.

    If the output file is gone, the order was in it, as far as anybody knows: answered, billed, and for a person to pay
    again. If the error file alone is gone, it failed, or its line is missing: nobody knows whether that was billed.
    """
    ended_at_ms = row.ended_at_ms or 0
    if ResultFile.OUTPUT in gone:
        return lost(order, row)
    if row.absent_not_run and not gone:
        return not_sent(order, now_ms=ended_at_ms)
    return unknown(order, Signal.RESULT_MISSING, now_ms=ended_at_ms)


def lost(order: Order, row: ProviderBatchRow, why: str | None = None) -> AttemptAnswered:
    """The message of an order whose results the provider has lost: it ran and was billed, as far as anybody knows."""
    at_ms = row.ended_at_ms or row.intent_at_ms
    reply = Reply(failure=failure(Signal.RESULTS_LOST, detail=why))
    return concluded(order, reply, started_at_ms=row.submitted_at_ms or row.intent_at_ms, ended_at_ms=at_ms)


def faulty(order: Order, fault: InputFault, now_ms: int) -> AttemptAnswered:
    """The message of an order whose line made the provider refuse the batch."""
    found = failure(Signal.BAD_REQUEST, code=fault.code, param=fault.param)
    return refused(order, found, now_ms=now_ms)


def _of_a_line(found: Failure, line: ResultLine) -> Failure:
    """A line's failure says nothing of when to come back to the pool: that was hours ago.

    So a 429 without a time is the ordinary one (row 47), and nothing of it is billed.
    """
    if found.signal == Signal.UNKNOWN_429:
        return failure(Signal.RATE_LIMITED)
    return replace(found, retry_after_ms=None, billed=Billed.NO if line.free else found.billed)
