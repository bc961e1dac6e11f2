"""Blobs and blocks: addressed by content, whole or absent, and missing ones named."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader, write_block
from nightmill.kernel.wire.messages import RowRef

ABSENT = "0" * 64


@pytest.fixture(params=["folder", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """A local folder, and another fsspec file system."""
    return BlobStore(str(tmp_path / "blobs") if request.param == "folder" else f"memory://{tmp_path.name}")


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_a_blob_is_read_as_it_was_put_and_named_by_its_content(blobs: BlobStore) -> None:
    name = blobs.put(b"abc")
    assert name == digest(b"abc")
    assert blobs.exists(name)
    assert blobs.get(name) == b"abc"
    with blobs.open(name) as file:
        assert (file.read(1), file.seek(2), file.read()) == (b"a", 2, b"c")


def test_the_same_content_twice_is_one_blob(tmp_path: Path) -> None:
    blobs = BlobStore(str(tmp_path))
    assert blobs.put(b"abc") == blobs.put(b"abc") == blobs.put_stream([b"a", b"bc"])[0]
    assert files(tmp_path) == [tmp_path / digest(b"abc")[:2] / digest(b"abc")]


@pytest.mark.parametrize("chunks", [[], [b""], [b"a"], [b"a", b"", b"bc"], [b"x" * 100_000] * 3])
def test_a_stream_is_named_and_measured_while_it_is_stored(blobs: BlobStore, chunks: list[bytes]) -> None:
    name, size = blobs.put_stream(iter(chunks))
    whole = b"".join(chunks)
    assert (name, size) == (digest(whole), len(whole))
    assert blobs.get(name) == whole


def test_json_is_stored_compressed_and_canonical(blobs: BlobStore) -> None:
    value = {"b": [1, None, "ü"], "a": "x" * 1_000}
    name = blobs.put_json(value)
    assert blobs.get_json(name) == value
    assert name == blobs.put_json(dict(reversed(value.items())))
    assert len(blobs.get(name)) < 200


def test_a_missing_blob_is_named(blobs: BlobStore) -> None:
    with pytest.raises(BlobMissing, match=f"blob {ABSENT} is not in"):
        blobs.get(ABSENT)
    with pytest.raises(BlobMissing, match=f"blob {ABSENT} is not in"):
        blobs.open(ABSENT)
    assert not blobs.exists(ABSENT)
    blobs.delete(ABSENT)


def test_a_deleted_blob_is_missing(blobs: BlobStore) -> None:
    name = blobs.put(b"abc")
    blobs.delete(name)
    assert not blobs.exists(name)


@pytest.mark.parametrize("name", ["", "..", "../secret", "/etc/hostname", "a" * 63, "A" * 64, f"{ABSENT}\n", "é" * 64])
def test_what_is_no_digest_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    blobs = BlobStore(str(tmp_path / "blobs"))
    assert not blobs.exists(name)
    for read in (blobs.get, blobs.open):
        with pytest.raises(BlobMissing, match="is not the name of a blob"):
            read(name)
    blobs.delete(name)
    assert (tmp_path / "secret").exists()


def breaking(error: BaseException) -> Iterator[bytes]:
    yield b"half of it"
    raise error


@pytest.mark.parametrize("error", [ValueError("the reader broke"), KeyboardInterrupt(), MemoryError()])
def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    blobs = BlobStore(str(tmp_path))
    with pytest.raises(type(error)):
        blobs.put_stream(breaking(error))
    assert files(tmp_path) == []


def test_a_stream_whose_source_is_away_is_unavailable(tmp_path: Path) -> None:
    blobs = BlobStore(str(tmp_path))
    with pytest.raises(Unavailable, match="blob store"):
        blobs.put_stream(breaking(OSError(28, "No space left on device")))
    assert files(tmp_path) == []


def test_a_process_that_dies_while_it_writes_leaves_no_half_blob(tmp_path: Path) -> None:
    """E1: what stands under a digest is whole, whatever happened before."""
    blobs = BlobStore(str(tmp_path))
    done = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], check=False)
    assert done.returncode == 9
    assert [path.parent.name for path in files(tmp_path)] == ["incoming"]
    assert not blobs.exists(digest(b"half of it"))
    assert blobs.put(b"half of it, and the rest") == digest(b"half of it, and the rest")


_DIES = """
import os, sys
from nightmill.kernel.store.blobs import BlobStore

def chunks():
    yield b"half of it"
    os._exit(9)

BlobStore(sys.argv[1]).put_stream(chunks())
"""


def test_a_disk_that_refuses_makes_the_store_unavailable(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"a file where the folder should be")
    blobs = BlobStore(str(tmp_path / "blobs"))
    told = r"blob store .*: Not a directory; [\d,]+ bytes are free there: mend the disk"
    with pytest.raises(Unavailable, match=told):
        blobs.put(b"abc")


ROWS = st.lists(
    st.dictionaries(st.sampled_from(["id", "body", "ü"]), st.none() | st.integers() | st.text(max_size=20), min_size=1),
    min_size=1,
    max_size=20,
)


@given(rows=ROWS)
def test_rows_are_read_from_a_block_as_they_were_frozen(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    """M5: whatever line ends or separators stand in a document."""
    blobs = BlobStore(f"memory://{tmp_path_factory.getbasetemp().name}")
    ref = write_block(blobs, rows)
    reader = BlockReader(blobs, cached_blocks=1)
    assert ref.rows == len(rows)
    assert ref.bytes == len(blobs.get(ref.digest))
    assert reader.rows(ref.digest) == rows
    assert [reader.row(RowRef(block=ref.digest, row=n)) for n in range(len(rows))] == rows
    assert write_block(blobs, rows) == ref


def test_a_block_is_read_once_for_its_neighbours(tmp_path: Path) -> None:
    blobs = BlobStore(str(tmp_path))
    ref = write_block(blobs, [{"id": 1}, {"id": 2}])
    reader = BlockReader(blobs)
    assert reader.row(RowRef(block=ref.digest, row=0)) == {"id": 1}
    blobs.delete(ref.digest)
    assert reader.row(RowRef(block=ref.digest, row=1)) == {"id": 2}


def test_a_missing_block_or_pipeline_is_named_and_found_once_it_is_there(tmp_path: Path) -> None:
    blobs = BlobStore(str(tmp_path))
    frozen = Pipeline.model_validate(
        {
            "name": "tickets",
            "input": {"id": "id", "fields": ["body"]},
            "prompt": "x",
            "output": {},
            "model": {"pools": ["a"], "max_output_tokens": 1},
        }
    )
    blocks, pipelines = BlockReader(blobs), PipelineReader(blobs)
    with pytest.raises(BlobMissing):
        blocks.row(RowRef(block=ABSENT, row=0))
    with pytest.raises(BlobMissing):
        pipelines.get(digest(frozen.canonical()))
    assert pipelines.get(blobs.put(frozen.canonical())) == frozen
