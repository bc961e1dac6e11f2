"""One pool in one partition: its queue of orders, its lease, and the calls it has handed over."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from nightmill.kernel.runtime.service import Unavailable, View
from nightmill.kernel.wire.messages import AttemptAnswered, BatchControlled, LeaseAmounts, LeaseRequested
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.calls import Amounts, Move, ahead, called_off, finish_rate, next_move, room
from nightmill.provider_gateway.failures import never_left
from nightmill.provider_gateway.groups import calls_for, together
from nightmill.provider_gateway.health import PoolHealth, slots_allowed
from nightmill.provider_gateway.leases import NO_AMOUNTS, LeaseHolder, Reservation, Wanted
from nightmill.provider_gateway.orders import Order, not_sent, refused
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.render import Rendered
from nightmill.provider_gateway.vectors import Vector

_RATE_EVERY_MS = 200
_SWEEP_EVERY_MS = 1_000

Render = Callable[[Sequence[Order], PoolAccess, str], Rendered]


@dataclass(slots=True)
class Taken:
    """What one look at a queue brought: calls to start, and attempts that end without one."""

    calls: list[Call]
    ended: list[AttemptAnswered]
    looked_at: int = 0  #: orders
    limited: bool = False  #: there is more that could start at once


class Lane:
    """Orders of one pool and partition, first come first served."""

    def __init__(self, access: PoolAccess, holder: LeaseHolder) -> None:
        self.access, self.holder, self.name = access, holder, holder.holder
        self._queue: deque[Order] = deque()
        self._input_tokens = self._output_tokens = 0  #: of the queue
        self._handed_over: dict[str, Reservation] = {}  #: by attempt key
        self._until_ms = 0  #: no reservation so far lets a call start later
        self._finished, self._rate_per_s, self._rated_at_ms = 0, 0.0, 0
        self._swept_at_ms = 0

    @property
    def handed_over(self) -> int:
        """Calls at the HTTP side, begun or not."""
        return len(self._handed_over)

    def add(self, order: Order) -> None:
        self._queue.append(order)
        self._weigh(order, 1)

    def add_first(self, orders: Sequence[Order]) -> None:
        """These go before all others."""
        self._queue.extendleft(reversed(orders))
        for order in orders:
            self._weigh(order, 1)

    def slots(self, health: PoolHealth, now_ms: int) -> int:
        """How many calls may be in flight now."""
        return slots_allowed(health, self.holder.slots, now_ms=now_ms) if self.holder.is_alive(now_ms) else 0

    def is_short(self, slots: int) -> bool:
        """Whether the slots may run out of calls before the next commit brings some, if that takes its time."""
        return self._waiting_calls() + self.handed_over < slots + ahead(slots=slots, finished_per_s=self._rate_per_s)

    def permit(self, slots: int) -> Permit:
        """What the HTTP side may do after the last `take`."""
        return Permit(slots=slots, until_ms=self._until_ms)

    def must_take_back(self, slots: int, now_ms: int) -> bool:
        """What is handed over and not begun may not start now, or not under the reservation it has.

        The caller may hold calls that this lane knows nothing of: they came back to it, unsent, after their partition
        was closed, and it was opened here again.
        """
        return slots == 0 or now_ms >= self._until_ms

    def take_back(self, calls: Sequence[Call], is_open: Callable[[Order], bool]) -> None:
        """Calls that were handed over and not begun: what is open is first again, their reservations are free."""
        for call in reversed(calls):
            reservation = self._handed_over.pop(call.order.key, None)
            if reservation is not None:  # None: reserved by a lease that ended with its partition
                self.holder.settle(reservation, NO_AMOUNTS)
            self.add_first([order for order in call.orders if is_open(order)])

    def take(self, render: Render, controls: View[BatchControlled], *, slots: int, limit: int, now_ms: int) -> Taken:
        """Take from the queue what may start now, at most `limit`, reserving its lease."""
        taken = Taken([], [])
        self._sweep(controls, taken, now_ms)
        free = room(slots=slots, handed_over=self.handed_over, finished_per_s=self._rate_per_s)
        lease = _amounts(self.holder.available(now_ms))
        while self._queue and free > len(taken.calls):
            if taken.looked_at >= limit:
                taken.limited = True
                break
            order = self._queue[0]
            move = next_move(order.attempt, controls.get(order.attempt.batch_id), lease)
            if move is Move.WAIT:
                break
            if move is Move.CALL_OFF:
                taken.ended.append(not_sent(order, now_ms=now_ms))
                self._pop(1, taken)
                continue
            try:
                rendered = render(self._next_call(controls, lease), self.access, self.name)
            except Unavailable:
                break
            self._pop(rendered.looked_at, taken)
            taken.ended.extend(refused(each, why, now_ms=now_ms) for each, why in rendered.refused)
            if rendered.call is not None:
                lease = lease.less([each.attempt for each in rendered.call.orders])
                self._reserve(rendered.call, now_ms)
                taken.calls.append(rendered.call)
        return taken

    def finished(self, result: CallResult) -> None:
        """A handed-over call came back: its slot and its unused reservation are free."""
        reservation = self._handed_over.pop(result.call.order.key, None)
        if reservation is not None:
            self._finished += 1
            self.holder.settle(reservation, _used(result.answers))

    def ask(
        self, now_ms: int, *, slots_in_use: int, unsent: Callable[[], Collection[str]], paused: bool
    ) -> LeaseRequested | None:
        """An ask for the lease, when one is due. A paused pool wants nothing.

        The holder counts what was handed over as in flight; the governor is told what really is, `slots_in_use`.
        `unsent` tells the attempt keys of what did not leave yet.
        """
        elapsed_ms = now_ms - self._rated_at_ms
        if elapsed_ms >= _RATE_EVERY_MS:
            self._rate_per_s = finish_rate(self._rate_per_s, self._finished, elapsed_ms)
            self._finished, self._rated_at_ms = 0, now_ms

        def waiting() -> Vector:
            held = [self._handed_over[key] for key in unsent() if key in self._handed_over]
            return len(held), sum(each.input_tokens for each in held), sum(each.output_tokens for each in held)

        wanted = Wanted() if paused else self._wanted()
        return self.holder.ask(now_ms, wanted, waiting, slots_in_use=slots_in_use)

    def _next_call(self, controls: View[BatchControlled], lease: Amounts) -> Sequence[Order]:
        """The first order, and those that go in one call with it."""
        if self.access.pool.embeddings is None:
            return (self._queue[0],)
        wanted = takewhile(lambda o: not called_off(o.attempt, controls.get(o.attempt.batch_id)), self._queue)
        return together(wanted, self.access.pool, lease)

    def _reserve(self, call: Call, now_ms: int) -> None:
        """One call of the lease, with the tokens of all its orders."""
        attempts = [order.attempt for order in call.orders]
        reservation = self.holder.reserve(
            sum(attempt.input_tokens for attempt in attempts),
            sum(attempt.max_output_tokens for attempt in attempts),
            now_ms,
        )
        self._handed_over[call.order.key] = reservation
        self._until_ms = max(self._until_ms, reservation.start_before_ms)

    def _pop(self, count: int, taken: Taken) -> None:
        taken.looked_at += count
        for _ in range(count):
            self._weigh(self._queue.popleft(), -1)

    def _sweep(self, controls: View[BatchControlled], taken: Taken, now_ms: int) -> None:
        """Call off what is cancelled anywhere in the queue: a paused pool must not hold a cancelled batch."""
        if not self._queue or now_ms - self._swept_at_ms < _SWEEP_EVERY_MS:
            return
        self._swept_at_ms = now_ms
        words: Mapping[str, BatchControlled | None] = {
            batch: controls.get(batch) for batch in {order.attempt.batch_id for order in self._queue}
        }
        gone = [order for order in self._queue if called_off(order.attempt, words[order.attempt.batch_id])]
        if gone:
            for order in gone:
                taken.ended.append(not_sent(order, now_ms=now_ms))
                self._weigh(order, -1)
            keys = {order.key for order in gone}
            self._queue = deque(order for order in self._queue if order.key not in keys)

    def _wanted(self) -> Wanted:
        if not self._queue:
            return Wanted()
        following = self._queue[0].attempt
        return Wanted(
            calls=self._waiting_calls(),
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            next_input_tokens=following.input_tokens,
            next_output_tokens=following.max_output_tokens,
        )

    def _waiting_calls(self) -> int:
        return calls_for(self.access.pool, len(self._queue), self._input_tokens)

    def _weigh(self, order: Order, sign: int) -> None:
        self._input_tokens += sign * order.attempt.input_tokens
        self._output_tokens += sign * order.attempt.max_output_tokens


def _amounts(of: LeaseAmounts) -> Amounts:
    return Amounts(requests=of.requests, input_tokens=of.input_tokens, output_tokens=of.output_tokens)


def _used(answers: Sequence[AttemptAnswered]) -> LeaseAmounts | None:
    """What a call used of its lease; None when nobody knows: a failed call counts for the provider, too."""
    if answers and answers[0].failure is not None and never_left(answers[0].failure):
        return NO_AMOUNTS
    used = [answered.usage for answered in answers if answered.usage is not None]
    if not used or len(used) < len(answers):
        return None
    return LeaseAmounts(
        requests=1,
        input_tokens=sum(usage.input_tokens for usage in used),
        output_tokens=sum(usage.output_tokens for usage in used),
    )
