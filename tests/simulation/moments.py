"""Moments in the middle of what a process does: it may die or sleep there, and others may go first.

So two processes meet in any order: in a commit, in a publication, between the requests of an errand.
"""

from typing import TYPE_CHECKING

from nightmill.kernel.runtime.log import OutcomeUnknown
from nightmill.kernel.runtime.memory import CommitPoint, MemorySession
from simulation.seams import Killed, SimulatedSession

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.world import World


class Moments:
    """Of one world. `depth`: of processes that wait in their middle for others."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.depth = 0

    def at_point(self, process: "Process", what: str) -> None:
        """A process is in the middle of something."""
        if what.startswith(("before on_", "after on_")):
            if self._world.mix.crash_in_handler and process.loop is not None and not process.careful:
                self._strike(process, "crash_in_handler", what)
            return
        self._let_others()
        self._strike(process, "crash_in_publish", what)

    def at_errand(self, process: "Process", what: str, *, dies: bool) -> None:
        """A process is in the middle of an errand."""
        self._let_others()
        if dies:
            self._world.note(process.name, f"is killed {what}")
            raise Killed

    def at_commit(self, session: MemorySession, point: CommitPoint) -> None:
        process = next(p for p in self._world.processes if p.log is not None and p.log.opened is session)
        match point:
            case CommitPoint.BEFORE:
                self._sleep(process)
                self._strike(process, "crash_before_commit", "before its commit")
            case CommitPoint.WRITTEN:
                self._let_others()
                self._strike(process, "crash_in_commit", "in its commit")
                self._lose_broker()
                if self._world.happens("unknown_commit"):
                    self._world.note(process.name, "commit of unknown outcome (not done yet)")
                    raise OutcomeUnknown("simulated")
            case CommitPoint.DONE:
                assert isinstance(session, SimulatedSession)
                self._world.activity += 1
                self._world.checker.committed(process.name, session.records)
                self._world.faults.remember(session.records)
                self._strike(process, "crash_after_commit", "after its commit")
                self._lose_broker()
                if self._world.happens("unknown_commit"):
                    self._world.note(process.name, "commit of unknown outcome (done)")
                    raise OutcomeUnknown("simulated")

    def _lose_broker(self) -> None:
        """The broker goes away and its answer to a commit with it, or it is away already."""
        if self._world.happens("broker_away"):
            self._world.faults.lose_broker()
        if self._world.broker.down:
            raise OutcomeUnknown("simulated")

    def _strike(self, process: "Process", fault: str, what: str) -> None:
        if self._world.happens(fault):
            self._world.note(process.name, f"is killed {what}")
            raise Killed

    def _sleep(self, process: "Process") -> None:
        """The process is stopped in the middle of its step, long enough to be given up; it will not know."""
        if self.depth or not self._world.happens("pause_in_step"):
            return
        self._world.note(process.name, "is stopped before its commit")
        self.stop(process, self._world.random.choice((7_000, 12_000)))

    def stop(self, process: "Process", for_ms: int, *, stride_ms: int = 100) -> None:
        """A process is stopped in the middle of what it does, and others go on."""
        process.paused_until_ms = self._world.now_ms + for_ms
        self.depth += 1
        try:
            for _ in range(150):
                self._world.pass_time(int(self._world.random.expovariate(1 / stride_ms)))
                self._world.wake()
                self._world.go(self._world.processes)
                if self._world.now_ms >= process.paused_until_ms:
                    break
        finally:
            self.depth -= 1
            process.paused_until_ms = 0

    def _let_others(self) -> None:
        """Others go first, for a while."""
        if self._world.calm or self.depth or self._world.random.random() < 0.8:
            return
        self.depth += 1
        try:
            for _ in range(self._world.random.choice((1, 5, 20))):
                self._world.pass_time(int(self._world.random.expovariate(1 / self._world.shape.tempo_ms)))
                self._world.go(self._world.processes)
        finally:
            self.depth -= 1
