"""The `Caller` of the simulation: the durable steps of the HTTP caller in their order, each an event of its own.

mark durable → take a slot, with a look at the clock → send → answer → free the slot → answer durable → `completed`.
Between any two of them the scheduler may do anything else: step loops, let time pass, or kill the process. Who gets
a slot, and what counts as unsent, is decided by the product's `Slots`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import aiohttp

from nightmill.kernel.runtime.service import Unavailable
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.calls import marked_ahead
from nightmill.provider_gateway.exchange import Reply
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.orders import concluded, is_long, offloaded
from nightmill.provider_gateway.outbox import Landed, Outbox
from nightmill.provider_gateway.slots import Slots, _Lane
from simulation.provider import Exchange, Provider

_SIGNALS: dict[type[BaseException], Signal] = {
    ConnectionRefusedError: Signal.NOT_CONNECTED,
    aiohttp.ServerDisconnectedError: Signal.CONNECTION_LOST,
    TimeoutError: Signal.DEADLINE_PASSED,
}

_SLOW_WRITE_MS = (500, 5_000)
_SLOW_MS = 500  #: what a busy event loop or a descheduled process may take; more is `pause_in_call`


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
        happens: Callable[[str], bool],
    ) -> None:
        self._outbox, self._provider, self._random = outbox, provider, random
        self._host, self._clock_ms, self._put_blob, self._happens = host, clock_ms, put_blob, happens
        self._slots = Slots()
        self._begun: list[Call] = []
        self._ended: list[CallResult] = []
        self._stored: tuple[list[Call], list[CallResult]] | None = None
        self._stored_at_ms = 0
        self._leaving: list[tuple[int, Call]] = []  #: with the provider's time at which each leaves
        self._flights: list[Exchange] = []
        self._long: list[CallResult] = []
        self._completed: list[CallResult] = []

    # -- the port

    def permit(self, lane: str, permit: Permit) -> None:
        self._slots.permit(lane, permit)

    def start(self, calls: Sequence[Call]) -> None:
        self._slots.add(calls)

    def withdraw(self, lane: str) -> list[Call]:
        return self._slots.withdraw(lane)

    def in_flight(self, lane: str) -> int:
        return self._slots.in_flight(lane)

    def unsent(self, lane: str) -> frozenset[str]:
        return self._slots.unsent(lane)

    def completed(self) -> list[CallResult]:
        done, self._completed = self._completed, []
        for result in done:
            self._slots.heard(result.call, result.failure)
        return done

    def close(self) -> None:
        self.hang_up()

    # -- the other side

    @property
    def idle(self) -> bool:
        """Nothing is in flight and nothing waits to be written."""
        return not (self._leaving or self._flights or self._begun or self._ended or self._stored or self._long)

    @property
    def permitted_until_ms(self) -> int:
        """How long calls that are being marked may still leave; 0 without any."""
        waiting = self._begun if self._stored is None else (*self._begun, *self._stored[0])
        return max((self._slots._lanes[call.lane].until_ms for call in waiting), default=0)

    def hang_up(self) -> None:
        """The process is gone: its connections close, its memory is lost."""
        for exchange in self._flights:
            self._provider.close(exchange)
        self._flights = []

    def due(self) -> list[Callable[[], None]]:
        """The steps that can be made now."""
        steps: list[Callable[[], None]] = []
        if any(self._may_mark(lane) for lane in self._slots._lanes.values()):
            steps.append(self._fill)
        if any(self._may_send(lane) for lane in self._slots._lanes.values()):
            steps.append(self._let_go)
        if self._stored is not None:
            if self._stored_at_ms <= self._provider.now_ms:
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

    def _may_mark(self, lane: _Lane) -> bool:
        under_way = lane.in_flight + lane.marking + len(lane.marked)
        most = lane.slots + marked_ahead(lane.slots)
        return bool(lane.ready) and under_way < most and lane.is_open(self._clock_ms())

    def _may_send(self, lane: _Lane) -> bool:
        return bool(lane.marked) and lane.in_flight < lane.slots and lane.is_open(self._clock_ms())

    def _fill(self) -> None:
        """One call at a time, so that others may go between two of those that `Slots.take` takes out at once."""
        lane = self._random.choice([lane for lane in self._slots._lanes.values() if self._may_mark(lane)])
        lane.marking += 1
        self._begun.append(lane.ready.popleft())

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
        self._stored_at_ms = self._provider.now_ms
        if self._happens("slow_disk"):
            self._stored_at_ms += self._random.randint(*_SLOW_WRITE_MS)

    def _go_on(self) -> None:
        assert self._stored is not None
        (begun, ended), self._stored = self._stored, None
        self._slots.marked(begun)
        for result in ended:
            (self._long if is_long(result.answered) else self._completed).append(result)
        self._let_go()
        self._leave()

    def _let_go(self) -> None:
        for call in self._slots.let_go(self._clock_ms()):
            late_ms = self._random.randint(1, _SLOW_MS) if self._happens("slow_send") else 0
            self._leaving.append((self._provider.now_ms + late_ms, call))

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
        response = exchange.response
        took_ms = self._provider.now_ms - exchange.sent_at_ms
        late = took_ms >= call.deadline_s * 1000
        error = exchange.error or (TimeoutError() if response is None or late else None)
        if error is not None:
            response, reply = None, Reply(failure=failure(_SIGNALS[type(error)]))
        else:
            assert response is not None
            reply = call.adapter.reply(response, now_ms=now_ms)
        answered = concluded(
            call.order,
            reply,
            started_at_ms=now_ms - took_ms,
            ended_at_ms=now_ms,
            http_status=None if response is None else response.status,
            provider_request_id=None,
        )
        result = CallResult(call=call, answers=(answered,), served_model=reply.served_model)
        self._slots.free(call, result.failure)
        self._ended.append(result)
        self._let_go()

    def _offload(self) -> None:
        result = self._long[0]
        try:
            answered = offloaded(result.answered, self._put_blob)
        except Unavailable:
            return
        self._long.pop(0)
        self._completed.append(replace(result, answers=(answered,)))
