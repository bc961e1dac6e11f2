"""What is said when a disk refuses: the place, the reason, what is free there, and the remedy (O1)."""

import shutil
from pathlib import Path

_REMEDIES = (
    ("no space left", "free space there; work goes on by itself"),
    ("disk quota", "free space there or raise the quota; work goes on by itself"),
    ("too many open files", "raise the limit of open files (ulimit -n)"),
    ("file too large", "raise the limit of file sizes (ulimit -f)"),
    ("read-only", "make it writable"),
    ("permission denied", "mend its rights"),
    ("lock", "stop the other process that uses it"),
)


class DiskRefused(Exception):
    """A local folder can not be opened or written. The process ends; its restart goes on from the log."""


def refusal(place: Path, error: BaseException) -> str:
    """One sentence for an error that a file operation or a store in `place` ended with."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in reason.lower()), "mend the disk")
    return f"{place}: {reason}; {free_bytes(place):,} bytes are free there: {remedy}"


def free_bytes(place: Path) -> int:
    """Bytes that can still be written at `place` or at the nearest folder above it that exists."""
    existing = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free
