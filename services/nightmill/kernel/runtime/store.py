"""The local copy of a service's tables, one RocksDB folder a partition: a cache of the changelogs, never the truth.

Keys: `r<table><key>` for rows, `i<index><sort bytes>\\0<key>` for index entries, whose value is the row's key, and
`p<table>` for the changelog offset up to which everything is here. `Partition`-wide `Overlay` holds the rows of the
open transaction; it is folded in after the commit and dropped after an abort.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Any

from rocksdict import AccessType, BlockBasedOptions, Options, Rdict, WriteBatch
from sortedcontainers import SortedDict

from nightmill.kernel.runtime.disk import DiskRefused, refusal
from nightmill.kernel.runtime.log import Unencodable
from nightmill.kernel.runtime.service import Index
from nightmill.kernel.wire.channel import Table
from nightmill.kernel.wire.codec import codecs

_CACHED_ROWS = 50_000
_ABSENT = object()
#: what the writer of a row raises (kernel/wire/binary.py); ValueError: half a character
_NOT_OF_ITS_TYPE = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


class StateStore:
    """Rows and index entries of one partition of one service."""

    def __init__(self, path: Path, tables: Sequence[Table], indexes: Sequence[Index]) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._mapped():
            self._db = Rdict(str(path), _options(), access_type=AccessType.read_write())
        self.tables = {table.message: OwnedTable(self, number, table) for number, table in enumerate(tables)}
        for number, index in enumerate(indexes):
            self.tables[index.row].declare(index, number)
        self.load_indexes()

    def load_indexes(self) -> None:
        """Fill the in-memory mirrors from the store."""
        for table in self.tables.values():
            table.reload()

    def position(self, table: Table) -> int:
        """Changelog offset after the last row that is surely here."""
        found = self._db.get(b"p" + table.name.encode())
        return 0 if found is None else int.from_bytes(found, "big")

    def set_positions(self, positions: dict[str, int]) -> None:
        batch = WriteBatch(raw_mode=True)
        for name, offset in positions.items():
            batch.put(b"p" + name.encode(), offset.to_bytes(8, "big"))
        self._write(batch)

    def restore(self, row: type[Any], key: bytes, value: bytes | None) -> None:
        """One record of a changelog."""
        table = self.tables[row]
        table.stage(key.decode(), None if value is None else table.codec.decode(value))

    def fold(self) -> None:
        """Make the overlay part of the store."""
        batch = WriteBatch(raw_mode=True)
        for table in self.tables.values():
            table.fold(batch)
        self._write(batch)

    def discard(self) -> None:
        """Drop the overlay."""
        for table in self.tables.values():
            table.discard()

    def scan(self, start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Stored entries from `start` while they begin with `prefix`."""
        cursor = self._db.iter()
        cursor.seek(start)
        while cursor.valid():
            key = cursor.key()
            if not key.startswith(prefix):
                return
            yield key, cursor.value()
            cursor.next()

    def read(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:  # as above, without a context manager's cost for each row
            raise DiskRefused(f"local tables in {refusal(self.path, error)}") from error
        return value

    def close(self) -> None:
        with self._mapped():
            self._db.close()

    def _write(self, batch: WriteBatch) -> None:
        with self._mapped():
            self._db.write(batch)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Raises `DiskRefused`. What was not written here is in the changelog: the next start restores it."""
        try:
            yield
        except Exception as error:  # the binding has no class of its own for errors
            raise DiskRefused(f"local tables in {refusal(self.path, error)}") from error


@dataclass(slots=True)
class _DeclaredIndex:
    spec: Index
    prefix: bytes
    mirror: "SortedDict[bytes, str] | None"


class OwnedTable:
    """An owned table: committed rows under the overlay of the open transaction. A `TableReader`."""

    def __init__(self, store: StateStore, number: int, spec: Table) -> None:
        self.spec = spec
        self.codec = codecs()[spec.message]
        self._store = store
        self._prefix = b"r" + bytes([number])
        self._indexes: dict[str, _DeclaredIndex] = {}
        self._encoded: dict[str, bytes | None] | None = None
        self._overlay: dict[str, Any] = {}  #: rows of the open transaction; None for one that is deleted
        self._changes: dict[bytes, str | None] = {}  #: index entries added (the row's key) or removed (None)
        self._cache: dict[str, Any] = {}

    def declare(self, spec: Index, number: int) -> None:
        mirror: SortedDict[bytes, str] | None = SortedDict() if spec.in_memory else None
        self._indexes[spec.name] = _DeclaredIndex(spec, b"i" + bytes([number]), mirror)

    def get(self, key: str) -> Any:
        staged = self._overlay.get(key, _ABSENT)
        if staged is not _ABSENT:
            return staged
        cached = self._cache.get(key, _ABSENT)
        if cached is not _ABSENT:
            return cached
        value = self._store.read(self._prefix + key.encode())
        row = None if value is None else self.codec.decode(value)
        self._remember(key, row)
        return row

    def prefix(self, prefix: str, *, after: str | None = None) -> Iterator[Any]:
        head = len(self._prefix)
        start = self._prefix + (prefix if after is None else after + "\0").encode()
        staged = sorted(k for k in self._overlay if k.startswith(prefix) and (after is None or k > after))
        keys = (raw[head:].decode() for raw, _ in self._store.scan(start, self._prefix + prefix.encode()))
        for key in merge((key for key in keys if key not in self._overlay), staged):
            row = self.get(key)
            if row is not None:
                yield row

    def index(self, name: str, *, start: bytes = b"", stop: bytes | None = None) -> Iterator[Any]:
        for key in self.index_keys(name, start=start, stop=stop):
            row = self.get(key)
            if row is not None:
                yield row

    def index_keys(self, name: str, *, start: bytes = b"", stop: bytes | None = None) -> Iterator[str]:
        """Keys of rows by a declared index; as `index`, without reading the rows."""
        declared = self._indexes[name]
        low = declared.prefix + start
        high = None if stop is None else declared.prefix + stop
        if declared.mirror is not None:
            for entry in declared.mirror.irange(low, high, inclusive=(True, False)):
                yield declared.mirror[entry]
            return
        added = sorted(e for e, key in self._changes.items() if key is not None and e.startswith(declared.prefix))
        staged = ((e, self._changes[e] or "") for e in added if e >= low and (high is None or e < high))
        entries = self._stored_entries(declared.prefix, low, high)
        stored = ((entry, value.decode()) for entry, value in entries if entry not in self._changes)
        for _, key in merge(stored, staged):
            yield key

    def stage(self, key: str, row: Any) -> None:
        """Put (or with None delete) a row in the overlay, and its index entries with it."""
        before = self.get(key) if self._indexes else None
        for declared in self._indexes.values():
            old = None if before is None else declared.spec.key(before)
            new = None if row is None else declared.spec.key(row)
            if old != new:
                self._move(declared, old, new, key)
        self._overlay[key] = row
        self._encoded = None

    def encoded(self) -> Mapping[str, bytes | None]:
        """The rows of the open transaction as they go to the changelog: each once, however often it changed.

        Raises `Unencodable`.
        """
        if self._encoded is None:
            rows = self._overlay.items()
            try:
                self._encoded = {key: None if row is None else self.codec.encode(row) for key, row in rows}
            except _NOT_OF_ITS_TYPE as error:
                reason = f"a row for {self.spec.name} can not be encoded: {type(error).__name__}: {error}"
                raise Unencodable(reason) from error
        return self._encoded

    def fold(self, batch: WriteBatch) -> None:
        for key, value in self.encoded().items():
            raw = self._prefix + key.encode()
            if value is None:
                batch.delete(raw)
            else:
                batch.put(raw, value)
            self._remember(key, self._overlay[key])
        for entry, owner in self._changes.items():
            if owner is None:
                batch.delete(entry)
            else:
                batch.put(entry, owner.encode())
        self._forget()

    def discard(self) -> None:
        if self._overlay:
            self._forget()
            self.reload()

    def _forget(self) -> None:
        self._overlay, self._changes, self._encoded = {}, {}, None

    def reload(self) -> None:
        self._cache.clear()
        for declared in self._indexes.values():
            if declared.mirror is not None:
                declared.mirror.clear()
                entries = self._store.scan(declared.prefix, declared.prefix)
                declared.mirror.update({entry: value.decode() for entry, value in entries})

    def _move(self, declared: _DeclaredIndex, old: bytes | None, new: bytes | None, key: str) -> None:
        tail = b"\0" + key.encode()
        if old is not None:
            entry = declared.prefix + old + tail
            self._changes[entry] = None
            if declared.mirror is not None:
                declared.mirror.pop(entry, None)
        if new is not None:
            entry = declared.prefix + new + tail
            self._changes[entry] = key
            if declared.mirror is not None:
                declared.mirror[entry] = key

    def _stored_entries(self, prefix: bytes, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for entry, value in self._store.scan(low, prefix):
            if high is not None and entry >= high:
                return
            yield entry, value

    def _remember(self, key: str, row: Any) -> None:
        if len(self._cache) >= _CACHED_ROWS:
            for old in list(self._cache)[: _CACHED_ROWS // 4]:
                del self._cache[old]
        self._cache[key] = row


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_max_background_jobs(1)
    options.set_keep_log_file_num(2)
    options.set_write_buffer_size(16 << 20)
    options.set_max_total_wal_size(64 << 20)
    # every plan asks for a row that is not there for the most part: without a filter that reads a block of each file
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(blocks)
    return options
