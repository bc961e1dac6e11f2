"""The provider gateway: makes each minted attempt's call at most once, and tells how it ended.

A shard's row is committed before its first call. From then on its calls start as leases and slots allow, without
another commit; each has a durable mark before it and its answer in the outbox after it. Answers are published with the
row that counts them, and leave the outbox when that is committed.

What a restart finds: a running shard of this instance whose attempt has an answer in the outbox (published now), a mark
only (UNKNOWN: it may have been made) or neither (surely not sent: sent under the same attempt). A running shard that
another instance ran has its marks there; its attempts become UNKNOWN when no call of the other can be alive any more.
Answers whose shard is not here any more are published flagged late.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nightmill.kernel.domain.lifecycle import Lane, ShardState
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import NOTHING, Decision, Delete, Partition, Service, Stall, View, Wait
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import (
    BatchControlled,
    LaneChoiceRow,
    LeaseGranted,
    ProviderBatchRow,
    ShardDispatched,
    ShardStateRow,
    WebhookReceived,
)
from nightmill.provider_gateway.book import Book
from nightmill.provider_gateway.bulk.errands import Runner
from nightmill.provider_gateway.bulk.office import Office, RowCommitted
from nightmill.provider_gateway.bulk.steps import Timing
from nightmill.provider_gateway.caller import Caller
from nightmill.provider_gateway.calling import Calling
from nightmill.provider_gateway.delivery import Delivery
from nightmill.provider_gateway.desk import Desk
from nightmill.provider_gateway.effects import INDEXES, Accepted, Published
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import Order, attempt_key, refused, unknown
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.recovery import Known, what_is_known
from nightmill.provider_gateway.render import Renderer
from nightmill.provider_gateway.undelivered import Undelivered

log = logging.getLogger(__name__)

#: DONE rows outlive the retention of shard-dispatched (168 h), so that a repeat is recognised
_KEEP_DONE_MS = 8 * 86_400_000
_SWEEP_EVERY_MS = 60_000
_SWEEP_ROWS = 500
#: longest lease and its guard: no call of another owner starts later than this after it lost the partition
_LEASE_END_MS = 30_000


class ProviderGateway(Service):
    """Realtime calls to providers under leases, and submissions to their Batch APIs."""

    name = "provider_gateway"
    indexes = INDEXES

    def __init__(
        self,
        *,
        instance: str,
        pools: Mapping[str, PoolAccess],
        blobs: BlobStore,
        outbox: Outbox,
        caller: Caller,
        runner: Runner,
        bulk_timing: Timing | None = None,
        partitions: int = 1,
    ) -> None:
        """`partitions`: how many the installation has; processes share some limits of a pool by theirs."""
        self._instance, self._pools = instance, pools
        self._controls: View[BatchControlled]
        self._desks: dict[int, Desk] = {}
        self._refused: dict[str, str] = {}  #: pools that were asked for and can not be used, and why
        self._undelivered = Undelivered(outbox)
        self._uncommitted = False  #: the open transaction has shards to start, or answers that bring new ones
        self._calling = Calling(caller, Renderer(blobs), self._undelivered)
        self._delivery = Delivery(self._undelivered, instance=instance, put_blob=blobs.put)
        self._office = Office(runner, instance=instance, partitions=partitions, pools=pools, timing=bulk_timing)

    def attach_views(self, views: Mapping[type[Any], View[Any]]) -> None:
        self._controls = views[BatchControlled]
        self._office.attach(views[ProviderBatchRow], views[WebhookReceived], views[LaneChoiceRow])

    # -- partitions

    def on_open(self, part: Partition) -> None:
        desk = Desk(number=part.number, opened_at_ms=part.now_ms, book=Book(self._instance))
        self._desks[part.number] = desk
        found: Counter[Known] = Counter()
        bulk: list[Order] = []
        for row in list(part.table(ShardStateRow).index("open")):
            for order in self._enter(desk, row):
                if order.shard.lane is Lane.BULK:
                    bulk.append(order)
                else:
                    found[self._take_up(desk, row, order)] += 1
        self._office.open(desk, part, bulk)
        self._forget_closed(desk, part)
        if found:
            counts = {known.value: number for known, number in found.items()}
            log.info("shards taken up", extra={"action": "shards_taken_up", "partition": part.number, **counts})

    def on_close(self, number: int) -> None:
        self._uncommitted = False
        desk = self._desks.pop(number, None)
        if desk is None:
            return
        self._calling.close_desk(desk)
        self._office.close_partition(number)
        self._undelivered.partition_closed(frozenset(self._desks))

    # -- events

    def on_shard_dispatched(self, message: ShardDispatched, part: Partition) -> Decision | Wait:
        if part.table(ShardStateRow).get(message.shard_id) is not None:
            metrics.count("duplicates_suppressed", topic="shard-dispatched")
            return NOTHING
        if not message.attempts:
            return NOTHING
        for batch_id in {attempt.batch_id for attempt in message.attempts}:
            if self._controls.get(batch_id) is None:
                return Wait(f"batch-controlled of {batch_id} is not in view yet")
        row = ShardStateRow(
            shard_id=message.shard_id,
            state=ShardState.ACCEPTED,
            shard=message,
            answered=(),
            owner=self._instance,
            accepted_at_ms=part.now_ms,
        )
        self._uncommitted = True
        return Decision(put=(row,), effects=(Accepted(row=row, partition=part.number),))

    def on_lease_granted(self, message: LeaseGranted, part: Partition) -> Decision:
        lane = self._desks[part.number].lanes.get(message.pool)
        if lane is not None and lane.name == message.holder:
            lane.holder.on_granted(message, part.now_ms)
        return NOTHING

    # -- ticks

    def on_tick(self, part: Partition) -> Decision:
        desk, now_ms = self._desks[part.number], part.now_ms
        self._calling.collect(self._desks, now_ms)
        self._give_up_elsewhere(desk, now_ms)
        others = [each for number, each in self._desks.items() if number != part.number]
        calls, asks = self._calling.work(desk, others, self._controls, now_ms)
        bulk = self._office.tick(desk, part, self._controls)
        send = self._delivery.due(desk, part)
        ended = self._office.finish(desk, now_ms)
        self._calling.start(calls)
        keys = tuple(attempt_key(answered) for answered in send)
        self._uncommitted = self._uncommitted or bool(keys)
        put, deletes = (*bulk.put, *ended.put), (*self._sweep(desk, part), *bulk.delete)
        if not (send or asks or deletes or put):
            return NOTHING
        effects = (*([Published(keys=keys)] if keys else ()), *bulk.effects, *ended.effects)
        return Decision(send=send, put=put, send_now=asks, delete=deletes, effects=effects)

    def on_flush(self, part: Partition) -> Decision:
        rows = tuple(self._desks[part.number].book.rows(part.now_ms))
        return Decision(put=rows) if rows else NOTHING

    def start(self, effects: Sequence[object]) -> None:
        self._uncommitted = False
        published: list[str] = []
        for effect in effects:
            match effect:
                case Accepted(row=row, partition=number) if number in self._desks:
                    desk = self._desks[number]
                    for order in self._enter(desk, row):
                        self._queue(desk, order)
                        desk.limited = desk.limited or order.shard.lane is Lane.REALTIME
                case Published(keys=keys):
                    published.extend(keys)
                case RowCommitted():
                    self._office.committed(effect)
                case _:
                    continue
        self._undelivered.published(published, frozenset(self._desks))

    def stalls(self) -> Sequence[Stall]:
        refused = [Stall(subject=f"pool {pool}", pool=pool, reason=why) for pool, why in self._refused.items()]
        outbox = [Stall(subject="outbox", reason=full)] if (full := self._undelivered.problem) is not None else []
        return [*self._calling.stalls(), *self._office.stalls(), *refused, *outbox]

    def busy(self) -> bool:
        if self._uncommitted and any(desk.short for desk in self._desks.values()):
            return False  # slots would run empty: commit as soon as the input is idle, not when it is time
        under_way = self._office.busy() or not self._calling.is_idle()
        return under_way or any(desk.ready or desk.limited for desk in self._desks.values())

    def close(self) -> None:
        self._calling.close()
        self._office.close()
        self._undelivered.close()

    # -- taking shards up

    def _enter(self, desk: Desk, row: ShardStateRow) -> Iterator[Order]:
        indexes = desk.book.enter(row)
        if row.shard is None:
            return
        access, control = self._pools.get(row.shard.pool), self._controls.get(row.shard.attempts[0].batch_id)
        for index in indexes:
            yield Order(
                shard=row.shard,
                index=index,
                partition=desk.number,
                model="" if access is None else access.pool.model,
                periods=() if access is None else access.periods,
                price_version="" if access is None else access.price_version,
                planned=0 if control is None else control.planned or 0,
            )

    def _take_up(self, desk: Desk, row: ShardStateRow, order: Order) -> Known:
        """An open attempt of a shard that was running before: what is known of its call decides."""
        key = order.key
        landed = self._undelivered.answer(key)
        known = what_is_known(
            landed=landed is not None,
            under_way=self._calling.is_under_way(key),
            marked=self._undelivered.was_marked(key),
            ran_here=row.owner == self._instance,
        )
        match known:
            case Known.LANDED if landed is not None:
                desk.ready.append(landed)
                self._undelivered.claim(key)
            case Known.MARKED:
                desk.ready.append(unknown(order, Signal.CRASHED, now_ms=desk.opened_at_ms))
            case Known.ELSEWHERE:
                access = self._pools.get(order.shard.pool)
                deadline_ms = 0 if access is None else int(access.pool.call_deadline * 1000)
                desk.elsewhere.append((desk.opened_at_ms + _LEASE_END_MS + deadline_ms, order))
            case Known.NOT_SENT:
                self._queue(desk, order)
            case Known.UNDER_WAY if order.shard.pool in self._pools:
                # it may still come back unsent, and then it is the lane that takes it up
                desk.lane(self._pools[order.shard.pool], self._instance)
        return known

    def _forget_closed(self, desk: Desk, part: Partition) -> None:
        """Marks that no open attempt asks for belong to attempts that ended; answers of such shards are strays."""
        open_keys = {attempt_key(answered) for answered in desk.ready}
        marked, landed = self._undelivered.of_partition(desk.number)
        closed = [key for key in marked if key not in open_keys]
        # this instance published those answers, and was stopped before it forgot them
        closed += [
            each.key for each in landed if each.key not in open_keys and self._delivery.ended_here(each.answered, part)
        ]
        self._undelivered.forget(closed)

    def _queue(self, desk: Desk, order: Order) -> None:
        pool = order.shard.pool
        access = self._pools.get(pool)
        reason = f"pool {pool} is not in pools.yaml" if access is None else access.unusable
        is_bulk = order.shard.lane is Lane.BULK
        if reason is None and is_bulk and not self._office.takes(pool):
            reason = f"pool {pool} has no bulk lane; add bulk to it in pools.yaml"
        if access is None or reason is not None:
            self._refused[pool] = f"pool {pool} can not be used: {reason}"
            found = failure(Signal.POOL_UNUSABLE, detail=reason)
            desk.ready.append(refused(order, found, now_ms=order.shard.dispatched_at_ms))
            return
        if is_bulk:
            self._office.add(desk, order, order.shard.dispatched_at_ms)
        else:
            desk.lane(access, self._instance).add(order)

    # -- housekeeping

    def _give_up_elsewhere(self, desk: Desk, now_ms: int) -> None:
        due = [order for due_ms, order in desk.elsewhere if due_ms <= now_ms]
        if due:
            desk.elsewhere = [entry for entry in desk.elsewhere if entry[0] > now_ms]
            given_up = (order for order in due if desk.book.is_open(order.shard.shard_id, order.attempt))
            desk.ready.extend(unknown(order, Signal.MOVED, now_ms=now_ms) for order in given_up)

    def _sweep(self, desk: Desk, part: Partition) -> list[Delete]:
        if part.now_ms - desk.swept_at_ms < _SWEEP_EVERY_MS:
            return []
        desk.swept_at_ms = part.now_ms
        stop = max(0, part.now_ms - _KEEP_DONE_MS).to_bytes(8, "big")
        old = islice(part.table(ShardStateRow).index("ended", stop=stop), _SWEEP_ROWS)
        return [Delete(row=ShardStateRow, key=row.shard_id) for row in old]
