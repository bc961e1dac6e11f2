"""Disks as a `kill -9` and a power cut leave them: an ordered store in the place of RocksDB, kept by path.

What was written survives the process. A power cut may also undo the newest writes that were not synced, in their
order, as the end of a write-ahead log is lost. A full disk refuses a write and keeps nothing of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from sortedcontainers import SortedDict

from nightmill.kernel.runtime import store
from nightmill.provider_gateway import outbox

Undo = dict[bytes, bytes | None]


class DiskFull(Exception):
    """What the store raises when a write does not fit."""


class Folder:
    """One store's folder."""

    def __init__(self) -> None:
        self.entries: SortedDict[bytes, bytes] = SortedDict()
        self.unsynced: list[Undo] = []  #: how to undo each write since the last sync, oldest first

    def write(self, operations: list[tuple[bytes, bytes | None]], *, sync: bool) -> None:
        undo: Undo = {}
        for key, value in operations:
            undo.setdefault(key, self.entries.get(key))
            self._set(key, value)
        self.unsynced = [] if sync else [*self.unsynced[-200:], undo]

    def cut_power(self, random: Random) -> None:
        """Lose some of the newest unsynced writes."""
        for _ in range(random.randint(0, len(self.unsynced))):
            for key, value in self.unsynced.pop().items():
                self._set(key, value)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value


class Disks:
    """All folders of a world by path. `full`: paths below which nothing can be written now."""

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {}
        self.full: set[str] = set()

    def folder(self, path: str) -> Folder:
        return self.folders.setdefault(path, Folder())

    def check_room(self, path: str) -> None:
        """Raises `DiskFull` when a write under this path does not fit."""
        if self.full and any(path.startswith(prefix) for prefix in self.full):
            raise DiskFull(f"IO error: No space left on device: While appending to file: {path}")

    def below(self, prefix: str) -> list[Folder]:
        return [folder for path, folder in sorted(self.folders.items()) if path.startswith(prefix)]

    def wipe(self, prefix: str) -> None:
        """The folders are gone: another host."""
        for path in [path for path in self.folders if path.startswith(prefix)]:
            del self.folders[path]


class Batch:
    """`rocksdict.WriteBatch`, as far as the product uses it."""

    def __init__(self, raw_mode: bool = False) -> None:
        self.operations: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.operations.append((key, value))

    def delete(self, key: bytes) -> None:
        self.operations.append((key, None))


class _WriteOptions:
    sync = False


class _Options:
    """Every setting is taken and means nothing."""

    def __init__(self, raw_mode: bool = False) -> None:
        self.raw_mode = raw_mode

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class _AccessType:
    @staticmethod
    def read_write() -> None:
        return None


class _Cursor:
    def __init__(self, entries: "SortedDict[bytes, bytes]") -> None:
        self._entries = entries
        self._keys: list[bytes] = []
        self._at = 0

    def seek(self, start: bytes) -> None:
        self._keys, self._at = list(self._entries.irange(start)), 0

    def valid(self) -> bool:
        return self._at < len(self._keys)

    def key(self) -> bytes:
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._entries[self._keys[self._at]]

    def next(self) -> None:
        self._at += 1


def _database_of(disks: Disks) -> type[Any]:
    class Database:
        """`rocksdict.Rdict` over a folder of these disks."""

        def __init__(self, path: str, *_: Any, **__: Any) -> None:
            self._path = path
            self._folder = disks.folder(path)

        def get(self, key: bytes) -> bytes | None:
            found: bytes | None = self._folder.entries.get(key)
            return found

        def write(self, batch: Batch, options: Any = None) -> None:
            disks.check_room(self._path)
            self._folder.write(batch.operations, sync=options is not None and options.sync)

        def iter(self) -> _Cursor:
            return _Cursor(self._folder.entries)

        def items(self, from_key: bytes) -> Iterator[tuple[bytes, bytes]]:
            entries = self._folder.entries
            return iter([(key, entries[key]) for key in entries.irange(from_key)])

        def close(self) -> None:
            return

    return Database


@contextmanager
def installed(disks: Disks) -> Iterator[None]:
    """State stores and outboxes that are opened inside lie on these disks."""
    kept = [(module, dict(vars(module))) for module in (store, outbox)]
    database = _database_of(disks)
    for module, _ in kept:
        vars(module).update(Rdict=database, WriteBatch=Batch, Options=_Options)
    vars(store)["AccessType"] = _AccessType
    vars(outbox)["WriteOptions"] = _WriteOptions
    try:
        yield
    finally:
        for module, names in kept:
            for name in ("Rdict", "WriteBatch", "Options", "AccessType", "WriteOptions"):
                if name in names:
                    vars(module)[name] = names[name]
