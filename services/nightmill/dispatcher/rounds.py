"""What a tick does: wakes rows whose time has come, packs ready items into shards, clears what nobody wants any more.

Each tick takes a bounded number of rows, and a tick with nothing to do reads none. Rows are taken from queues of a pool
and a batch, so that a held batch or a full pool costs one look at its queue's name, however much waits in it.
"""

import logging
from collections.abc import Mapping
from itertools import islice

from nightmill.dispatcher import fence, outcome
from nightmill.dispatcher.backlog import Backlog, shard_rows, shared_key, time_key, way_of
from nightmill.dispatcher.judge import buried
from nightmill.dispatcher.lanes import Router
from nightmill.dispatcher.packing import Candidate, Queue, in_order, mint, pack, queue_of
from nightmill.dispatcher.pools import (
    BULK_DEADLINE_S,
    SHARD_ITEMS,
    most_in_bulk,
    most_in_realtime,
    shard_size,
    worth_dispatching,
)
from nightmill.dispatcher.watchdog import ALARM_AT, input_tokens, overdue_at_ms, send_again
from nightmill.kernel.domain.lifecycle import ControlState, ItemEvent, ItemOutcome, ItemState, Lane, advance_item
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import Decision, Delete, Partition, TableReader
from nightmill.kernel.wire.channel import Message
from nightmill.kernel.wire.messages import Failure, ItemStateRow, LaneChoiceRow
from nightmill.kernel.wire.values import replace

log = logging.getLogger(__name__)

Items = TableReader[ItemStateRow]

KEPT_MS = 7 * 24 * 3600 * 1000  #: how long an ended item answers equal plans

_LANES_KEPT_MS = 30 * 24 * 3600 * 1000  #: how long `explain` can say why a batch took its lane

_MOST_ITEMS = 1_000  #: rows a tick takes in all
_MOST_WOKEN = 400
_MOST_SWEPT = 250
_EXPIRY_EVERY_MS = 60_000
_WALK_EVERY_MS = 10_000
_UNKNOWN_POOL_DEADLINE_S = 120.0


class _Changes:
    """What one tick has decided so far; at most one change of a row."""

    def __init__(self) -> None:
        self.moves: dict[str, tuple[ItemStateRow, ItemStateRow]] = {}
        self.send: list[Message] = []
        self.delete: list[Delete] = []

    def put(self, before: ItemStateRow, after: ItemStateRow) -> None:
        self.moves[after.item_key] = (before, after)

    @property
    def room(self) -> int:
        return _MOST_ITEMS - len(self.moves)


