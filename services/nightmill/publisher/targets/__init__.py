"""Targets by the name that `publish.target` of a pipeline gives."""

from collections.abc import Callable
from pathlib import Path

from nightmill.kernel.store.blobs import BlobStore
from nightmill.publisher.targets.files import FilesTarget
from nightmill.publisher.targets.port import Target

#: name → (the dataset's root folder, blobs) → target
TARGETS: dict[str, Callable[[Path, BlobStore], Target]] = {"files": FilesTarget}


class Targets:
    """The target of each dataset, opened once."""

    def __init__(self, results_dir: Path, blobs: BlobStore) -> None:
        self._results_dir = results_dir
        self._blobs = blobs
        self._open: dict[tuple[str, str], Target] = {}

    def of(self, kind: str, dataset_id: str) -> Target:
        """The target `kind` of a dataset."""
        key = (kind, dataset_id)
        if key not in self._open:
            self._open[key] = TARGETS[kind](self._results_dir / dataset_id, self._blobs)
        return self._open[key]
