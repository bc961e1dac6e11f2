"""A lease that ends while a call's mark is written: the real caller and a real socket, on a slow disk."""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.caller import Call, Permit
from nightmill.provider_gateway.http import HttpCaller
from nightmill.provider_gateway.outbox import Landed, Outbox
from nightmill.provider_gateway.render import Renderer
from simulation.removals import lease_end_before_send
from unit.provider_gateway.caller_desk import KEY, LANE
from unit.provider_gateway.makers import POOL, completion, make_access, make_documents, make_order, make_shard
from unit.provider_gateway.raw_provider import RawProvider, http_response

_LEASE_MS = 4_000


class _Host:
    """A clock, and an outbox whose first write takes as long as a lease."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = 0
        self.written = threading.Event()
        self.documents = make_documents(folder / "blobs")
        self.outbox = Outbox(folder / "outbox")
        write = self.outbox.write

        def slow_write(marks: Iterable[tuple[str, int]], answers: Iterable[Landed]) -> None:
            write(marks, answers)
            self.now_ms = _LEASE_MS
            self.written.set()

        self.outbox.write = slow_write  # type: ignore[method-assign]
        self.caller = HttpCaller(
            self.outbox,
            put_blob=self.documents.blobs.put,
            authorizations={POOL: f"Bearer {KEY}"},
            clock_ms=lambda: self.now_ms,
        )
        self.caller.permit(LANE, Permit(slots=1, until_ms=_LEASE_MS))

    def call(self, base_url: str) -> Call:
        order = make_order(make_shard(self.documents, range(1)), 0)
        call = Renderer(self.documents.blobs).call(order, make_access(base_url), LANE)
        assert isinstance(call, Call)
        return call

    def close(self) -> None:
        self.caller.close()
        self.outbox.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[_Host]:
    made = _Host(tmp_path)
    yield made
    made.close()


def test_a_call_whose_lease_ended_while_it_was_marked_is_not_sent(host: _Host) -> None:
    """E2: others have its slot; it waits, unsent, as the first of its lane."""
    with RawProvider([http_response(json.dumps(completion()).encode())]) as provider:
        call = host.call(provider.base_url)
        host.caller.start([call])
        host.written.wait()
        while not (back := host.caller.withdraw(LANE)):
            time.sleep(0.005)
        assert (back, host.caller.in_flight(LANE), provider.requests) == ([call], 0, [])


def test_without_the_look_at_the_clock_it_is_sent(host: _Host) -> None:
    """M3, E2: it is this look in `Slots.let_go` that keeps it back, and nothing else on the way to the socket."""
    with RawProvider([http_response(json.dumps(completion()).encode())]) as provider, lease_end_before_send():
        host.caller.start([host.call(provider.base_url)])
        while not (ended := host.caller.completed()):
            time.sleep(0.005)
    assert host.now_ms >= _LEASE_MS
    assert len(provider.requests) == 1
    assert [result.answered.state for result in ended] == [AttemptState.ANSWERED]
