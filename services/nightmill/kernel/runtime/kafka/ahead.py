"""Records that the client has fetched and the loop has not taken yet.

The client hands records out in the order in which they arrived: ten thousand plans of a new job would stand in front of
every judgement, and the line would run dry behind them. Here topics take turns.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping

from nightmill.kernel.runtime.log import Place, Record

MOST_BYTES = 16 << 20


class ReadAhead:
    """Queues by place. What is waiting is lost with a rebalance and read again from the committed positions."""

    def __init__(self) -> None:
        self._queues: dict[Place, deque[Record]] = {}
        self._bytes: Counter[Place] = Counter()
        self._paused: set[Place] = set()
        self._turn = 0  #: where to go on when there is not one for each place

    @property
    def is_full(self) -> bool:
        """Whether enough waits. What waits for a paused place does not count, or it would keep the others out."""
        return sum(size for place, size in self._bytes.items() if place not in self._paused) >= MOST_BYTES

    @property
    def has_some(self) -> bool:
        """Whether `take` would give something."""
        return any(queue for place, queue in self._queues.items() if place not in self._paused)

    def add(self, record: Record) -> None:
        self._queues.setdefault(record.place, deque()).append(record)
        self._bytes[record.place] += _size(record)

    def take(self, limit: int) -> list[Record]:
        """At most `limit` records of places that are not paused, in order within each; every topic gets its share."""
        topics: dict[str, list[deque[Record]]] = {}
        for place, queue in self._queues.items():
            if queue and place not in self._paused:
                topics.setdefault(place.topic, []).append(queue)
        if limit < sum(map(len, topics.values())):
            taken = self._by_turns([queue for queues in topics.values() for queue in queues], limit)
        else:
            taken = _shared(topics, limit)
        for record in taken:
            self._bytes[record.place] -= _size(record)
        return taken

    def _by_turns(self, queues: list[deque[Record]], limit: int) -> list[Record]:
        """Fewer than there are places, as while the loop looks for a record one by one: nobody waits for ever."""
        begin, self._turn = self._turn, self._turn + limit
        return [queues[turn % len(queues)].popleft() for turn in range(begin, begin + limit)]

    def pause(self, place: Place) -> None:
        self._paused.add(place)

    def resume(self, place: Place) -> None:
        self._paused.discard(place)

    def forget(self, place: Place) -> None:
        """It is read anew, from another offset."""
        self._queues.pop(place, None)
        self._bytes.pop(place, None)

    def keep(self, owned: Callable[[Place], bool]) -> None:
        """Only these are ours now."""
        for place in [place for place in self._queues if not owned(place)]:
            self.forget(place)

    def clear(self) -> None:
        """Nothing is owned, nothing is paused."""
        self._queues, self._bytes, self._paused = {}, Counter(), set()


def _shared(topics: Mapping[str, list[deque[Record]]], limit: int) -> list[Record]:
    taken: list[Record] = []
    fewest_first = sorted(topics.values(), key=lambda queues: sum(map(len, queues)))
    for position, queues in enumerate(fewest_first):
        share = -(-(limit - len(taken)) // (len(fewest_first) - position))
        for turn, queue in enumerate(sorted(queues, key=len)):
            part = -(-share // (len(queues) - turn))
            some = [queue.popleft() for _ in range(min(part, len(queue)))]
            share -= len(some)
            taken += some
    return taken


def _size(record: Record) -> int:
    return 100 + len(record.value or b"")
