"""The world of one seed: broker, disks, provider, processes and people under one scheduler and one clock.

Nothing here decides by itself: the scheduler picks who goes next, lets time pass and does harm, all from one `Random`.
What may happen in the middle of what a process does is in `moments`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from nightmill.kernel.domain.ids import digest
from simulation import disk
from simulation.bulk.lane import BulkLane
from simulation.bulk.mix import draw_bulk
from simulation.checker import Checker
from simulation.clickhouse import Connection, SimulatedClickHouse
from simulation.disk import Disks
from simulation.ears import listening
from simulation.faults import Faults
from simulation.mix import Focus, Mix, draw_mix, draw_shape
from simulation.moments import Moments
from simulation.process import Process
from simulation.provider import Provider
from simulation.seams import SimulatedBroker
from simulation.stranger import Strangers
from simulation.trace import Trace
from simulation.user import User, config_of, input_factor_of

START_MS = 1_767_225_600_000  #: 2026-01-01
INSTANCES = {
    "planner": 1,
    "dispatcher": 2,
    "validator": 2,
    "publisher": 1,
    "rate_governor": 1,
    "provider_gateway": 2,
    "ledger": 1,
}
_CALM_ROUNDS = 3_000
_LONG_LAG = 1_000_000
_LONGEST_STRIDE_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a seed came to."""

    seed: int
    digest: str  #: of every event in its order
    turns: int
    virtual_s: float
    items: int
    calls: int  #: realtime ones, and lines of batches that ran
    batches: int  #: at the provider's Batch API


