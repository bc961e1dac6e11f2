"""The local store equals a dictionary, whatever is put, folded, discarded or reopened in between."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nightmill.kernel.runtime import store as store_module
from nightmill.kernel.runtime.service import Index
from nightmill.kernel.runtime.store import OwnedTable, StateStore
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import PartRow
from nightmill.kernel.wire.topics import PUBLISHER_ACCOUNTING, PUBLISHER_PART


def by_tier(row: PartRow) -> bytes | None:
    """Tier 0 is not in the index."""
    return row.tier.to_bytes(2, "big") if row.tier else None


def by_rows(row: PartRow) -> bytes | None:
    return row.rows.to_bytes(2, "big") if row.rows else None


INDEXES = (
    Index(name="tier", row=PartRow, key=by_tier, in_memory=True),
    Index(name="rows", row=PartRow, key=by_rows, in_memory=False),
)
KEYS = st.sampled_from(["a", "a/1", "a/10", "a/2", "ab", "b/1", "b/é", "c\x00d", "z" * 40])
SORTS = st.sampled_from([0, 1, 2, 255, 256, 65_535])
BOUNDS = st.none() | SORTS.map(lambda number: number.to_bytes(2, "big"))


def part(key: str, tier: int = 0, rows: int = 0) -> PartRow:
    return PartRow(part_id=key, batch_id="b", generation=1, digest="d", rows=rows, bytes=0, tier=tier, staged_at_ms=0)


class StoreMachine(RuleBasedStateMachine):
    """An `OwnedTable` under a dictionary of committed rows and one of the open transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(store_module, "_CACHED_ROWS", 4)  # so that the cache forgets, too
        self.folder = Path(tempfile.mkdtemp())
        self.open()
        self.committed: dict[str, PartRow] = {}
        self.staged: dict[str, PartRow | None] = {}
        self.position = 0

    def open(self) -> None:
        self.store = StateStore(self.folder / "state", [PUBLISHER_PART, PUBLISHER_ACCOUNTING], INDEXES)
        self.table: OwnedTable = self.store.tables[PartRow]

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)
        self.patch.undo()

    @property
    def rows(self) -> dict[str, PartRow]:
        merged: dict[str, PartRow | None] = {**self.committed, **self.staged}
        return {key: row for key, row in merged.items() if row is not None}

    @rule(key=KEYS, tier=SORTS, rows=SORTS)
    def put(self, key: str, tier: int, rows: int) -> None:
        row = part(key, tier, rows)
        self.table.stage(key, row)
        self.staged[key] = row

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.table.stage(key, None)
        self.staged[key] = None

    @rule(key=KEYS, tier=SORTS, rows=SORTS)
    def restore(self, key: str, tier: int, rows: int) -> None:
        """A record of the changelog."""
        row = part(key, tier, rows)
        self.store.restore(PartRow, key.encode(), codecs()[PartRow].encode(row))
        self.staged[key] = row

    @rule(key=KEYS)
    def restore_tombstone(self, key: str) -> None:
        self.store.restore(PartRow, key.encode(), None)
        self.staged[key] = None

    @rule()
    def fold(self) -> None:
        """The transaction was committed."""
        self.store.fold()
        self.committed, self.staged = self.rows, {}

    @rule()
    def discard(self) -> None:
        """The transaction was aborted."""
        self.store.discard()
        self.staged = {}

    @precondition(lambda self: not self.staged)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def crash(self) -> None:
        """Whatever was not folded is gone."""
        self.store.close()
        self.open()
        self.staged = {}

    @rule(position=st.integers(0, 2**40))
    def set_position(self, position: int) -> None:
        self.store.set_positions({PUBLISHER_PART.name: position})
        self.position = position

    @rule(prefix=st.sampled_from(["", "a", "a/", "b/", "c", "q"]), after=st.none() | KEYS)
    def rows_by_prefix(self, prefix: str, after: str | None) -> None:
        expected = [k for k in sorted(self.rows, key=str.encode) if k.startswith(prefix) and (not after or k > after)]
        if after is not None and not after.startswith(prefix):
            return
        assert [row.part_id for row in self.table.prefix(prefix, after=after)] == expected

    @rule(name=st.sampled_from(["tier", "rows"]), start=BOUNDS, stop=BOUNDS)
    def rows_by_index(self, name: str, start: bytes | None, stop: bytes | None) -> None:
        key_of = by_tier if name == "tier" else by_rows
        entries = [(key_of(row), key.encode(), row) for key, row in self.rows.items()]
        low = start or b""
        expected = [
            row
            for sort, _, row in sorted((e for e in entries if e[0] is not None), key=lambda e: (e[0], e[1]))
            if sort is not None and sort >= low and (stop is None or sort < stop)
        ]
        assert list(self.table.index(name, start=low, stop=stop)) == expected
        assert list(self.table.index_keys(name, start=low, stop=stop)) == [row.part_id for row in expected]

    @invariant()
    def every_row_is_as_in_the_model(self) -> None:
        rows = self.rows
        for key in ("a", "a/1", "a/10", "a/2", "ab", "b/1", "b/é", "c\x00d", "z" * 40, "absent"):
            assert self.table.get(key) == rows.get(key)

    @invariant()
    def the_position_is_kept(self) -> None:
        assert self.store.position(PUBLISHER_PART) == self.position
        assert self.store.position(PUBLISHER_ACCOUNTING) == 0


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestStore = StoreMachine.TestCase


def test_a_store_whose_folder_was_deleted_is_empty(tmp_path: Path) -> None:
    """The store is a cache that can be deleted."""
    store = StateStore(tmp_path / "state", [PUBLISHER_PART], INDEXES)
    store.restore(PartRow, b"a", codecs()[PartRow].encode(part("a", 1, 1)))
    store.fold()
    store.set_positions({PUBLISHER_PART.name: 9})
    store.close()
    shutil.rmtree(tmp_path / "state")
    again = StateStore(tmp_path / "state", [PUBLISHER_PART], INDEXES)
    table = again.tables[PartRow]
    assert table.get("a") is None
    assert list(table.index("tier")) == list(table.index("rows")) == []
    assert again.position(PUBLISHER_PART) == 0
    again.close()
