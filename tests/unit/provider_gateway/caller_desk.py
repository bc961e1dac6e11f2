"""A caller over real sockets, and the calls a test starts on it."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.wire.messages import AttemptAnswered, Failure
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.http import HttpCaller
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.render import Renderer
from unit.provider_gateway.makers import PIPELINE, POOL, make_access, make_documents, make_order, make_shard

LANE = "sim@0-0"
KEY = "sk-secret"


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Desk:
    """A caller with an outbox; one lane, permitted from the start."""

    def __init__(
        self,
        folder: Path,
        *,
        key: str = KEY,
        rows: Sequence[Mapping[str, Any]] = (),
        pipeline: Pipeline = PIPELINE,
    ) -> None:
        self.documents = make_documents(folder / "blobs", rows, pipeline)
        self.outbox = Outbox(folder / "outbox")
        self.put: Callable[[bytes], str] = self.documents.blobs.put
        self.caller = HttpCaller(
            self.outbox,
            put_blob=self._put,
            authorizations={POOL: f"Bearer {key}"},
            clock_ms=clock_ms,
        )
        self.permit()

    def _put(self, data: bytes) -> str:
        return self.put(data)

    def permit(self, slots: int = 8, for_ms: int = 60_000) -> None:
        self.caller.permit(LANE, Permit(slots=slots, until_ms=clock_ms() + for_ms))

    def calls(self, base_url: str, rows: int = 1, *, deadline_s: float = 30.0, **pool: Any) -> list[Call]:
        shard = make_shard(self.documents, range(rows))
        access = make_access(base_url, call_deadline=deadline_s, **pool)
        renderer = Renderer(self.documents.blobs)
        calls = [renderer.call(make_order(shard, index), access, LANE) for index in range(rows)]
        return [call for call in calls if isinstance(call, Call)]

    def results(self, count: int = 1) -> list[CallResult]:
        found: list[CallResult] = []
        while len(found) < count:
            found += self.caller.completed()
            time.sleep(0.005)
        return found

    def call(self, base_url: str, *, deadline_s: float = 30.0, **pool: Any) -> AttemptAnswered:
        self.caller.start(self.calls(base_url, deadline_s=deadline_s, **pool))
        return self.results()[0].answered

    def together(self, base_url: str, rows: int, *, deadline_s: float = 30.0, **pool: Any) -> CallResult:
        """One call for so many rows."""
        shard = make_shard(self.documents, range(rows))
        access = make_access(base_url, call_deadline=deadline_s, **pool)
        orders = [make_order(shard, index) for index in range(rows)]
        made = Renderer(self.documents.blobs).rendered(orders, access, LANE).call
        assert made is not None
        self.caller.start([made])
        return self.results()[0]

    def close(self) -> None:
        self.caller.close()
        self.outbox.close()


def failure_of(answered: AttemptAnswered) -> Failure:
    assert answered.failure is not None
    return answered.failure
