"""One job, as its submitter holds it."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

from nightmill.api.findings import CostAnswer
from nightmill.api.models import JobStatus
from nightmill.client.connection import Connection
from nightmill.client.progress import STOPPED, Pace, Progress
from nightmill.kernel.domain.lifecycle import Command

_POLL_S = 0.5
_APPLIED_S = 10.0


class Job:
    """A handle: nothing but an id and a connection. All methods raise `NightmillError`."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self.job_id = job_id
        self._connection = connection
        self._path = f"/v1/jobs/{quote(job_id, safe='')}"

    def __repr__(self) -> str:
        return f"Job({self.job_id!r})"

    def status(self) -> JobStatus:
        """Where it stands now."""
        return JobStatus.model_validate(self._connection.get(self._path))

    def wait(self, on_progress: Callable[[Progress], None] | None = None, *, poll_s: float = _POLL_S) -> JobStatus:
        """Block until it is published, held, cancelled or refused; `on_progress` is called at each look."""
        pace = Pace()
        while True:
            status = self.status()
            if on_progress is not None:
                on_progress(pace.observe(status, time.monotonic()))
            if status.state in STOPPED:
                return status
            time.sleep(poll_s)

    def results(self, *, staged: bool = False) -> Iterator[dict[str, Any]]:
        """Accepted rows as they come; with `staged`, those that an unfinished job has so far."""
        params = {"job": self.job_id, "staged": staged}
        return map(json.loads, self._connection.stream_lines("/v1/results", params))

    def cost(self, by: Literal["stage", "model", "cause"] = "stage") -> CostAnswer:
        """What its calls cost, from the ledger."""
        return CostAnswer.model_validate(self._connection.get(f"{self._path}/cost", {"by": by}))

    def cancel(self, reason: str | None = None) -> JobStatus:
        """End it; calls in flight are finished and kept. Returns where it stands once the publisher has decided."""
        return self._command(Command.CANCEL, reason)

    def resume(self, reason: str | None = None) -> JobStatus:
        """Go on after a hold or a cancel: what has no final outcome is run again, what was paid for is kept."""
        return self._command(Command.RESUME, reason)

    def approve(self, reason: str | None = None) -> JobStatus:
        """Publish a held job although a gate objects."""
        return self._command(Command.APPROVE, reason)

    def order(self, command: Command, reason: str | None = None) -> JobStatus:
        """Have a command accepted; the publisher decides it later. Returns where the job stood before."""
        before = self.status()
        body = {"reason": reason, "actor": "client"}
        self._connection.post(f"{self._path}/{command.value}", body, key=uuid4().hex)
        return before

    def change_from(self, before: JobStatus) -> JobStatus:
        """Where it stands once state or generation differ from `before`; after ten seconds without one, `before`."""
        deadline_s = time.monotonic() + _APPLIED_S
        while time.monotonic() < deadline_s:
            after = self.status()
            if (after.state, after.generation) != (before.state, before.generation):
                return after
            time.sleep(_POLL_S / 5)
        return before

    def _command(self, command: Command, reason: str | None) -> JobStatus:
        return self.change_from(self.order(command, reason))
