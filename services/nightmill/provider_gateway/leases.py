"""The holder's side of a lease: one `LeaseHolder` per pool and partition decides which calls may start. No I/O.

A lease is the right to *start* calls until its ttl is over, counted from the moment the ask was sent. Slots are used
again and again while it lives, and amounts are asked for well ahead, so no call waits for Kafka:

    available = granted - used - reserved        in flight < slots

To the governor, only a call that was sent has started: one that is reserved and waits, for a slot or for its mark, may
arrive at the provider at any moment of the lease, so the pool's level must not drain of it before.

What settlement gives back is available again, but never lifts what is held above what the newest ask reported: the
governor counts on that, takes in what goes beyond, and grants it anew. Asks are cumulative, so lost, repeated and
reordered ones do no harm. The number of an ask tells the governor whether its predecessor's answer arrived: + 1 if it
did, + 2 if it did not.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nightmill.kernel.wire.messages import LeaseAmounts, LeaseGranted, LeaseRequested
from nightmill.provider_gateway.vectors import NOTHING, Rate, Vector, amounts_of, fits, minus, most, plus, vector_of

#: Never two asks within this time.
ASK_GAP_MS = 100
#: After an answer that gave less than was wanted: levels need time to drain.
SHORT_GAP_MS = 500
#: After an answer that gave fewer slots than there are calls: another holder may have given up its own since.
SLOTS_GAP_MS = 1_000
#: Slots that are of no use for so long, half of them or all, are given back: others may want them.
IDLE_MS = 500
#: An ask without an answer is taken for lost.
LOST_AFTER_MS = 1_000
#: Ask for what this time will use at the observed rate: two ttl of the governor.
AHEAD_MS = 8_000

NO_AMOUNTS = LeaseAmounts(requests=0, input_tokens=0, output_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Calls that wait to start, in sum, and the one that is next."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    next_input_tokens: int = 0
    next_output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A call that was let go; `settle` ends it. It must not be sent at or after `start_before_ms`."""

    input_tokens: int
    output_tokens: int
    start_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """An ask that may still be answered, with what it reported."""

    seq: int
    asked_at_ms: int
    wants: Vector  #: beyond what is reserved
    unsent: Vector
    wants_slots: int
    started: Vector  #: used + reserved, but for what is unsent


#: what is reserved and did not leave yet
Unsent = Callable[[], Vector]


def holder_id(pool: str, instance: str, partition: int) -> str:
    return f"{pool}@{instance}-{partition}"