class World:
    """One seed's world; `root` is an empty folder for what is written as files.

    `focus`: faults and shape in place of the seed's own.
    """

    def __init__(self, seed: int, root: Path, focus: Focus | None = None) -> None:
        self.seed, self.root, self.results = seed, root, root / "results"
        self.random = Random(seed)
        self.mix, self.shape = draw_mix(self.random, Random(f"{seed} late")), draw_shape(self.random)
        if focus is not None:
            self.mix, self.shape = focus.mix(), replace(self.shape, **focus.shape)
        self.now_ms = self.start_ms = START_MS
        self.calm = False
        self.staging_away = self.backlog = False
        self.turns = 0
        self.activity = 0  #: grows whenever anything happens that somebody could notice
        self.trace = Trace()
        self.disks = Disks()
        self.blobs: dict[str, bytes] = {}
        self.config = config_of(self.shape)
        drawn = draw_bulk(seed) if focus is None else focus.draw_bulk(seed)
        self.bulk = None if drawn is None else BulkLane(self, drawn)
        if self.bulk is not None:
            self.config = self.bulk.config(self.config)
        self.clickhouse = SimulatedClickHouse()
        stagger = self.random if self.random.random() < 0.7 else None
        self.broker = SimulatedBroker(partitions=2, now_ms=START_MS, stagger=stagger)
        self.moments = Moments(self)
        self.broker.at_commit = self.moments.at_commit
        self.broker.on_wait = lambda seconds: self.pass_time(max(1, int(seconds * 1000)))
        self._log = self.broker.log()
        factor = input_factor_of(self.shape)
        self.provider = Provider(self.random, self.mix, input_factor=factor, now_ms=START_MS)
        self.strangers = Strangers()
        self.checker = Checker(self)
        self.processes = [
            Process(self, service, str(number)) for service, count in INSTANCES.items() for number in range(count)
        ]
        self.user = User(self)
        self.faults = Faults(self)

    # -- the whole way

    def run(self) -> Run:
        """Faults, then calm until everything is done. Raises `Violation`, and whatever a service raises."""
        with disk.installed(self.disks), listening(self.checker.heard):
            try:
                idle = 0
                for _ in range(self.shape.turns):
                    idle = 0 if self._turn(idle) else idle + 1
                self._calm_down()
                self._drain()
                self.checker.at_end()
            finally:
                for process in self.processes:
                    if process.loop is not None:
                        process.loop.abandon()
        return Run(
            seed=self.seed,
            digest=self.trace.digest(),
            turns=self.turns,
            virtual_s=(self.now_ms - START_MS) / 1000,
            items=len(self.checker.items),
            calls=len(self.provider.seen),
            batches=0 if self.bulk is None else len(self.bulk.api.batches),
        )

    def _turn(self, idle: int) -> bool:
        """One turn of the scheduler; whether anything was done."""
        self.turns += 1
        self.pass_time(self._stride(idle))
        self.wake()
        self.faults.turn()
        self.user.turn()
        return self.go(self.processes)

    def _stride(self, idle: int) -> int:
        if idle > 2:
            return self.random.choice(self.shape.idle_ms)
        if self.random.random() < self.shape.leaps:
            return self.random.choice((1_000, 4_000))
        return int(self.random.expovariate(1 / self.shape.tempo_ms))

    def go(self, processes: list[Process]) -> bool:
        """Somebody does something."""
        work = [(process, each) for process in processes if process.has_threads for each in process.work()]
        if work and self.random.random() < 0.5:
            process, chosen = self.random.choice(work)
            process.do(chosen)
            return True
        ready = [process for process in processes if process.runs and process.has_news]
        return bool(ready) and self.random.choice(ready).step()

    def _calm_down(self) -> None:
        self.calm = True
        self.provider.mix = Mix()
        if self.bulk is not None:
            self.bulk.calm_down()
        self.note("world", "calm")
        self.faults.end()

    def _drain(self) -> None:
        """Everybody in turn, until nothing is left to do; strides grow while nothing happens."""
        stride_ms, quiet = 60, 0
        for _ in range(_CALM_ROUNDS):
            self.turns += 1
            self.pass_time(stride_ms)
            self.wake()
            acted = False
            for process in self.processes:
                for each in process.work():
                    process.do(each)
                    acted = True
                    break
                acted = (process.runs and process.has_news and process.step()) or acted
            stride_ms = 60 if acted else min(stride_ms * 2, _LONGEST_STRIDE_MS)
            if not acted:
                quiet = quiet + 1 if self.user.settle() and self.checker.is_drained() else 0
                if quiet > 2:
                    return
        self.checker.not_drained()

    def wake(self) -> None:
        for process in self.processes:
            if not process.alive and not process.retired and not process.busy and process.up_at_ms <= self.now_ms:
                process.start()

    # -- what the seams ask

    def happens(self, fault: str) -> bool:
        """Whether a fault of the mix strikes at this opportunity."""
        chance: float = getattr(self.mix, fault)
        return chance > 0 and not self.calm and self.random.random() < chance

    def keep_ask(self) -> bool:
        self.activity += 1
        return not self.happens("lost_ask")

    def pass_time(self, ms: int) -> None:
        """Time passes for everybody; those that are not stopped send their heartbeats meanwhile."""
        self.now_ms += ms
        for process in self.processes:
            if process.log is not None and process.log.opened is not None and process.paused_until_ms <= self.now_ms:
                process.log.opened.heard_ms = self.now_ms
        self.broker.now_ms = self.now_ms
        self.broker.let_markers_come()
        self.provider.work(self.now_ms)
        if self.bulk is not None:
            self.bulk.api.work()
        self.checker.calls_in_flight()

    def looks_of(self, name: str) -> int:
        return next(process.looks for process in self.processes if process.name == name)

    def item_lag(self) -> int | None:
        if self.broker.down:
            return None
        return _LONG_LAG if self.backlog else self._log.lag("dispatcher", "item-planned")

    def lag(self, service: str, topic: str) -> int:
        return self._log.lag(service, topic)

    def keep_blob(self, data: bytes) -> str:
        name = digest(data)
        self.blobs[name] = data
        return name

    def rival(self, root: Path, version: int) -> None:
        """A pointer is about to be created; somebody else may be faster."""
        if self.happens("stranger") and self.strangers.publish(root, version):
            self.note("stranger", f"publishes version {version} of {root.name}")

    def ledger_seen_by(self, process: Process) -> Connection:
        return Connection(self.clickhouse, process.point)

    def note(self, actor: str, event: str) -> None:
        self.activity += 1
        self.trace.note(self.now_ms, actor, event)
