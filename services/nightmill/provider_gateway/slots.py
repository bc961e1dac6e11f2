"""Calls that wait for a slot, and the slots that are taken, lane by lane.

A call waits twice: to be marked, and, once its mark is durable, for a slot. A few more are marked than there are slots
for, so that a slot that comes free does not wait for the disk.

The poll thread puts calls in, gives permits and takes calls back; the thread that makes calls takes them out. Each
step is one operation of a deque or a set, or of a number that only one of the two writes, so there is no lock.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.caller import Call, Permit
from nightmill.provider_gateway.calls import marked_ahead

_CLOSES_LANE = frozenset({FailureClass.CAPACITY, FailureClass.ACCOUNT})


@dataclass(slots=True)
class _Lane:
    slots: int = 0
    until_ms: int = 0
    in_flight: int = 0  #: calls that were sent and have not ended
    marking: int = 0  #: calls that were taken out to be marked
    shut: int = 0  #: times that a failure closed it; of the thread that makes calls
    heard: int = 0  #: how many of those the poll thread has heard of
    ready: deque[Call] = field(default_factory=deque)
    marked: deque[Call] = field(default_factory=deque)
    unsent: set[str] = field(default_factory=set)  #: attempt keys of calls that were put in and did not leave yet

    def is_open(self, now_ms: int) -> bool:
        return now_ms < self.until_ms and self.shut == self.heard


class Slots:
    """Lanes by name. A lane starts closed."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    # -- of the poll thread

    def permit(self, name: str, permit: Permit) -> bool:
        """Replace the permit of a lane; whether calls wait that may start now."""
        lane = self._lanes.setdefault(name, _Lane())
        changed = (lane.slots, lane.until_ms) != (permit.slots, permit.until_ms)
        lane.slots, lane.until_ms = permit.slots, permit.until_ms
        return changed and bool(lane.ready or lane.marked)

    def add(self, calls: Sequence[Call]) -> None:
        for call in calls:
            lane = self._lanes.setdefault(call.lane, _Lane())
            lane.unsent.add(call.order.key)  # before the other thread can see the call and send it
            lane.ready.append(call)

    def withdraw(self, lane: str) -> list[Call]:
        """Take back the calls of a lane that hold no slot."""
        taken: list[Call] = []
        known = self._lanes.setdefault(lane, _Lane())
        for waiting in (known.marked, known.ready):
            while (call := _first(waiting)) is not None:
                taken.append(call)
        known.unsent.difference_update([call.order.key for call in taken])
        return taken

    def in_flight(self, lane: str) -> int:
        known = self._lanes.get(lane)
        return 0 if known is None else known.in_flight

    def unsent(self, lane: str) -> frozenset[str]:
        known = self._lanes.get(lane)
        return frozenset() if known is None else frozenset(known.unsent)

    def heard(self, call: Call, seen: Failure | None) -> None:
        """The poll thread has the end of a call: a permit that it gives from now on knows of it."""
        if _closes(seen):
            lane = self._lanes[call.lane]
            lane.heard += 1
            lane.until_ms = 0  # so that the next permit is a change, even if it says the same

    # -- of the thread that makes calls

    def take(self, now_ms: int) -> list[Call]:
        """Calls to be marked now."""
        taken: list[Call] = []
        for lane in list(self._lanes.values()):
            most = lane.slots + marked_ahead(lane.slots)
            while lane.in_flight + lane.marking + len(lane.marked) < most and lane.is_open(now_ms):
                call = _first(lane.ready)
                if call is None:
                    break
                lane.marking += 1
                taken.append(call)
        return taken

    def marked(self, calls: Sequence[Call]) -> None:
        """The marks of these calls are durable: they may be sent."""
        for call in calls:
            lane = self._lanes[call.lane]
            lane.marking -= 1
            lane.marked.append(call)

    def let_go(self, now_ms: int) -> list[Call]:
        """Calls that get a slot now. They are taken to be sent then."""
        gone: list[Call] = []
        for lane in list(self._lanes.values()):
            while lane.marked and lane.is_open(now_ms):
                # taken before it is looked whether there is one: who lowers the slots and counts then counts this one
                lane.in_flight += 1
                call = _first(lane.marked) if lane.in_flight <= lane.slots else None
                if call is None:
                    lane.in_flight -= 1
                    break
                lane.unsent.discard(call.order.key)
                gone.append(call)
        return gone

    def never_sent(self) -> list[Call]:
        """Calls that are marked and did not leave."""
        return [call for lane in self._lanes.values() for call in lane.marked]

    def free(self, call: Call, seen: Failure | None) -> None:
        """The call ended. A failure for capacity or the account's sake closes its lane.

        A permit that was given before the poll thread heard of the failure does not open it again.
        """
        lane = self._lanes[call.lane]
        lane.in_flight -= 1
        if _closes(seen):
            lane.until_ms = 0
            lane.shut += 1


def _first(waiting: deque[Call]) -> Call | None:
    """Take the first out; None when there is none, or the other thread has just taken it."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _closes(seen: Failure | None) -> bool:
    return seen is not None and seen.failure_class in _CLOSES_LANE
