"""A disk that can be filled and emptied while processes write to it.

`small_disk` mounts one over a folder: ext4 on a sparse file, else tmpfs. Where mounting is forbidden (it needs root and
a kernel that lets it), `fill` forbids the processes instead to write to any file (RLIMIT_FSIZE), which
the system refuses in the same calls with "File too large": other words, the same trouble.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: what the system says on a disk of either kind
FULL = ("No space left", "File too large", "not enough space")
_STEP = 64 << 20


@dataclass
class Disk:
    """The disk below `folder`. `mounted` is False where only processes can be limited."""

    folder: Path
    mounted: bool

    def fill(self, processes: Iterable[int] = ()) -> None:
        """Leave no byte; without a mount, for `processes` and what they start."""
        if not self.mounted:
            _limit(processes, 0)
            return
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            step = _STEP
            while step:
                try:
                    os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), step)
                except OSError:
                    step //= 2

    def spare(self, size: int) -> None:
        """Give back a little of what `fill` took of a mounted disk."""
        filler = self.folder / "filler"
        os.truncate(filler, filler.stat().st_size - size)

    def free(self, processes: Iterable[int] = ()) -> None:
        """Give back what `fill` took."""
        if self.mounted:
            (self.folder / "filler").unlink()
        else:
            _limit(processes, resource.RLIM_INFINITY)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Disk]:
    """`folder` as a disk of this size; gone at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.with_name(f"{folder.name}.img")
    undo = _mount_image(folder, image, mebibytes) or _mount_tmpfs(folder, mebibytes)
    try:
        yield Disk(folder, mounted=undo is not None)
    finally:
        if undo is not None:
            undo()
        image.unlink(missing_ok=True)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A folder that not even root can write to: a read-only mount over `folder`, else one of the kernel's own."""
    folder.mkdir(parents=True, exist_ok=True)
    if _runs("mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)):
        try:
            yield folder
        finally:
            _unmount(folder)
    else:
        yield Path("/proc/self")


def _mount_image(folder: Path, image: Path, mebibytes: int) -> Callable[[], None] | None:
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    made = _runs("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    if not made or not _runs("mount", "-o", "loop", str(image), str(folder)):
        return None
    return lambda: _unmount(folder)


def _mount_tmpfs(folder: Path, mebibytes: int) -> Callable[[], None] | None:
    if not _runs("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)):
        return None
    return lambda: _unmount(folder)


def _unmount(folder: Path) -> None:
    # a process that still has a file open there keeps the disk until it ends, and nobody sees it any more
    if not _runs("umount", str(folder)):
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _limit(processes: Iterable[int], longest: int) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (longest, hard))
