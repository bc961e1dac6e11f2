"""An installation on the memory broker: its sessions, readers and writers, and what a test does to its topics."""

from collections.abc import Iterable, Sequence

from nightmill.kernel.runtime.log import Outgoing, Place, Record, Timing
from nightmill.kernel.runtime.memory.broker import MemoryBroker
from nightmill.kernel.runtime.memory.session import MemorySession, inside, outside
from nightmill.kernel.runtime.sizes import check_sizes


class MemoryLog:
    """One installation on a `MemoryBroker`. A `Log`."""

    def __init__(self, broker: MemoryBroker, prefix: str, timing: Timing) -> None:
        self.broker = broker
        self.partitions = broker.partitions
        self._prefix = prefix
        self._timing = timing

    def session(self, group: str, instance: str, topics: Sequence[str]) -> MemorySession:
        return MemorySession(self.broker, self._prefix, group, instance, topics, self._timing)

    def reader(self) -> "MemoryReader":
        return MemoryReader(self.broker, self._prefix)

    def writer(self) -> "MemoryWriter":
        return MemoryWriter(self.broker, self._prefix)

    def lag(self, group: str, topic: str) -> int:
        self.broker.check_up()
        committed = self.broker.group(self._prefix + group).committed
        places = [self._inside(Place(topic, number)) for number in range(self.partitions)]
        return sum(self.broker.place(p).waiting(committed.get(p, 0)) for p in places)

    def rebalance(self, group: str) -> None:
        """The group's members lose all and gain it again under a new generation."""
        self.broker.rebalance(self.broker.group(self._prefix + group))

    def rewind(self, group: str, place: Place, offset: int) -> None:
        """The group's committed position goes back to `offset`; its members start there in a new generation."""
        self.broker.group(self._prefix + group).committed[self._inside(place)] = offset
        self.rebalance(group)

    def repeat(self, place: Place, offset: int) -> None:
        """The record at `offset` is written once more at the end of its partition, as after a lost acknowledgement."""
        record = next(self.broker.place(self._inside(place)).since(offset)).record
        copy = Outgoing(record.place.topic, record.key or b"", record.value, place.partition, record.headers)
        self.broker.append(copy, None)

    def trim(self, place: Place, before: int) -> None:
        """Retention: records of `place` before an offset are gone."""
        self.broker.place(self._inside(place)).trim(before)

    def compact(self, place: Place) -> None:
        """The cleaner has been at `place`: the last record of each key is left."""
        self.broker.place(self._inside(place)).compact()

    def _inside(self, place: Place) -> Place:
        return Place(self._prefix + place.topic, place.partition)


class MemoryReader:
    """A `Reader` on the memory broker."""

    def __init__(self, broker: MemoryBroker, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._positions: dict[Place, int] = {}

    def end(self, place: Place) -> int:
        self._broker.check_up()
        return self._broker.place(Place(self._prefix + place.topic, place.partition)).end

    def start(self, place: Place, offset: int) -> None:
        self._positions[place] = offset

    def poll(self, timeout_s: float, limit: int) -> Sequence[Record]:
        records = self._read(limit)
        if not records and timeout_s > 0:
            self._broker.wait(timeout_s)
            records = self._read(limit)
        return records

    def _read(self, limit: int) -> list[Record]:
        records: list[Record] = []
        for place, position in self._positions.items():
            inside_ = Place(self._prefix + place.topic, place.partition)
            found, self._positions[place] = self._broker.read(inside_, position, limit - len(records))
            records.extend(outside(record, self._prefix) for record in found)
        return records

    def position(self, place: Place) -> int:
        return self._positions[place]

    def close(self) -> None:
        self._positions.clear()


class MemoryWriter:
    """A `Writer` on the memory broker."""

    def __init__(self, broker: MemoryBroker, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix

    def write(self, records: Iterable[Outgoing]) -> None:
        records = list(records)
        check_sizes(records)
        self._broker.check_up()
        for record in records:
            self._broker.append(inside(record, self._prefix), None)

    def close(self) -> None:
        return
