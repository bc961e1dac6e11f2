"""The outbox: a mark before each call, its answer before anything else learns of it (M4, E2).

RocksDB in a folder of its own on a persistent volume; not a cache. A mark without an answer after a crash means that
the call may have been made; no mark means that it was surely not. An answer stays until the transaction that published
it is committed. Every write is on disk when it returns, and one write carries all marks and answers that are at hand.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.orders import attempt_key

_MARK, _ANSWER = b"m/", b"n/"
_BUFFER_BYTES = 16 << 20
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """An answer in the outbox, and the partition its shard belongs to."""

    partition: int
    answered: AttemptAnswered

    @property
    def key(self) -> str:
        return attempt_key(self.answered)


class Outbox:
    """Marks and answers by attempt key. One process owns the folder; its threads may all use it."""

    def __init__(self, folder: Path) -> None:
        """Open or create. Raises when another process holds the folder, or the disk refuses."""
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_BUFFER_BYTES)
        options.set_keep_log_file_num(2)
        self._db = Rdict(str(folder), options)
        self._durable, self._lazy = WriteOptions(), WriteOptions()
        self._durable.sync = True

    def write(self, marks: Iterable[tuple[str, int]], answers: Iterable[Landed]) -> None:
        """Store marks (attempt key, partition) and answers, durably and together. An answer replaces its mark."""
        batch = WriteBatch(raw_mode=True)
        for key, partition in marks:
            batch.put(_MARK + key.encode(), str(partition).encode())
        for landed in answers:
            key_bytes = landed.key.encode()
            value = {"partition": landed.partition, "answered": landed.answered.to_avro()}
            batch.put(_ANSWER + key_bytes, _ENCODER.encode(value).encode())
            batch.delete(_MARK + key_bytes)
        self._db.write(batch, self._durable)

    def forget(self, keys: Sequence[str]) -> None:
        """Delete marks and answers of attempts whose publication is committed. A crash may bring some of them back."""
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(_MARK + key.encode())
            batch.delete(_ANSWER + key.encode())
        self._db.write(batch, self._lazy)

    def marks(self) -> dict[str, int]:
        """Attempts that were about to be sent and have no answer, with their partitions."""
        return {key.decode(): int(value) for key, value in self._entries(_MARK)}

    def answers(self) -> list[Landed]:
        """Answers that are not known to be published."""
        return [_landed(value) for _, value in self._entries(_ANSWER)]

    def close(self) -> None:
        self._db.close()

    def _entries(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries: Iterator[Any] = self._db.items(from_key=prefix)
        for key, value in entries:
            if not key.startswith(prefix):
                return
            yield key[len(prefix) :], value


def _landed(value: bytes) -> Landed:
    entry = json.loads(value)
    return Landed(partition=entry["partition"], answered=AttemptAnswered.from_avro(entry["answered"]))
