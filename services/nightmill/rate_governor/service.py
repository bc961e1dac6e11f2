"""The rate governor: answers every ask of a holder with what it may start, out of the pool's levels.

One partition owns a pool, so one process decides on it. The answer and the levels commit together: a grant that a
holder sees has been charged. The clock is this process's own; a row that this process did not write, or wrote before
its clock jumped, is taken over as if no time had passed since it was written.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Decision, Partition, Service
from nightmill.kernel.wire.messages import LeaseRequested, LeaseStateRow
from nightmill.rate_governor.grants import grant, lease_of
from nightmill.rate_governor.pool import Terms, advance, fresh, is_live, take_over
from nightmill.rate_governor.waiting import Waiting, remembered

log = logging.getLogger(__name__)

#: steps are at most half a second apart; more than this was a clock that was set, or a process that stood still
_JUMP_MS = 5_000


@dataclass(slots=True)
class _Memory:
    """What this process knows of a partition beyond its rows; losing it makes grants smaller, never greater."""

    written: dict[str, LeaseStateRow] = field(default_factory=dict)
    waiting: dict[str, dict[str, Waiting]] = field(default_factory=dict)
    seen_ms: int | None = None  #: time of the step before


class RateGovernor(Service):
    """Grants leases of the pools in pools.yaml."""

    name = "rate_governor"

    def __init__(self, pools: Mapping[str, Pool]) -> None:
        self._terms = {name: Terms.of(pool) for name, pool in pools.items()}
        self._memory: dict[int, _Memory] = {}

    def on_open(self, part: Partition) -> None:
        self._memory[part.number] = _Memory()

    def on_close(self, number: int) -> None:
        self._memory.pop(number, None)

    def on_lease_requested(self, ask: LeaseRequested, part: Partition) -> Decision:
        """Answers at once, if with nothing; an ask that is repeated or overtaken changes nothing."""
        terms = self._terms.get(ask.pool)
        if terms is None:
            raise ContractViolation(
                f"lease-requested of holder {ask.holder}: pool {ask.pool!r} is not in pools.yaml of the rate governor; "
                "give all services the same config folder and restart them"
            )
        memory = self._remembered(part)
        before = self._state(ask.pool, part) or fresh(ask.pool, part.now_ms)
        waiting = memory.waiting.setdefault(ask.pool, {})
        answer = grant(before, ask, part.now_ms, terms, waiting)
        if answer is None:
            return NOTHING
        state, granted = answer
        lease = lease_of(state, ask)
        if lease is not None:
            waiting[ask.holder] = remembered(waiting.get(ask.holder), ask, lease_of(before, ask), lease, part.now_ms)
        memory.written[ask.pool] = state
        log.debug(
            "lease granted",
            extra={"action": "lease_granted", "pool": ask.pool, "holder": ask.holder, "slots": granted.slots},
        )
        return Decision(put=[state], send=[granted])

    def on_tick(self, part: Partition) -> Decision:
        """Notes leases that lapsed and slots that came free; writes nothing while nothing ends."""
        return Decision(put=list(self._ended(part)))

    def _ended(self, part: Partition) -> Iterator[LeaseStateRow]:
        memory = self._remembered(part)
        for row in list(part.table(LeaseStateRow).prefix("")):
            terms = self._terms.get(row.pool)
            if terms is None or not row.holders:
                continue
            before = self._state(row.pool, part) or row
            state = advance(before, part.now_ms, terms)
            if before is row and _lives(before) == _lives(state):
                continue
            memory.written[row.pool] = state
            yield state
            self._forget(memory, before, state)

    def _remembered(self, part: Partition) -> _Memory:
        """The memory of a partition. A clock that jumped says nothing of how much time has passed for the holders:
        every row is taken over again, as if none had."""
        memory = self._memory.setdefault(part.number, _Memory())
        if memory.seen_ms is not None and not 0 <= part.now_ms - memory.seen_ms <= _JUMP_MS:
            jump_ms = part.now_ms - memory.seen_ms
            log.warning("clock jumped", extra={"action": "clock_jumped", "jump_ms": jump_ms, "partition": part.number})
            memory.written.clear()
            memory.waiting.clear()
        memory.seen_ms = part.now_ms
        return memory

    def _forget(self, memory: _Memory, before: LeaseStateRow, state: LeaseStateRow) -> None:
        gone = _lives(before) - _lives(state)
        for holder, epoch, lived in sorted(gone):
            log.info(
                "lease lapsed" if lived else "slots of a lapsed lease freed",
                extra={"action": "lease_ended", "pool": state.pool, "holder": holder, "epoch": epoch, "lived": lived},
            )
        live = {lease.holder for lease in state.holders if is_live(lease)}
        waiting = memory.waiting.get(state.pool, {})
        memory.waiting[state.pool] = {holder: kept for holder, kept in waiting.items() if holder in live}

    def _state(self, pool: str, part: Partition) -> LeaseStateRow | None:
        """The row as it is, if this process wrote it; else as taken over now."""
        row = part.table(LeaseStateRow).get(pool)
        if row is None:
            return None
        mine = self._memory.setdefault(part.number, _Memory()).written.get(pool)
        return row if row == mine else take_over(row, part.now_ms)


def _lives(state: LeaseStateRow) -> set[tuple[str, int, bool]]:
    return {(lease.holder, lease.epoch, is_live(lease)) for lease in state.holders}
