"""Leases on a simulated clock: one governor, many holders, a network that loses, repeats and reorders.

The governor and the holders are the real ones. Each has a clock of its own that is wrong by any amount. The world
checks what it sees from outside: calls in flight, and what was charged in any interval.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kit.partition import StagePartition
from nightmill.kernel.domain.settings import Pool, PoolLimits
from nightmill.kernel.wire.messages import LeaseAmounts, LeaseStateRow
from nightmill.provider_gateway.leases import LeaseHolder, Reservation, Wanted
from nightmill.rate_governor.levels import burst
from nightmill.rate_governor.pool import ORPHANED_MS
from nightmill.rate_governor.service import RateGovernor

POOL = "mini"
STEP_MS = 20
START_MS = 1_796_000_000_000


def pool(limits: PoolLimits, call_deadline_s: float = 5.0) -> Pool:
    return Pool(
        provider="openai_compatible",
        base_url="http://127.0.0.1:1/v1",
        model="mini",
        limits=limits,
        context_tokens=8192,
        call_deadline=call_deadline_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call to make: its estimate, what it really uses, and how long it takes."""

    input_tokens: int = 0
    output_tokens: int = 0
    used_output_tokens: int = 0
    lasts_ms: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What happens to a message on its way."""

    lost: float = 0.0
    repeated: float = 0.0
    slowest_ms: int = 40


@dataclass(slots=True)
class Gateway:
    """One holder with its queue."""

    number: int
    clock_off_ms: int
    holder: LeaseHolder
    queue: deque[Call] = field(default_factory=deque)
    running: list[tuple[int, Call, Reservation]] = field(default_factory=list)
    started: int = 0
    asks: int = 0
    given_back: int = 0  #: output tokens that settlement gave back
    learned: int = 0  #: of these, what the governor has read

    def wanted(self) -> Wanted:
        if not self.queue:
            return Wanted()
        return Wanted(
            calls=len(self.queue),
            input_tokens=sum(call.input_tokens for call in self.queue),
            output_tokens=sum(call.output_tokens for call in self.queue),
            next_input_tokens=self.queue[0].input_tokens,
            next_output_tokens=self.queue[0].output_tokens,
        )


class Charge:
    """What was charged in one dimension: never more than burst + one call + rate × interval, in any interval.

    What settlement gives back lowers the total; `unlearned` is the part of it that the governor has not read yet.
    """

    def __init__(self, name: str, limit_per_minute: int | None, largest_call: int) -> None:
        self.name = name
        self.total = 0
        self._limit = limit_per_minute
        self._allowed = 0 if limit_per_minute is None else burst(limit_per_minute) + largest_call * 1000
        self._lowest: int | None = None

    def check(self, now_ms: int, unlearned: int) -> None:
        """Compares with every earlier moment at once: total − rate × time must not rise further than allowed."""
        if self._limit is None:
            return
        height = self.total * 1000 - self._limit * now_ms // 60
        base = height + unlearned * 1000
        self._lowest = base if self._lowest is None else min(self._lowest, base)
        assert height - self._lowest <= self._allowed + 1000, f"{self.name}: {height - self._lowest} > {self._allowed}"


class World:
    """All of it; `run` lets time pass."""

    def __init__(
        self,
        limits: PoolLimits,
        *,
        holders: int,
        seed: int = 0,
        network: Network | None = None,
        largest: Call | None = None,
        skew_ms: int = 3_600_000,
    ) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.network = network or Network()
        self.limits = limits
        self._skew_ms = skew_ms
        self._mail: list[tuple[int, int, Callable[[], None]]] = []
        self._mailed = 0
        self._orphans: list[int] = []
        self._governor_away_until_ms = 0
        largest = largest or Call()
        self.charges = (
            Charge("requests", limits.requests_per_minute, 1),
            Charge("input tokens", limits.input_tokens_per_minute, largest.input_tokens),
            Charge("output tokens", limits.output_tokens_per_minute, largest.output_tokens),
        )
        self.busiest = 0
        self.gateways: list[Gateway] = []
        self._start_governor({})
        self.gateways = [self._gateway(number, deque()) for number in range(holders)]

    # -- faults

    def restart_governor(self, away_ms: int) -> None:
        """The process is gone for a while; another one with another clock goes on from the rows."""
        self._start_governor(self._part.table(LeaseStateRow).rows)
        self._governor_away_until_ms = self.now_ms + away_ms

    def restart_gateway(self, number: int) -> None:
        """The process is gone with all it knew; its calls go on at the provider for as long as they may."""
        old = self.gateways[number]
        until_ms = self.now_ms + ORPHANED_MS
        self._orphans += [min(ends_ms, until_ms) for ends_ms, _, _ in old.running]
        queue = deque(call for _, call, _ in old.running)
        queue.extend(old.queue)
        self.gateways[number] = self._gateway(number, queue)
        self.gateways[number].started = old.started

    def _start_governor(self, rows: dict[str, Any]) -> None:
        self._governor = RateGovernor({POOL: pool(self.limits)})
        self._governor_off_ms = self._off()
        self._part = StagePartition(self._governor)
        self._part.table(LeaseStateRow).rows.update(rows)
        self._governor.on_open(self._part)

    def _gateway(self, number: int, queue: deque[Call]) -> Gateway:
        holder = LeaseHolder(
            pool=POOL, pool_slots=self.limits.slots, instance=str(number), partition=0, epoch=self.now_ms
        )
        return Gateway(number=number, clock_off_ms=self._off(), holder=holder, queue=queue)

    def _off(self) -> int:
        return self.random.randint(-self._skew_ms, self._skew_ms)

    # -- time

    def run(self, for_ms: int, until: Callable[[], bool] = lambda: False) -> None:
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms and not until():
            self.now_ms += STEP_MS
            while self._mail and self._mail[0][0] <= self.now_ms:
                heapq.heappop(self._mail)[2]()
            if self.now_ms % 200 == 0 and self.now_ms >= self._governor_away_until_ms:
                self._part.now_ms = self.now_ms + self._governor_off_ms
                self._part.apply(self._governor.on_tick(self._part))
            self._check()
            for gateway in self.random.sample(self.gateways, len(self.gateways)):
                self._work(gateway)

    def in_flight(self) -> int:
        self._orphans = [ends_ms for ends_ms in self._orphans if ends_ms > self.now_ms]
        return len(self._orphans) + sum(gateway.holder.in_flight for gateway in self.gateways)

    def idle(self) -> bool:
        return not any(gateway.queue or gateway.running for gateway in self.gateways)

    def _work(self, gateway: Gateway) -> None:
        clock_ms = self.now_ms + gateway.clock_off_ms
        for entry in [entry for entry in gateway.running if entry[0] <= self.now_ms]:
            gateway.running.remove(entry)
            self._end(gateway, entry[1], entry[2])
        while gateway.queue and gateway.holder.may_start(
            gateway.queue[0].input_tokens, gateway.queue[0].output_tokens, clock_ms
        ):
            self._start(gateway, gateway.queue.popleft(), clock_ms)
        ask = gateway.holder.ask(clock_ms, gateway.wanted())
        if ask is not None:
            gateway.asks += 1
            given_back = gateway.given_back
            self._post(lambda: self._ask(ask, gateway, given_back))

    def _start(self, gateway: Gateway, call: Call, clock_ms: int) -> None:
        reservation = gateway.holder.reserve(call.input_tokens, call.output_tokens, clock_ms)
        gateway.running.append((self.now_ms + call.lasts_ms, call, reservation))
        gateway.started += 1
        self._charge(1, call.input_tokens, call.output_tokens)
        self.busiest = max(self.busiest, self.in_flight())
        assert self.in_flight() <= self.limits.slots

    def _end(self, gateway: Gateway, call: Call, reservation: Reservation) -> None:
        used = LeaseAmounts(requests=1, input_tokens=call.input_tokens, output_tokens=call.used_output_tokens)
        gateway.holder.settle(reservation, used)
        gateway.given_back += call.output_tokens - call.used_output_tokens
        self._charge(0, 0, call.used_output_tokens - call.output_tokens)

    def _charge(self, *more: int) -> None:
        for charge, amount in zip(self.charges, more, strict=True):
            charge.total += amount
        self._check()

    def _check(self) -> None:
        unlearned = sum(gateway.given_back - gateway.learned for gateway in self.gateways)
        for charge, open_amount in zip(self.charges, (0, 0, unlearned), strict=True):
            charge.check(self.now_ms, open_amount)

    # -- mail

    def _post(self, deliver: Callable[[], None]) -> None:
        if self.random.random() < self.network.lost:
            return
        for _ in range(2 if self.random.random() < self.network.repeated else 1):
            self._arrive(self.now_ms + self.random.randint(1, self.network.slowest_ms), deliver)

    def _arrive(self, at_ms: int, deliver: Callable[[], None]) -> None:
        self._mailed += 1  # no two alike: the heap never compares what is delivered
        heapq.heappush(self._mail, (at_ms, self._mailed, deliver))

    def _ask(self, ask: Any, gateway: Gateway, given_back: int) -> None:
        if self.now_ms < self._governor_away_until_ms:  # Kafka keeps it
            self._arrive(self._governor_away_until_ms, lambda: self._ask(ask, gateway, given_back))
            return
        self._part.now_ms = self.now_ms + self._governor_off_ms
        self._check()
        decision = self._part.apply(self._governor.on_lease_requested(ask, self._part))
        gateway.learned = max(gateway.learned, given_back)
        for granted in decision.send:
            self._post(lambda granted=granted: self._grant(granted))  # type: ignore[misc]

    def _grant(self, granted: Any) -> None:
        for gateway in self.gateways:
            gateway.holder.on_granted(granted, self.now_ms + gateway.clock_off_ms)