class LeaseHolder:
    """The lease of one pool for one partition, from the opening of the partition (`epoch`, epoch ms) to its end.

    Every method but `settle` takes the time as `now_ms`, epoch milliseconds of this process.
    """

    def __init__(self, *, pool: str, pool_slots: int, instance: str, partition: int, epoch: int) -> None:
        """`pool_slots`: of all holders together; nobody asks for more."""
        self.pool = pool
        self.holder = holder_id(pool, instance, partition)
        self._partition, self._epoch, self._pool_slots = partition, epoch, pool_slots
        self._used = self._reserved = self._started = self._granted = self._reported = NOTHING
        self._in_flight = self._slots = self._peak = 0
        self._seen_ms = 0
        self._expires_at_ms = self._renew_at_ms = 0
        self._idle_since_ms: int | None = None  #: since when half of the slots would do
        self._asks: list[_Ask] = []
        self._last: _Ask | None = None
        self._answered_seq = 0
        self._in_full = self._lowered = self._started_since = self._slots_freed = False
        self._rate = Rate()

    @property
    def in_flight(self) -> int:
        """Calls that are reserved and not settled."""
        return self._in_flight

    @property
    def slots(self) -> int:
        return self._slots

    def is_alive(self, now_ms: int) -> bool:
        """Calls may start. Check it again right before a call is sent."""
        return now_ms < self._expires_at_ms

    def available(self, now_ms: int) -> LeaseAmounts:
        """What may be started now; negative after answers that took more than was reserved."""
        return amounts_of(self._available(now_ms))

    def may_start(self, input_tokens: int, output_tokens: int, now_ms: int) -> bool:
        """Whether one call with these (estimated) tokens fits the lease now."""
        if now_ms >= self._expires_at_ms or self._in_flight >= self._slots:
            return False
        return fits((1, input_tokens, output_tokens), self._available(now_ms))

    def reserve(self, input_tokens: int, output_tokens: int, now_ms: int) -> Reservation:
        """Takes a slot and the amounts of one call, for which `may_start` has just said yes."""
        call = (1, input_tokens, output_tokens)
        self._reserved = plus(self._reserved, call)
        self._started = plus(self._started, call)
        self._in_flight += 1
        self._started_since = True
        self._observe(now_ms)
        self._rate.count(call)
        return Reservation(input_tokens=input_tokens, output_tokens=output_tokens, start_before_ms=self._expires_at_ms)

    def settle(self, reservation: Reservation, used: LeaseAmounts | None) -> None:
        """The call ended and used this: `NO_AMOUNTS` if it was never sent, None (as reserved) if nobody knows."""
        call = (1, reservation.input_tokens, reservation.output_tokens)
        self._reserved = minus(self._reserved, call)
        self._used = plus(self._used, call if used is None else vector_of(used))
        self._started = plus(self._used, self._reserved)
        self._in_flight -= 1

    def on_granted(self, message: LeaseGranted, now_ms: int) -> None:
        """Takes an answer in. One that is repeated, overtaken, too late or of another epoch changes nothing."""
        if message.holder != self.holder or message.epoch != self._epoch or message.seq <= self._answered_seq:
            return
        answered = next((ask for ask in self._asks if ask.seq == message.seq), None)
        if answered is None:
            return
        self._asks = [ask for ask in self._asks if ask.seq >= message.seq]
        # Asks sent since then have reported too, and the governor may have read them already.
        self._reported = NOTHING
        for ask in self._asks:
            self._reported = most(self._reported, ask.started)
        self._asks = self._asks[1:]
        self._answered_seq = message.seq
        self._granted = vector_of(message.granted)
        self._lowered = message.slots < self._slots
        self._slots = message.slots
        asked_at_ms = min(answered.asked_at_ms, now_ms)  # a clock that was set back makes no lease longer
        self._expires_at_ms = asked_at_ms + message.ttl_ms
        self._renew_at_ms = asked_at_ms + message.ttl_ms // 2
        self._in_full = fits(plus(answered.wants, answered.unsent), minus(self._granted, answered.started))
        self._started_since = False

    def slots_freed(self) -> None:
        """Another holder here gave slots of the pool back: an ask for more need not wait its time."""
        self._slots_freed = True

    def ask(
        self, now_ms: int, wanted: Wanted, unsent: Unsent = lambda: NOTHING, *, slots_in_use: int | None = None
    ) -> LeaseRequested | None:
        """The ask to send now, if one is due; call it at every tick, and when work arrives.

        `unsent` is called for an ask that is due. `slots_in_use`: calls that have a slot, counted since no more than
        `slots` may; None: all that are reserved.

        An ask is due when nothing is held and something is wanted; when more is wanted than is held; at half life;
        as soon as the calls fit lowered slots; when half of the slots are idle. When all are, the lease is given up.
        """
        self._observe(now_ms)
        in_use = self._in_flight if slots_in_use is None else slots_in_use
        slots = min(self._in_flight + wanted.calls, self._pool_slots)
        self._peak = max(self._peak, slots)
        if idle := self._is_idle(now_ms, slots):
            self._peak = slots
        if slots == 0:
            return self._send(now_ms, NOTHING, NOTHING, 0, 0, in_use) if idle else None
        wants = self._wants(now_ms, wanted)
        is_due = idle or self._is_due(now_ms, wanted, wants, slots, in_use)
        return self._send(now_ms, wants, unsent(), self._peak, slots, in_use) if is_due else None

    # -- when to ask

    def _is_idle(self, now_ms: int, slots: int) -> bool:
        """Whether a lease of which so many slots are of use has had too many for long enough."""
        if not self.is_alive(now_ms) or slots * 2 > self._slots:
            self._idle_since_ms = None
            return False
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        # a clock that was set back must not keep them
        return not 0 <= now_ms - self._idle_since_ms < IDLE_MS

    def _is_due(self, now_ms: int, wanted: Wanted, wants: Vector, slots: int, in_use: int) -> bool:
        last = self._last
        if last is None:
            return wanted.calls > 0
        since_ms = now_ms - last.asked_at_ms
        if 0 <= since_ms < ASK_GAP_MS:
            return False
        if self._answered_seq != last.seq:
            # A clock that was set back must not hold an ask for as long as it was set back.
            return since_ms < 0 or since_ms >= LOST_AFTER_MS or self._outgrew(last, wanted, slots)
        if not self.is_alive(now_ms) or now_ms >= self._renew_at_ms:
            return True
        if self._lowered and in_use <= self._slots:
            return True
        return self._runs_short(now_ms, wanted, wants, slots, last)

    def _runs_short(self, now_ms: int, wanted: Wanted, wants: Vector, slots: int, last: _Ask) -> bool:
        """More is wanted than is held, or what is held ahead is half gone; and an ask can help."""
        since_ms = now_ms - last.asked_at_ms
        if wanted.calls > 0 and self._slots == 0:
            return self._slots_freed or since_ms >= SHORT_GAP_MS
        may_help = self._slots_freed or since_ms >= SLOTS_GAP_MS
        if slots > self._slots and (may_help or self._slots >= last.wants_slots):
            return True
        available = self._available(now_ms)
        short = not fits(_queued(wanted), available) or not fits(wants, plus(available, available))
        return short and (self._in_full or since_ms >= SHORT_GAP_MS)

    def _outgrew(self, last: _Ask, wanted: Wanted, slots: int) -> bool:
        """More is wanted now than the ask that is under way asked for."""
        return not fits(_queued(wanted), last.wants) or slots > last.wants_slots

    # -- what to ask for

    def _wants(self, now_ms: int, wanted: Wanted) -> Vector:
        """What to hold: the queue, or what is used ahead if that is more; one call if that call alone does not fit."""
        stuck = wanted.calls > 0 and self._in_flight == 0 and self.is_alive(now_ms) and not self._started_since
        next_call = (1, wanted.next_input_tokens, wanted.next_output_tokens)
        if stuck and not self._in_full and not fits(next_call, self._available(now_ms)):
            return next_call
        return most(_queued(wanted), self._rate.within(AHEAD_MS, now_ms))

    def _observe(self, now_ms: int) -> None:
        """Ends the lease when the clock was set back."""
        if now_ms < self._seen_ms:
            # how long the lease still lasts can not be told any more
            self._expires_at_ms = min(self._expires_at_ms, now_ms)
        self._seen_ms = now_ms
        self._rate.look(now_ms)

    def _send(
        self, now_ms: int, wants: Vector, unsent: Vector, wants_slots: int, peak: int, in_use: int
    ) -> LeaseRequested:
        seq = 1
        if self._last is not None:
            seq = self._last.seq + (1 if self._answered_seq == self._last.seq else 2)
        started = minus(self._started, unsent)
        sent = _Ask(seq=seq, asked_at_ms=now_ms, wants=wants, unsent=unsent, wants_slots=wants_slots, started=started)
        self._last = sent
        self._reported = most(self._reported, started)
        self._peak = peak
        self._lowered = self._slots_freed = False
        self._idle_since_ms = None
        if wants_slots == 0:
            # Given up: the governor takes back what is held, so answers to this and earlier asks are void.
            self._asks, self._answered_seq = [], seq
            self._slots = self._expires_at_ms = self._renew_at_ms = 0
        else:
            self._asks = [ask for ask in self._asks if now_ms - ask.asked_at_ms < AHEAD_MS] + [sent]
        return LeaseRequested(
            pool=self.pool,
            holder=self.holder,
            holder_partition=self._partition,
            epoch=self._epoch,
            seq=seq,
            wants=amounts_of(plus(wants, unsent)),
            wants_slots=wants_slots,
            used=amounts_of(self._used),
            reserved=amounts_of(minus(self._reserved, unsent)),
            slots_in_use=in_use,
            asked_at_ms=now_ms,
        )

    def _available(self, now_ms: int) -> Vector:
        if not self.is_alive(now_ms):
            return NOTHING
        return minus(self._granted, most(self._started, self._reported))


def _queued(wanted: Wanted) -> Vector:
    return wanted.calls, wanted.input_tokens, wanted.output_tokens
