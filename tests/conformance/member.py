"""A service instance in a process of its own, to be killed: `python -m conformance.member BOOTSTRAP NAMESPACE INSTANCE
FOLDER ORDERS`.

It keeps a journal in FOLDER: a line at each thing that a test waits for. ORDERS say where it holds on: `stay=SOURCE`
(in the handler of that item, for ever), `die-in-commit` (at its first commit, when the broker has all of it but the
end), `ask-in-commit` (there it waits until the file `go` exists). It ends with 1 where a service's process would.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.recorder import Recorder
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.log import Fenced, LogUnavailable, OutcomeUnknown
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.service import Decision, Partition, Wait
from nightmill.kernel.runtime.transaction import Pace
from nightmill.kernel.wire.messages import ItemPlanned

_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Journal:
    """Lines in a file, each whole once it is seen."""

    path: Path

    def note(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8", buffering=1) as file:
            file.write(line + "\n")

    def lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8").splitlines()


class JournalingRecorder(Recorder):
    """Notes what it handles and what was committed; stays where it is told to."""

    def __init__(self, journal: Journal, stay: str | None) -> None:
        super().__init__()
        self._journal = journal
        self._stay = stay

    def on_item_planned(self, message: ItemPlanned, part: Partition) -> Decision | Wait:
        self._journal.note(f"handling {message.source_id}")
        while message.source_id == self._stay:
            time.sleep(_PAUSE_S)
        return super().on_item_planned(message, part)

    def start(self, effects: Sequence[object]) -> None:  # type: ignore[override]
        for effect in effects:
            self._journal.note(f"committed {effect}")


class HeldProducer:
    """A transactional producer that holds on where its transaction is written and not ended."""

    def __init__(self, producer: Any, journal: Journal, go: Path | None) -> None:
        self._producer = producer
        self._journal = journal
        self._go = go

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, timeout_s: float) -> None:
        self._producer.flush(timeout_s)
        self._journal.note("in commit")
        if self._go is None:
            os.kill(os.getpid(), signal.SIGKILL)
        while self._go is not None and not self._go.exists():
            time.sleep(_PAUSE_S)
        self._producer.commit_transaction(timeout_s)


def main(bootstrap: str, namespace: str, instance: str, folder: Path, orders: Sequence[str]) -> int:
    journal = Journal(folder / f"journal-{instance}")
    stay = next((order.removeprefix("stay=") for order in orders if order.startswith("stay=")), None)
    try:
        loop = Loop(
            JournalingRecorder(journal, stay),
            KafkaLog(bootstrap, namespace, 2),
            instance=instance,
            state_dir=folder / f"state-{instance}",
            clock_s=time.monotonic,
            pace=Pace(commit_every_ms=0),
        )
        if {"die-in-commit", "ask-in-commit"} & set(orders):
            session: Any = loop._session
            go = folder / "go" if "ask-in-commit" in orders else None
            session._producer = HeldProducer(session._producer, journal, go)
        owned: list[int] = []
        while True:
            loop.step(time.time_ns() // 1_000_000, 0.05)
            if loop.partitions != owned:
                owned = loop.partitions
                journal.note(f"owns {owned}")
    except (LogUnavailable, Fenced, OutcomeUnknown) as error:
        journal.note(f"ended by {type(error).__name__}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5:]))
