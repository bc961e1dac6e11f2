"""Attempts that nobody answers: the same shard is sent again, under the same attempt ids.

The gateway knows every attempt it took on, so a repeat is a no-op there; one that it never got is run. The time allowed
is the call's own deadline and a minute, doubled at each repeat. The watchdog never mints and never gives up: from the
third time on it alarms.
"""

from collections.abc import Sequence

from nightmill.dispatcher.packing import attempt_of, shard_message
from nightmill.dispatcher.pools import repair_tokens
from nightmill.kernel.wire.messages import ItemStateRow, ShardDispatched
from nightmill.kernel.wire.values import replace

#: What the way to the gateway and back may take beside the call itself.
MARGIN_MS = 60_000
ALARM_AT = 3

_MOST_DOUBLINGS = 16


def overdue_at_ms(call_deadline_s: float, overdue: int, now_ms: int) -> int:
    """When an attempt sent now is overdue, having been so `overdue` times before."""
    return now_ms + ((int(call_deadline_s * 1000) + MARGIN_MS) << min(overdue, _MOST_DOUBLINGS))


def send_again(
    rows: Sequence[ItemStateRow], *, call_deadline_s: float, now_ms: int
) -> tuple[ShardDispatched, list[ItemStateRow]]:
    """The shard of rows that are still dispatched under one shard id, and the rows with their next overdue time."""
    again = [
        replace(row, overdue=row.overdue + 1, due_at_ms=overdue_at_ms(call_deadline_s, row.overdue + 1, now_ms))
        for row in rows
    ]
    attempts = [attempt_of(row, row.payer, input_tokens(row)) for row in rows if row.payer is not None]
    return shard_message(rows[0].shard_id or "", rows[0], attempts, now_ms), again


def input_tokens(row: ItemStateRow) -> int:
    """Estimate of the next call's input, with the repair's text when it is one."""
    if row.repair is None:
        return row.input_tokens
    return row.input_tokens + repair_tokens(len(row.repair.output) + len(row.repair.problem))
