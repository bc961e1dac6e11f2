"""What processes used, as the kernel counts it in /proc: CPU time and peak memory. Linux only."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: places of utime and stime in /proc/<pid>/stat after the command's closing bracket
_UTIME, _STIME = 11, 12


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
    used = {name: (pid, _cpu_s(pid)) for name, pid in pids.items()}
    return Snapshot(cpu_s={name: (pid, seconds) for name, (pid, seconds) in used.items() if seconds is not None})


def peak_rss_mib(pid: int) -> float | None:
    """The most memory that the process ever held, or None when it has ended."""
    text = _read(pid, "status")
    lines = text.splitlines() if text else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


def _cpu_s(pid: int) -> float | None:
    text = _read(pid, "stat")
    if text is None:
        return None
    # The command may hold spaces and brackets of its own.
    fields = text.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S


def _read(pid: int, name: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
