"""One service as a process of the simulated line: built as by its run.py, killed, paused, moved, started again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightmill.kernel.runtime.disk import DiskRefused
from nightmill.kernel.runtime.log import Fenced, LogUnavailable, OutcomeUnknown, Timing
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.transaction import Pace
from simulation.bulk.runner import SimulatedRunner
from simulation.caller import SimulatedCaller
from simulation.parts import service_of
from simulation.seams import Killed, SimulatedLog, Turns

if TYPE_CHECKING:
    from simulation.world import World

#: what ends a process in the product too; its supervisor starts it again
_ENDS = (Killed, Fenced, OutcomeUnknown, LogUnavailable, DiskRefused)
_TIMING = {"rate_governor": Timing(session_timeout_ms=2000, transaction_timeout_ms=3000)}

SLEW = 0.1  #: a kernel lets a clock be slewed by up to a tenth (adjtimex(2), tick)
SLEW_MS = 40_000

_WAKES_BEFORE_MS = 500

_TICK_MS = 250  #: time alone gives a process something to do no oftener

Work = tuple[str, Callable[[], None]]


@dataclass
class Process:
    """A place on a host where a service's instance runs, or will run again."""

    world: "World"
    service: str
    instance: str
    loop: Loop | None = None
    log: SimulatedLog | None = None
    caller: SimulatedCaller | None = None
    runner: SimulatedRunner | None = None
    turns: Turns | None = None
    up_at_ms: int = 0  #: when it is started next
    paused_until_ms: int = 0
    stuck_until_ms: int = 0  #: its loop stands still before, its other threads do not
    blind_until_ms: int = 0  #: its views show nothing new before
    skew_ms: int = 0  #: its host's clock beside the world's
    slew: float = 0.0  #: how much too fast that clock runs, and for the next as long time too slow
    retired: bool = False  #: its host is gone for good
    busy: bool = False  #: in the middle of a step: nothing else of it can run
    looks: int = 0  #: steps in which its views could show what is new
    _started: bool = False
    _idle_at: tuple[int, int] | None = None  #: the world's activity and time when its last step had nothing to do

    @property
    def name(self) -> str:
        return f"{self.service}-{self.instance}"

    @property
    def home(self) -> Path:
        return self.world.root / self.name

    @property
    def outbox_path(self) -> str:
        return str(self.home / "outbox")

    @property
    def bulk_folder(self) -> Path:
        return Path(f"{self.outbox_path}-bulk")

    @property
    def alive(self) -> bool:
        return self.loop is not None

    @property
    def now_ms(self) -> int:
        """What its host's clock shows."""
        since_ms = self.world.now_ms - self.world.start_ms
        gone_ms = SLEW_MS - abs(since_ms % (2 * SLEW_MS) - SLEW_MS)
        return self.world.now_ms + self.skew_ms + int(self.slew * gone_ms)

    @property
    def pace(self) -> float:
        """How much of that clock's time passes while the world's does."""
        rising = (self.world.now_ms - self.world.start_ms) % (2 * SLEW_MS) < SLEW_MS
        return 1 + (self.slew if rising else -self.slew)

    @property
    def has_threads(self) -> bool:
        return self.caller is not None or self.turns is not None

    @property
    def careful(self) -> bool:
        """Whether its loop already suspects a record: a person's two kills must not hit the same one."""
        return self.loop is not None and self.loop._suspect.careful

    @property
    def runs(self) -> bool:
        """Whether it can do something now."""
        return self.alive and not self.busy and self.paused_until_ms <= self.world.now_ms

    @property
    def has_news(self) -> bool:
        """Whether a step may find something: after one that did not, when anything happened or some time has passed."""
        if self.stuck_until_ms > self.world.now_ms:
            return False
        if self._idle_at is None:
            return True
        activity, at_ms = self._idle_at
        return activity != self.world.activity or self.world.now_ms - at_ms >= _TICK_MS

    @property
    def is_blind(self) -> bool:
        """Whether its views show nothing new."""
        return self.world.broker.down or self.blind_until_ms > self.world.now_ms

    def point(self, what: str) -> None:
        self.world.moments.at_point(self, what)

    # -- its life

    def start(self) -> None:
        """A first or further life on what its disk holds."""
        world = self.world
        timing = _TIMING.get(self.service, Timing())
        pace_ms = {"rate_governor": 20, "ledger": 1000}.get(self.service, world.shape.commit_every_ms)
        if not self._started and world.mix.skew:
            self.skew_ms = world.random.randint(-4_000, 4_000)
        if not self._started and world.mix.slew and self.service == "provider_gateway":
            self.slew = world.random.choice((-SLEW, SLEW))
        self._started = True
        self.log = SimulatedLog(world.broker, timing, world.keep_ask, lambda: self.is_blind)
        world.note(self.name, "starts")
        self.busy = True
        try:
            self.loop = Loop(
                self._watched(service_of(self)),
                self.log,
                instance=self.instance,
                state_dir=self.home / "state",
                clock_s=lambda: world.now_ms / 1000,
                pace=Pace(commit_every_ms=pace_ms, poll_records=world.random.choice((3, 20, 500))),
            )
        except (LogUnavailable, DiskRefused) as error:
            self.die(f"{type(error).__name__} at its start")
        finally:
            self.busy = False

    def step(self) -> bool:
        """One step of its loop; whether anything was done."""
        assert self.loop is not None
        self.busy = True
        self.looks += not self.is_blind
        try:
            step = self.loop.step(self.now_ms)
        except _ENDS as error:
            self.die(type(error).__name__)
            return True
        finally:
            self.busy = False
        acted = bool(step.records) or step.committed
        self._idle_at = None if acted else (self.world.activity, self.world.now_ms)
        return acted

    def work(self) -> list[Work]:
        """What its other threads could do now."""
        if not self.runs:
            return []
        work: list[Work] = []
        if self.caller is not None:
            work.extend(("call", step) for step in self.caller.due())
        if self.runner is not None:
            work.extend(("errand", step) for step in self.runner.due())
        if self.turns is not None and self.turns.waiting:
            work.append(("effect", self.turns.turn))
        return work

    def do(self, work: Work) -> None:
        if self._falls_asleep(work[0]):
            naps_ms = (3_000, 6_000, 12_000) if work[0] == "call" else (5_000, 60_000, 90_000)
            self.paused_until_ms = self.world.now_ms + self.world.random.choice(naps_ms)
            self.world.note(self.name, f"is stopped in a {work[0]} for {self.paused_until_ms - self.world.now_ms} ms")
            return
        if self._sleeps_to_the_end():
            return
        self.busy = True
        self.world.activity += 1
        try:
            work[1]()
        except _ENDS as error:
            self.die(type(error).__name__)
        finally:
            self.busy = False

    def _sleeps_to_the_end(self) -> bool:
        """Whether it is stopped with calls that were about to leave, and wakes when their lease is almost over.

        Its loop comes back later, so nobody renews the lease.
        """
        end_ms = 0 if self.caller is None else self.caller.permitted_until_ms
        if end_ms - self.now_ms <= _WAKES_BEFORE_MS or not self.world.happens("pause_to_end"):
            return False
        nap_ms = int((end_ms - self.now_ms) / self.pace) - self.world.random.randint(1, _WAKES_BEFORE_MS)
        self.paused_until_ms = self.world.now_ms + max(1, nap_ms)
        self.stuck_until_ms = self.paused_until_ms + self.world.random.choice((9_000, 12_000))
        self.world.note(self.name, f"is stopped before a send for {nap_ms} ms")
        return True

    def _falls_asleep(self, work: str) -> bool:
        if work == "call":
            return self.world.happens("pause_in_call")
        return work == "errand" and self.world.bulk is not None and self.world.bulk.happens("pause_before_errand")

    def die(self, why: str) -> None:
        """Its memory is gone; its disk, its broker session and whatever it sent stay as they are."""
        self.world.note(self.name, f"dies: {why}")
        if self.loop is not None:
            self.loop.abandon()
        self._let_go()
        self.up_at_ms = self.world.now_ms + self.world.random.choice((50, 1_000, 8_000, 20_000))

    def stop(self) -> None:
        """An orderly stop."""
        assert self.loop is not None
        self.world.note(self.name, "stops")
        self.busy = True
        try:
            self.loop.close()
        except _ENDS as error:
            self.world.note(self.name, f"stop fails: {type(error).__name__}")
            self.loop.abandon()
        finally:
            self.busy = False
        self._let_go()
        self.up_at_ms = self.world.now_ms + self.world.random.choice((50, 1_000, 8_000))

    def _let_go(self) -> None:
        if self.caller is not None:
            self.caller.hang_up()
        self.loop = self.log = self.caller = self.runner = self.turns = self._idle_at = None
        self.paused_until_ms = self.stuck_until_ms = 0

    def _watched(self, service: Service) -> Service:
        """The service with a point at each handler's begin and end, where the seed kills there."""
        if self.world.mix.crash_in_handler == 0:
            return service
        names = [name for name in dir(service) if name.startswith("on_") and name not in _NO_HANDLERS]
        for name in [*names, "on_tick"]:
            setattr(service, name, self._at_points(name, getattr(service, name)))
        return service

    def _at_points(self, name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            self.point(f"before {name}")
            decision = handler(*arguments)
            self.point(f"after {name}")
            return decision

        return watched


_NO_HANDLERS = frozenset({"on_open", "on_close", "on_flush", "on_quarantined", "on_tick"})