class Rounds:
    """The tick's work over one partition at a time; keeps nothing between ticks but the `Backlog` it is given."""

    def __init__(self, *, config: Config, control_of: fence.ControlOf, router: Router) -> None:
        self._control_of = control_of
        self._router = router
        self._limits = {name: most_in_realtime(pool) for name, pool in config.pools.items()}
        self._bulk_limits = {name: most_in_bulk(pool) for name, pool in config.pools.items()}
        self._sizes = {(name, lane): shard_size(pool, lane) for name, pool in config.pools.items() for lane in Lane}
        self._deadlines_s = {name: pool.call_deadline for name, pool in config.pools.items()}

    def tick(self, backlog: Backlog, part: Partition) -> Decision:
        """At most about a thousand rows' worth of decisions."""
        changes, items, now_ms = _Changes(), part.table(ItemStateRow), part.now_ms
        backlog.rate.turn(now_ms)
        backlog.conduct.turn(now_ms)
        lanes = self._router.look(backlog, self._control_of, part)
        if backlog.next_due_ms <= now_ms:
            self._wake(backlog, items, changes, now_ms)
        if backlog.queues:
            self._serve_queues(backlog, part, changes)
        if backlog.next_expiry_ms <= now_ms:
            _expire(backlog, part, changes)
        # last, for a queue that was emptied above may have got rows since, which only the next tick finds in the index
        for before, after in changes.moves.values():
            backlog.moved(before, after)
        backlog.has_more = changes.room < SHARD_ITEMS
        rows = [after for _, after in changes.moves.values()]
        return Decision(put=[*rows, *lanes], send=changes.send, delete=changes.delete)

    # times

    def _wake(self, backlog: Backlog, items: Items, changes: _Changes, now_ms: int) -> None:
        for row in backlog.due(items, now_ms, _MOST_WOKEN):
            if row.item_key in changes.moves:
                continue
            if row.state is ItemState.DISPATCHED:
                self._send_again(row, items, changes, now_ms)
                continue
            waiters = fence.rank(row.waiters, self._control_of)
            if waiters:
                state = advance_item(row.state, ItemEvent.DUE)
                changes.put(row, replace(row, state=state, waiters=waiters, due_at_ms=None))
            else:
                changes.put(row, outcome.cancel(row, totals=row.totals, now_ms=now_ms))

    def _send_again(self, overdue: ItemStateRow, items: Items, changes: _Changes, now_ms: int) -> None:
        rows = shard_rows(items, overdue.shard_id or "")
        message, again = send_again(rows, call_deadline_s=self._deadline_s(*way_of(overdue)), now_ms=now_ms)
        changes.send.append(message)
        for before, after in zip(rows, again, strict=True):
            changes.put(before, after)
        times = again[0].overdue
        metrics.count("watchdog_resent")
        log.log(
            logging.ERROR if times >= ALARM_AT else logging.WARNING,
            "shard overdue, sent again",
            extra={
                "action": "shard_overdue",
                "shard_id": message.shard_id,
                "pool": message.pool,
                "times": times,
                "items": len(rows),
            },
        )

    def _deadline_s(self, pool: str, lane: Lane) -> float:
        if lane is Lane.BULK:
            return BULK_DEADLINE_S
        return self._deadlines_s.get(pool, _UNKNOWN_POOL_DEADLINE_S)

    # queues

    def _serve_queues(self, backlog: Backlog, part: Partition, changes: _Changes) -> None:
        running: dict[tuple[str, Lane], list[Queue]] = {}
        lanes: dict[str, Lane] = {}
        dissolved: list[tuple[str, str]] = []
        blocked = False
        for (pool, batch_id), served in backlog.queues.items():
            control = self._control_of(batch_id)
            if pool not in self._limits or (control and control.state is ControlState.CANCELLED):
                dissolved.append((pool, batch_id))
            elif control and control.state is ControlState.RUNNING:
                lane = lanes[batch_id] = self._router.lane(
                    control.pipeline_digest, batch_id, control.deadline_at_ms, part
                )
                way = (pool, self._router.lane_to(pool, lane))
                running.setdefault(way, []).append(queue_of(control, served))
            else:
                blocked = True
        for queue in dissolved:
            for row in backlog.take(part.table(ItemStateRow), queue, _MOST_SWEPT // len(dissolved) + 1):
                self._reseat(row, changes, part)
        for way, queues in running.items():
            self._dispatch(way, queues, lanes, backlog, part, changes)
        if blocked and backlog.next_walk_ms <= part.now_ms:
            self._walk_shared(backlog, part, changes)

    def _dispatch(
        self,
        way: tuple[str, Lane],
        queues: list[Queue],
        lanes: Mapping[str, Lane],
        backlog: Backlog,
        part: Partition,
        changes: _Changes,
    ) -> None:
        (pool, lane), now_ms = way, part.now_ms
        if lane is Lane.BULK:
            limit = self._bulk_limits[pool]
        else:
            limit = backlog.rate.most_outstanding(pool, self._limits[pool])
        room = min(limit - backlog.outstanding[way], changes.room)
        size = self._sizes[way]
        if room < worth_dispatching(limit, size):
            return
        candidates: list[Candidate] = []
        for queue, equals in in_order(queues):
            if room <= 0:
                break
            most = backlog.conduct.most(queue.batch_id, -(-room // equals))
            rows = backlog.take(part.table(ItemStateRow), (pool, queue.batch_id), most) if most else []
            backlog.conduct.took(queue.batch_id, len(rows))
            room -= len(rows)
            for row in rows:
                candidate = self._candidate(row, lanes[queue.batch_id], changes, part)
                if candidate is not None:
                    candidates.append(candidate)
        overdue_ms = overdue_at_ms(self._deadline_s(pool, lane), 0, now_ms)
        for shard in pack(candidates, most=size):
            message, rows = mint(shard, pool=pool, lane=lane, now_ms=now_ms, overdue_at_ms=overdue_ms)
            changes.send.append(message)
            for candidate, row in zip(shard, rows, strict=True):
                changes.put(candidate.row, row)
            log.info(
                "shard dispatched",
                extra={
                    "action": "shard_dispatched",
                    "shard_id": message.shard_id,
                    "job": message.job_id,
                    "pool": pool,
                    "lane": lane.value,
                    "items": len(rows),
                },
            )

    def _candidate(self, row: ItemStateRow, lane: Lane, changes: _Changes, part: Partition) -> Candidate | None:
        """The row as it may be dispatched now; one that may not be is put where it belongs."""
        waiters = fence.rank(row.waiters, self._control_of)
        if waiters and fence.may_start(waiters[0], self._control_of):
            tokens = input_tokens(row)
            placed = self._router.place(row.pipeline_digest, row.dataset_id, tokens + row.max_output_tokens, lane)
            if placed == row.pool:
                payer = fence.payer_of(waiters, row.payer, self._control_of)
                return Candidate(row=row, waiters=waiters, payer=payer, input_tokens=tokens)
        self._reseat(row, changes, part)
        return None

    def _reseat(self, row: ItemStateRow, changes: _Changes, part: Partition) -> None:
        """Puts a ready row into the queue of its first live waiter and present pool, or ends it."""
        waiters = fence.rank(row.waiters, self._control_of)
        if not waiters:
            changes.put(row, outcome.cancel(row, totals=row.totals, now_ms=part.now_ms))
            return
        control = self._control_of(waiters[0].batch_id)
        said = control or row
        lane = self._router.lane(said.pipeline_digest, waiters[0].batch_id, said.deadline_at_ms, part)
        tokens = input_tokens(row) + row.max_output_tokens
        placed = self._router.place(row.pipeline_digest, row.dataset_id, tokens, lane)
        if isinstance(placed, Failure):
            change = outcome.conclude(
                row,
                buried(placed),
                waiters=waiters,
                totals=row.totals,
                now_ms=part.now_ms,
                control_of=self._control_of,
            )
            changes.put(row, change.row)
            changes.send.extend(change.settled)
            metrics.count("items_settled", len(change.settled), outcome=ItemOutcome.DEAD_LETTER.value)
            return
        seated = replace(
            row,
            waiters=waiters,
            pool=placed,
            priority=control.priority if control else row.priority,
            deadline_at_ms=control.deadline_at_ms if control else row.deadline_at_ms,
        )
        changes.put(row, seated)

    def _walk_shared(self, backlog: Backlog, part: Partition, changes: _Changes) -> None:
        """Items that a held batch leads, while a running one waits for them too, move to the running one's queue."""
        rows = list(islice(part.table(ItemStateRow).index("shared", start=backlog.shared_from), _MOST_SWEPT))
        for row in rows:
            if row.item_key in changes.moves or fence.may_start(row.waiters[0], self._control_of):
                continue
            if any(fence.may_start(waiter, self._control_of) for waiter in row.waiters):
                self._reseat(row, changes, part)
        if len(rows) < _MOST_SWEPT:
            backlog.shared_from, backlog.next_walk_ms = b"", part.now_ms + _WALK_EVERY_MS
        else:
            backlog.shared_from = (shared_key(rows[-1]) or b"") + b"\0"


def _expire(backlog: Backlog, part: Partition, changes: _Changes) -> None:
    now_ms = part.now_ms
    gone = list(islice(part.table(ItemStateRow).index("ended", stop=time_key(max(0, now_ms - KEPT_MS))), _MOST_SWEPT))
    changes.delete.extend(Delete(row=ItemStateRow, key=row.item_key) for row in gone)
    if len(gone) < _MOST_SWEPT:
        backlog.next_expiry_ms = now_ms + _EXPIRY_EVERY_MS
    old = islice(
        part.table(LaneChoiceRow).index("lane_chosen", stop=time_key(max(0, now_ms - _LANES_KEPT_MS))), _MOST_SWEPT
    )
    changes.delete.extend(Delete(row=LaneChoiceRow, key=row.choice_id) for row in old)
