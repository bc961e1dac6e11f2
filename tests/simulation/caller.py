"""The `Caller` of the simulation: the durable steps of the HTTP caller in their order, each an event of its own.

mark durable → take a slot → look at the clock → send → answer → free the slot → answer durable → `completed`. Between
any two of them the scheduler may do anything else: step loops, let time pass, or kill the process.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import aiohttp

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.calls import marked_ahead
from nightmill.provider_gateway.exchange import Reply
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import concluded, is_long, offloaded
from nightmill.provider_gateway.outbox import Landed, Outbox
from simulation.provider import Exchange, Provider

_CLOSES_LANE = frozenset({FailureClass.CAPACITY, FailureClass.ACCOUNT})
_SIGNALS: dict[type[BaseException], Signal] = {
    ConnectionRefusedError: Signal.NOT_CONNECTED,
    aiohttp.ServerDisconnectedError: Signal.CONNECTION_LOST,
    TimeoutError: Signal.DEADLINE_PASSED,
}


_SLOW_MS = 500  #: what a busy event loop or a descheduled process may take; more is `pause_in_call`


@dataclass(slots=True)
class _Lane:
    slots: int = 0
    until_ms: int = 0
    in_flight: int = 0
    marking: int = 0
    ready: deque[Call] = field(default_factory=deque)
    marked: deque[Call] = field(default_factory=deque)


class SimulatedCaller:
    """Satisfies `Caller`. `turn` makes one of the steps that are due."""

    def __init__(
        self,
        outbox: Outbox,
        provider: Provider,
        random: Random,
        *,
        host: str,
        clock_ms: Callable[[], int],
        put_blob: Callable[[bytes], str],
        is_slow: Callable[[], bool],
    ) -> None:
        self._outbox, self._provider, self._random = outbox, provider, random
        self._host, self._clock_ms, self._put_blob, self._is_slow = host, clock_ms, put_blob, is_slow
        self._lanes: dict[str, _Lane] = {}
        self._begun: list[Call] = []
        self._ended: list[CallResult] = []
        self._stored: tuple[list[Call], list[CallResult]] | None = None
        self._leaving: list[tuple[int, Call]] = []  #: with the provider's time at which each leaves
        self._flights: list[Exchange] = []
        self._long: list[CallResult] = []
        self._completed: list[CallResult] = []

    # -- the port

    def permit(self, lane: str, permit: Permit) -> None:
        known = self._lane(lane)
        known.slots, known.until_ms = permit.slots, permit.until_ms

    def start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._lane(call.lane).ready.append(call)

    def withdraw(self, lane: str) -> list[Call]:
        known = self._lane(lane)
        taken = [*known.marked, *known.ready]
        known.marked.clear()
        known.ready.clear()
        return taken

    def in_flight(self, lane: str) -> int:
        return self._lane(lane).in_flight

    def unsent(self, lane: str) -> frozenset[str]:
        stored, known = [] if self._stored is None else self._stored[0], self._lane(lane)
        waiting = (*known.ready, *self._begun, *stored, *known.marked)
        return frozenset(call.order.key for call in waiting if call.lane == lane)

    def completed(self) -> list[CallResult]:
        done, self._completed = self._completed, []
        return done

    def close(self) -> None:
        self.hang_up()

    # -- the other side

    @property
    def idle(self) -> bool:
        """Nothing is in flight and nothing waits to be written."""
        return not (self._leaving or self._flights or self._begun or self._ended or self._stored or self._long)

    def hang_up(self) -> None:
        """The process is gone: its connections close, its memory is lost."""
        for exchange in self._flights:
            self._provider.close(exchange)
        self._flights = []

    def due(self) -> list[Callable[[], None]]:
        """The steps that can be made now."""
        steps: list[Callable[[], None]] = []
        if any(self._may_fill(lane) for lane in self._lanes.values()):
            steps.append(self._fill)
        if any(self._may_let_go(lane) for lane in self._lanes.values()):
            steps.append(self._wake)
        if self._stored is not None:
            steps.append(self._go_on)
        elif self._begun or self._ended:
            steps.append(self._write)
        if any(at_ms <= self._provider.now_ms for at_ms, _ in self._leaving):
            steps.append(self._leave)
        if any(self._is_over(exchange) for exchange in self._flights):
            steps.append(self._arrive)
        if self._long:
            steps.append(self._offload)
        return steps

    def _lane(self, name: str) -> _Lane:
        return self._lanes.setdefault(name, _Lane())

    def _may_fill(self, lane: _Lane) -> bool:
        most = lane.slots + marked_ahead(lane.slots)
        under_way = lane.in_flight + lane.marking + len(lane.marked)
        return bool(lane.ready) and under_way < most and self._clock_ms() < lane.until_ms

    def _may_let_go(self, lane: _Lane) -> bool:
        return bool(lane.marked) and lane.in_flight < lane.slots and self._clock_ms() < lane.until_ms

    def _fill(self) -> None:
        lane = self._random.choice([lane for lane in self._lanes.values() if self._may_fill(lane)])
        lane.marking += 1
        self._begun.append(lane.ready.popleft())

    def _wake(self) -> None:
        """A permit came for calls that are marked."""
        self._let_go(self._random.choice([lane for lane in self._lanes.values() if self._may_let_go(lane)]))

    def _write(self) -> None:
        begun, self._begun = self._begun, []
        ended, self._ended = self._ended, []
        marks = [(call.order.key, call.order.partition) for call in begun]
        landed = [Landed(partition=r.call.order.partition, answered=r.answered) for r in ended]
        try:
            self._outbox.write(marks, landed)
        except Unavailable:
            self._begun[:0], self._ended[:0] = begun, ended
            return
        for result in (each for each in ended if each.answered.usage is not None):
            self._provider.landed[result.call.order.key] = self._host
        self._stored = (begun, ended)

    def _go_on(self) -> None:
        assert self._stored is not None
        (begun, ended), self._stored = self._stored, None
        for call in begun:
            lane = self._lane(call.lane)
            lane.marking -= 1
            lane.marked.append(call)
            self._let_go(lane)
        for result in ended:
            (self._long if is_long(result.answered) else self._completed).append(result)
        self._leave()

    def _let_go(self, lane: _Lane) -> None:
        while self._may_let_go(lane):
            lane.in_flight += 1
            late_ms = self._random.randint(1, _SLOW_MS) if self._is_slow() else 0
            self._leaving.append((self._provider.now_ms + late_ms, lane.marked.popleft()))

    def _leave(self) -> None:
        now_ms = self._provider.now_ms
        self._flights.extend(self._provider.send(call) for at_ms, call in self._leaving if at_ms <= now_ms)
        self._leaving = [(at_ms, call) for at_ms, call in self._leaving if at_ms > now_ms]

    def _is_over(self, exchange: Exchange) -> bool:
        return self._provider.now_ms >= exchange.ready_at_ms

    def _arrive(self) -> None:
        exchange = self._random.choice([each for each in self._flights if self._is_over(each)])
        self._flights.remove(exchange)
        call, now_ms = exchange.call, self._clock_ms()
        response, lane = exchange.response, self._lane(call.lane)
        lane.in_flight -= 1
        took_ms = self._provider.now_ms - exchange.sent_at_ms
        late = took_ms >= call.deadline_s * 1000
        error = exchange.error or (TimeoutError() if response is None or late else None)
        if error is not None:
            response, reply = None, Reply(failure=failure(_SIGNALS[type(error)]))
        else:
            assert response is not None
            reply = call.adapter.reply(response, now_ms=now_ms)
        if reply.failure is not None and reply.failure.failure_class in _CLOSES_LANE:
            lane.until_ms = 0
        self._let_go(lane)
        answered = concluded(
            call.order,
            reply,
            started_at_ms=now_ms - took_ms,
            ended_at_ms=now_ms,
            http_status=None if response is None else response.status,
            provider_request_id=None,
        )
        self._ended.append(CallResult(call=call, answers=(answered,), served_model=reply.served_model))

    def _offload(self) -> None:
        result = self._long[0]
        try:
            answered = offloaded(result.answered, self._put_blob)
        except Unavailable:
            return
        self._long.pop(0)
        self._completed.append(replace(result, answers=(answered,)))
