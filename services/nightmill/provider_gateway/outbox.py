"""The outbox: a mark before each call, its answer before anything else learns of it (M4, E2).

RocksDB in a folder of its own on a persistent volume; not a cache. A mark without an answer after a crash means that
the call may have been made; no mark means that it was surely not. An answer stays until the transaction that published
it is committed. Every write is on disk when it returns, and one write carries all marks and answers that are at hand.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from nightmill.kernel.runtime.disk import DiskRefused, refusal
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.orders import attempt_key

_REFUSED = "IO error"  #: how RocksDB begins what the disk did; anything else is a defect
_MARK, _ANSWER = b"m/", b"n/"
_BUFFER_BYTES = 16 << 20
_CODEC = codecs()[AttemptAnswered]
_PARTITION_BYTES = 4


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
        """Open or create. Raises `DiskRefused` when another process holds the folder, or the disk refuses."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._db = _open(folder)
        self._lock = threading.Lock()
        self._owed: dict[str, int | None] = {}  #: what a full disk kept: as a mark of this partition, None as nothing
        self._durable, self._lazy = WriteOptions(), WriteOptions()
        self._durable.sync = True
        self.problem: str | None = None  #: why the last write failed; None when it went well

    def write(self, marks: Iterable[tuple[str, int]], answers: Iterable[Landed]) -> None:
        """Store marks (attempt key, partition) and answers, durably and together. An answer replaces its mark.

        Raises `Unavailable` when the disk refuses: nothing of it counts as stored, write it again.
        """
        batch = WriteBatch(raw_mode=True)
        for key, partition in marks:
            batch.put(_MARK + key.encode(), str(partition).encode())
        for landed in answers:
            key_bytes = landed.key.encode()
            owner = landed.partition.to_bytes(_PARTITION_BYTES, "big")
            batch.put(_ANSWER + key_bytes, owner + _CODEC.encode(landed.answered))
            batch.delete(_MARK + key_bytes)
        self._write(batch, self._durable)

    def forget(self, keys: Sequence[str]) -> None:
        """Delete marks and answers of attempts whose publication is committed. A crash may bring some of them back."""
        self._owed.update(dict.fromkeys(keys))
        self.settle()

    def leave_marks(self, marks: Mapping[str, int]) -> None:
        """Delete the answers of these attempts (key → partition), and keep that they were sent."""
        self._owed.update(marks)
        self.settle()

    @property
    def owes(self) -> bool:
        """Whether the disk kept what was to be deleted: a restart would publish it once more."""
        return bool(self._owed)

    def settle(self) -> None:
        """Delete what is to be deleted, if the disk lets it go."""
        batch = WriteBatch(raw_mode=True)
        for key, partition in self._owed.items():
            batch.delete(_ANSWER + key.encode())
            if partition is None:
                batch.delete(_MARK + key.encode())
            else:
                batch.put(_MARK + key.encode(), str(partition).encode())
        with suppress(Unavailable):
            self._write(batch, self._lazy)
            self._owed.clear()

    def marks(self) -> dict[str, int]:
        """Attempts that were about to be sent and have no answer, with their partitions."""
        return {key.decode(): int(value) for key, value in self._entries(_MARK)}

    def answers(self) -> list[Landed]:
        """Answers that are not known to be published."""
        return [_landed(value) for _, value in self._entries(_ANSWER)]

    def close(self) -> None:
        with suppress(Exception) if self.problem else nullcontext():
            self._db.close()

    def _write(self, batch: WriteBatch, options: WriteOptions) -> None:
        with self._lock:
            try:
                if self.problem is not None:
                    # after a failed write RocksDB takes no other one until it is opened again
                    with suppress(Exception):
                        self._db.close()
                    self._db = _open(self._folder)
                self._db.write(batch, options)
            except DiskRefused as error:
                self.problem = str(error)
                raise Unavailable(self.problem) from error
            except Exception as error:  # the binding has no class of its own for errors
                if not str(error).startswith(_REFUSED):
                    raise
                self.problem = f"outbox in {refusal(self._folder, error)}"
                raise Unavailable(self.problem) from error
            self.problem = None

    def _entries(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries: Iterator[Any] = self._db.items(from_key=prefix)
        for key, value in entries:
            if not key.startswith(prefix):
                return
            yield key[len(prefix) :], value


def _open(folder: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_BUFFER_BYTES)
    options.set_keep_log_file_num(2)
    try:
        return Rdict(str(folder), options)
    except Exception as error:  # the binding has no class of its own for errors
        raise DiskRefused(f"outbox in {refusal(folder, error)}") from error


def _landed(value: bytes) -> Landed:
    owner, answered = value[:_PARTITION_BYTES], value[_PARTITION_BYTES:]
    return Landed(partition=int.from_bytes(owner, "big"), answered=_CODEC.decode(answered))
