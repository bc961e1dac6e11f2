"""Where the services' time goes: stacks sampled by py-spy while a job runs, and what they add up to."""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.tools import SAMPLER, environment_of
from bench.usage import cpu_by_thread

#: not a divisor of the services' own intervals
_SAMPLES_PER_S = 97
_END_TIMEOUT_S = 60.0
_PRODUCT = "(nightmill/"
#: where every stack begins
_TRUNK = ("(nightmill/cli/", "(nightmill/kernel/runtime/process.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One service: shares of its samples by function, and of its CPU by thread."""

    samples: int
    self_share: Mapping[str, float]  #: the function itself ran, or C code that it called
    inclusive_share: Mapping[str, float]  #: a function of the product stood anywhere on the stack
    thread_share: Mapping[str, float]  #: threads without Python code are seen only here


class NotSampled(Exception):
    """A process could not be sampled; the text says why."""


class Sampler:
    """Samples processes in the block `sampling`; `profiles` afterwards.

    Threads that wait are left out. Processes are not stopped for a sample: the few stacks that are torn by it cost less
    truth than a stop would, which takes longer than the work it interrupts.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` takes one file of collapsed stacks a process, as flame graph programs read them."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._threads: dict[str, Mapping[str, float]] = {}

    @contextmanager
    def sampling(self, pids: Mapping[str, int]) -> Iterator[None]:
        before = {name: cpu_by_thread(pid) for name, pid in pids.items()}
        samplers = {name: self._start(name, pid) for name, pid in pids.items()}
        try:
            yield
        finally:
            self._threads = {name: _used(before[name], cpu_by_thread(pid)) for name, pid in pids.items()}
            for each in samplers.values():
                each.send_signal(signal.SIGINT)  # it writes what it has
            for each in samplers.values():
                _end(each)

    def profiles(self) -> dict[str, Profile]:
        """By process; one that was not sampled even once is left out. Raises `NotSampled`."""
        found = {name: count_stacks(self._lines(name), threads) for name, threads in self._threads.items()}
        return {name: profile for name, profile in found.items() if profile is not None}

    def _start(self, name: str, pid: int) -> "subprocess.Popen[bytes]":
        options = ["--format", "raw", "--function", "--threads", "--nonblocking", "--rate", str(_SAMPLES_PER_S)]
        command = [environment_of(SAMPLER) / "py-spy", "record", *options, "--output", self._file(name)]
        self._file(name).unlink(missing_ok=True)
        with self._file(name).with_suffix(".log").open("wb") as log:
            return subprocess.Popen([*map(str, command), "--pid", str(pid)], stdout=log, stderr=subprocess.STDOUT)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.stacks"

    def _lines(self, name: str) -> list[str]:
        if not self._file(name).exists():
            said = self._file(name).with_suffix(".log").read_text(encoding="utf-8", errors="replace")
            raise NotSampled(f"py-spy took no samples of {name}: {said.strip()[-1000:]}")
        return self._file(name).read_text(encoding="utf-8").splitlines()


def count_stacks(lines: Iterable[str], thread_share: Mapping[str, float]) -> Profile | None:
    """Collapsed stacks, `thread;outermost;…;innermost number`, added up. None without a single sample."""
    own, inclusive = Counter[str](), Counter[str]()
    for line in lines:
        stack, _, number = line.rpartition(" ")
        functions = stack.split(";")[1:]
        if not functions:  # a thread that was just starting
            continue
        own[functions[-1]] += int(number)
        for function in set(filter(_is_told, functions)):  # once, however deep it recurs
            inclusive[function] += int(number)
    samples = own.total()
    if not samples:
        return None
    return Profile(
        samples=samples,
        self_share=_shares(own, samples),
        inclusive_share=_shares(inclusive, samples),
        thread_share=thread_share,
    )


def _shares(counts: Counter[str], samples: int) -> dict[str, float]:
    return {function: number / samples for function, number in counts.most_common()}


def _is_told(function: str) -> bool:
    return _PRODUCT in function and not any(root in function for root in _TRUNK)


def _used(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    used = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    total = sum(used.values())
    return {name: seconds / total for name, seconds in used.items() if seconds > 0} if total > 0 else {}


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
