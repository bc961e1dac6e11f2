"""Restoring tables from their changelogs, and views of other services' topics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nightmill.kernel.runtime.log import Log, LogUnavailable, Place
from nightmill.kernel.runtime.store import StateStore
from nightmill.kernel.wire.channel import Table, Topic
from nightmill.kernel.wire.codec import Codec, Undecodable, codecs
from nightmill.kernel.wire.topics import CHANNELS, TABLES

_POLL_S = 0.2
_NO_PROGRESS_S = 60
_BATCH = 5_000


def restore(log: Log, store: StateStore, tables: Sequence[Table], number: int, clock_s: Callable[[], float]) -> int:
    """Bring `store` up to the high watermark of every changelog's partition `number`; returns the rows read.

    Blocks until a pending transaction of a dead owner has ended. Raises `LogUnavailable` after 60 s without progress.
    """
    reader = log.reader()
    try:
        ends = {table: reader.end(Place(table.name, number)) for table in tables}
        behind = {Place(table.name, number): table for table in tables if store.position(table) < ends[table]}
        for place, table in behind.items():
            reader.start(place, store.position(table))
        count, since_s = 0, clock_s()
        while any(reader.position(place) < ends[table] for place, table in behind.items()):
            records = reader.poll(_POLL_S, _BATCH)
            for record in records:
                if record.key is not None:
                    store.restore(behind[record.place].message, record.key, record.value)
            count += len(records)
            store.fold()
            if records:
                since_s = clock_s()
            elif clock_s() - since_s > _NO_PROGRESS_S:
                raise LogUnavailable(f"restore of partition {number} made no progress for {_NO_PROGRESS_S} s")
        store.set_positions({table.name: end for table, end in ends.items()})
        return count
    finally:
        reader.close()


def viewed_by(service: str) -> list[Topic | Table]:
    """Topics and tables of others that the contract lets `service` view."""
    everything: tuple[Topic | Table, ...] = (*CHANNELS, *TABLES)
    return [channel for channel in everything if service in channel.views]


class TopicView:
    """Somebody else's compacted topic, whole, in memory. A `View`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._rows: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self._rows.get(key)

    def values(self) -> Iterator[Any]:
        return iter(list(self._rows.values()))

    def take(self, key: bytes, value: bytes | None) -> None:
        """One record of the topic; an undecodable one leaves the older entry as it is."""
        if value is None:
            self._rows.pop(key.decode(), None)
            return
        try:
            self._rows[key.decode()] = self._codec.decode(value)
        except Undecodable:
            return


class Views:
    """All views of one service, fed by one reader."""

    def __init__(self, log: Log, channels: Sequence[Topic | Table], clock_s: Callable[[], float]) -> None:
        self.by_message: Mapping[type[Any], TopicView] = {c.message: TopicView(codecs()[c.message]) for c in channels}
        self._by_topic = {channel.name: self.by_message[channel.message] for channel in channels}
        self._reader = log.reader() if channels else None
        self._places = [Place(channel.name, n) for channel in channels for n in range(log.partitions)]
        if self._reader is not None:
            for place in self._places:
                self._reader.start(place, 0)
        self.catch_up(clock_s)

    def catch_up(self, clock_s: Callable[[], float]) -> None:
        """Take in all that is there now.

        Blocks until a pending transaction of a dead owner has ended. Raises `LogUnavailable` after 60 s without
        progress.
        """
        if self._reader is None:
            return
        ends = {place: self._reader.end(place) for place in self._places}
        since_s = clock_s()
        while any(self._reader.position(place) < end for place, end in ends.items()):
            if self.refresh(_POLL_S):
                since_s = clock_s()
            elif clock_s() - since_s > _NO_PROGRESS_S:
                raise LogUnavailable(f"views made no progress for {_NO_PROGRESS_S} s")

    def refresh(self, timeout_s: float = 0.0) -> int:
        """Take in what is new; returns how many records. Raises `LogUnavailable`."""
        if self._reader is None:
            return 0
        records = self._reader.poll(timeout_s, _BATCH)
        for record in records:
            if record.key is not None:
                self._by_topic[record.place.topic].take(record.key, record.value)
        return len(records)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
