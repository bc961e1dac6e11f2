"""Calls of all partitions: lanes hand over what may start, and what ended comes back to its lane and its desk."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from nightmill.kernel.runtime.service import Stall, Unavailable, View
from nightmill.kernel.runtime.stalls import Waits
from nightmill.kernel.wire.messages import AttemptAnswered, BatchControlled, LeaseRequested
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.caller import Call, Caller, CallResult
from nightmill.provider_gateway.calls import STARTS_PER_STEP
from nightmill.provider_gateway.desk import Desk
from nightmill.provider_gateway.lanes import Lane
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.outbox import Landed
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.render import Rendered, Renderer
from nightmill.provider_gateway.undelivered import Undelivered
from nightmill.provider_gateway.watch import PoolWatch

log = logging.getLogger(__name__)


class Calling:
    """The poll thread's side of the `Caller`."""

    def __init__(self, caller: Caller, renderer: Renderer, undelivered: Undelivered) -> None:
        self._caller, self._renderer, self._undelivered = caller, renderer, undelivered
        self._watch = PoolWatch()
        self._waits = Waits()
        self._in_flight: dict[str, Lane] = {}  #: by attempt key, over all partitions

    def is_under_way(self, key: str) -> bool:
        """Whether this process is making the attempt's call, or about to."""
        return key in self._in_flight

    def is_idle(self) -> bool:
        return not self._in_flight

    def stalls(self) -> list[Stall]:
        return [*self._watch.stalls(), *self._waits.stalls()]

    def collect(self, desks: Mapping[int, Desk], now_ms: int) -> None:
        """Take in the calls that ended, whichever partition they are of."""
        for result in self._caller.completed():
            lane = self._forget(result.call)
            if lane is not None:
                lane.finished(result)
            desk = desks.get(result.call.order.partition)
            if desk is not None:
                self._call_again(desk, result)
            for answered in self._learned(result, now_ms):
                landed = Landed(partition=result.call.order.partition, answered=answered)
                self._undelivered.land(landed, stray_since_ms=now_ms if desk is None else None)
                if desk is not None:
                    desk.ready.append(answered)

    def work(
        self, desk: Desk, others: Sequence[Desk], controls: View[BatchControlled], now_ms: int
    ) -> tuple[Sequence[Call], Sequence[LeaseRequested]]:
        """Lane by lane: the calls that may start, for `start`, and asks for what the lanes lack.

        The lanes of `others`, the rest of this process, hear of slots that are given back.
        """
        calls: list[Call] = []
        asks: list[LeaseRequested] = []
        looked_at = 0
        desk.limited = desk.short = False
        self._waits.over(desk.number)
        render = partial(self._render, desk.number, now_ms)
        for pool, lane in desk.lanes.items():
            health = self._watch.health(pool)
            slots = lane.slots(health, now_ms)
            if lane.must_take_back(slots, now_ms):
                self._take_back(desk, lane)
            taken = lane.take(render, controls, slots=slots, limit=STARTS_PER_STEP - looked_at, now_ms=now_ms)
            calls.extend(taken.calls)
            looked_at += taken.looked_at
            desk.ready.extend(taken.ended)
            desk.limited = desk.limited or taken.limited
            desk.short = desk.short or lane.is_short(slots)
            self._in_flight.update({order.key: lane for call in taken.calls for order in call.orders})
            # before the count: what has a slot from then on fits the slots that the governor is told of
            self._caller.permit(lane.name, lane.permit(slots))
            paused = now_ms < health.paused_until_ms
            in_flight, unsent = self._caller.in_flight(lane.name), partial(self._caller.unsent, lane.name)
            held = lane.holder.slots
            ask = lane.ask(now_ms, slots_in_use=in_flight, unsent=unsent, paused=paused)
            if ask is not None:
                asks.append(ask)
                if ask.wants_slots < held:
                    _tell_of_slots(pool, others)
        return calls, asks

    def start(self, calls: Sequence[Call]) -> None:
        if calls:
            self._caller.start(calls)

    def close_desk(self, desk: Desk) -> None:
        """The partition went: what was not begun is surely not sent, and is left to whoever has it next."""
        self._waits.over(desk.number)
        for lane in desk.lanes.values():
            for call in self._caller.withdraw(lane.name):
                self._forget(call)

    def close(self) -> None:
        self._caller.close()

    def _render(self, partition: int, now_ms: int, orders: Sequence[Order], access: PoolAccess, lane: str) -> Rendered:
        try:
            return self._renderer.rendered(orders, access, lane)
        except Unavailable as error:
            self._waits.met(partition, "documents", error, now_ms)
            raise

    def _take_back(self, desk: Desk, lane: Lane) -> None:
        """A lane that may not start anything keeps nothing waiting at the HTTP side: lease and cancel stay in force."""
        calls = self._caller.withdraw(lane.name)
        for call in calls:
            self._forget(call)
        lane.take_back(calls, desk.book.has_open)

    def _forget(self, call: Call) -> Lane | None:
        """The call is not under way any more; returns its lane, if it was."""
        lanes = [self._in_flight.pop(order.key, None) for order in call.orders]
        return lanes[0]

    def _call_again(self, desk: Desk, result: CallResult) -> None:
        """Orders of a call that was refused for another's sake: before all others, each piece by itself."""
        lane = desk.lanes.get(result.call.order.shard.pool)
        if lane is None or not result.again:
            return
        for piece in reversed(result.again):
            lane.add_first([order for order in piece if desk.book.has_open(order)])
        desk.limited = True
        extra = {"action": "call_divided", "pool": lane.access.name, "inputs": len(result.call.orders)}
        log.info("call refused for an input, called again in pieces", extra=extra)

    def _learned(self, result: CallResult, now_ms: int) -> Sequence[AttemptAnswered]:
        """A call's answers; its failure, which counts once, in the light of the pool's history."""
        if not result.answers:
            return ()
        first = self._watch.learn(result.answers[0], result.served_model, now_ms)
        if len(result.answers) == 1 or first is result.answers[0]:
            return (first, *result.answers[1:])
        return (first, *(replace(each, failure=first.failure) for each in result.answers[1:]))


def _tell_of_slots(pool: str, desks: Sequence[Desk]) -> None:
    for desk in desks:
        if (lane := desk.lanes.get(pool)) is not None:
            lane.holder.slots_freed()
