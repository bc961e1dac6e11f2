"""Calls that wait for a slot, and the slots that are taken, lane by lane.

The poll thread puts calls in, gives permits and takes calls back; the thread that makes calls takes them out. Each
step is one operation of a deque or a set, or of a number that only one of the two writes, so there is no lock.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.caller import Call, Permit

_CLOSES_LANE = frozenset({FailureClass.CAPACITY, FailureClass.ACCOUNT})


@dataclass(slots=True)
class _Lane:
    slots: int = 0
    until_ms: int = 0
    in_flight: int = 0
    shut: int = 0  #: times that a failure closed it; of the thread that makes calls
    heard: int = 0  #: how many of those the poll thread has heard of
    ready: deque[Call] = field(default_factory=deque)
    unsent: set[str] = field(default_factory=set)  #: attempt keys of calls that were put in and did not leave yet

    def is_open(self, now_ms: int) -> bool:
        return now_ms < self.until_ms and self.shut == self.heard


class Slots:
    """Lanes by name. A lane starts closed."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    # -- of the poll thread

    def permit(self, permits: Mapping[str, Permit]) -> bool:
        """Replace the permits of these lanes; whether calls wait that may start now."""
        wake = False
        for name, permit in permits.items():
            lane = self._lanes.setdefault(name, _Lane())
            changed = (lane.slots, lane.until_ms) != (permit.slots, permit.until_ms)
            lane.slots, lane.until_ms = permit.slots, permit.until_ms
            wake = wake or (changed and bool(lane.ready))
        return wake

    def add(self, calls: Sequence[Call]) -> None:
        for call in calls:
            lane = self._lanes.setdefault(call.lane, _Lane())
            lane.unsent.add(call.order.key)  # before the other thread can see the call and send it
            lane.ready.append(call)

    def withdraw(self, lane: str) -> list[Call]:
        """Take back the calls of a lane that hold no slot."""
        taken: list[Call] = []
        known = self._lanes.setdefault(lane, _Lane())
        while known.ready:
            try:
                taken.append(known.ready.popleft())
            except IndexError:  # the other thread took the last one
                break
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
        """Calls that get a slot now."""
        taken: list[Call] = []
        for lane in list(self._lanes.values()):
            while lane.ready and lane.in_flight < lane.slots and lane.is_open(now_ms):
                try:
                    taken.append(lane.ready.popleft())
                except IndexError:  # the poll thread has withdrawn the last one
                    break
                lane.in_flight += 1
        return taken

    def let_go(self, call: Call, now_ms: int) -> bool:
        """Whether a call with a slot may still be sent. It is taken to be sent then."""
        lane = self._lanes[call.lane]
        if not lane.is_open(now_ms):
            return False
        lane.unsent.discard(call.order.key)
        return True

    def put_back(self, call: Call) -> None:
        """A call with a slot waits again, as the first of its lane."""
        lane = self._lanes[call.lane]
        lane.in_flight -= 1
        lane.ready.appendleft(call)

    def free(self, call: Call, seen: Failure | None) -> None:
        """The call ended. A failure for capacity or the account's sake closes its lane.

        A permit that was given before the poll thread heard of the failure does not open it again.
        """
        lane = self._lanes[call.lane]
        lane.in_flight -= 1
        if _closes(seen):
            lane.until_ms = 0
            lane.shut += 1


def _closes(seen: Failure | None) -> bool:
    return seen is not None and seen.failure_class in _CLOSES_LANE
