"""What processes and folders used, as the kernel counts it: CPU time, peak memory, blocks of disk. Linux only."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: places of utime and stime in /proc/<pid>/stat after the command's closing bracket
_UTIME, _STIME = 11, 12
#: written to /proc/<pid>/clear_refs it starts the peak of resident memory anew; see proc(5)
_RESET_PEAK = "5"
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Seconds of CPU that each process had used at one moment, by name, with the pid it had."""

    cpu_s: Mapping[str, tuple[int, float]]

    def since(self, before: "Snapshot") -> dict[str, float | None]:
        """Seconds of CPU used in between; None for a name whose process is not the same one any more."""
        return {
            name: used - before.cpu_s[name][1] if name in before.cpu_s and before.cpu_s[name][0] == pid else None
            for name, (pid, used) in self.cpu_s.items()
        }


def snapshot(pids: Mapping[str, int]) -> Snapshot:
    """The CPU time of running processes now; one that has just ended is left out."""
    used = {name: (pid, _cpu_s(_read(f"{pid}/stat"))) for name, pid in pids.items()}
    return Snapshot(cpu_s={name: (pid, seconds) for name, (pid, seconds) in used.items() if seconds is not None})


def load_now() -> float:
    """The machine's load over the last minute, ours included."""
    return os.getloadavg()[0]


def busy_cores(seconds: float) -> float:
    """Cores busy on average over the next `seconds`: what others take, while nothing of ours is at work."""
    before, started_s = _busy_s(), time.perf_counter()
    time.sleep(seconds)
    return (_busy_s() - before) / (time.perf_counter() - started_s)


def peak_rss_mib(pid: int) -> float | None:
    """The most memory that the process held since the last reset, or None when it has ended."""
    text = _read(f"{pid}/status")
    lines = text.splitlines() if text else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


def reset_peak_rss(pid: int) -> None:
    """Let the peak begin at what the process holds now."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return


def cpu_by_thread(pid: int) -> dict[str, float]:
    """Seconds of CPU of a process's threads that run now, by thread name; a pool's threads have one name."""
    used: defaultdict[str, float] = defaultdict(float)
    for thread in sorted(Path(f"/proc/{pid}/task").glob("*")):
        name, seconds = _read(f"{pid}/task/{thread.name}/comm"), _cpu_s(_read(f"{pid}/task/{thread.name}/stat"))
        if name is not None and seconds is not None:
            used[name.strip().rstrip("0123456789")] += seconds
    return dict(used)


def disk_bytes(folder: Path) -> int:
    """Blocks that the files below a folder hold on disk: holes in sparse files do not count."""
    return sum(_blocks(path) for path in _files(folder)) * _BLOCK_BYTES


def _busy_s() -> float:
    """Seconds that all cores together were not idle since the machine started."""
    user, nice, system, _idle, _iowait, *others = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(others)) / _TICKS_PER_S


def _files(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path, name) for name in names)


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks
    except FileNotFoundError:  # stores delete files while they are looked at
        return 0


def _cpu_s(stat: str | None) -> float | None:
    if stat is None:
        return None
    # The command may hold spaces and brackets of its own.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S


def _read(name: str) -> str | None:
    try:
        return Path("/proc", name).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
