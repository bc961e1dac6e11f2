"""The provider gateway with a provider that takes no time: what the line itself costs, without HTTP.

    python tests/bench/instant_gateway.py

A process like `nightmill service provider_gateway`, by the same `NIGHTMILL_*` variables: the real service, leases,
rendering, adapter and outbox. Only the port behind which calls are made has another side: it stays within the permits,
makes marks and answers durable as the HTTP side does, and lets the adapter read a whole completion for each call.
"""

import json
import os
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from nightmill.kernel.runtime.observe import configure_logging
from nightmill.kernel.runtime.process import run_service
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings, load_config, read_settings
from nightmill.kernel.store.blobs import BlobStore
from nightmill.provider_gateway.bulk.worker import ThreadRunner
from nightmill.provider_gateway.caller import CLOSED, Call, CallResult, Permit
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.orders import concluded
from nightmill.provider_gateway.outbox import Landed, Outbox
from nightmill.provider_gateway.run import access_of
from nightmill.provider_gateway.service import ProviderGateway

_LABELS = "abc"
_HEADERS = {"content-type": "application/json"}
#: as in the gateway's own process, where threads share the interpreter too
_SWITCH_S = 0.0005
_JOIN_S = 5.0


def _completion(label: str) -> bytes:
    message = {"role": "assistant", "content": json.dumps({"label": label}), "refusal": None}
    usage = {"prompt_tokens": 70, "completion_tokens": 5, "total_tokens": 75}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    completion = {"id": f"chatcmpl-{label}", "object": "chat.completion", "created": 0, "model": "simulated"}
    return json.dumps({**completion, "choices": [choice], "usage": usage}).encode()


_RESPONSES = tuple(Response(status=200, headers=_HEADERS, body=_completion(label)) for label in _LABELS)


@dataclass(slots=True)
class _Lane:
    permit: Permit = CLOSED
    in_flight: int = 0
    ready: deque[Call] = field(default_factory=deque)


class InstantCaller:
    """Satisfies `Caller`: one thread that marks, answers and lands what the permits allow, round after round."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._lanes: dict[str, _Lane] = {}
        self._completed: deque[CallResult] = deque()
        self._changed = threading.Condition()  #: of lanes and of `_closing`
        self._closing = False
        self._died: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="instant-calls", daemon=True)
        self._thread.start()

    def permit(self, lane: str, permit: Permit) -> None:
        with self._changed:
            self._lanes.setdefault(lane, _Lane()).permit = permit
            self._changed.notify()

    def start(self, calls: Sequence[Call]) -> None:
        with self._changed:
            for call in calls:
                self._lanes.setdefault(call.lane, _Lane()).ready.append(call)
            self._changed.notify()

    def withdraw(self, lane: str) -> list[Call]:
        with self._changed:
            ready = self._lanes.setdefault(lane, _Lane()).ready
            taken = list(ready)
            ready.clear()
            return taken

    def in_flight(self, lane: str) -> int:
        known = self._lanes.get(lane)
        return 0 if known is None else known.in_flight

    def unsent(self, lane: str) -> frozenset[str]:
        with self._changed:
            known = self._lanes.get(lane)
            return frozenset() if known is None else frozenset(call.order.key for call in known.ready)

    def completed(self) -> list[CallResult]:
        if self._died is not None:
            raise RuntimeError("the thread that answers calls has failed") from self._died
        return [self._completed.popleft() for _ in range(len(self._completed))]

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_JOIN_S)

    # -- the thread

    def _run(self) -> None:
        try:
            while (begun := self._begin()) is not None:
                self._carry_out(begun)
        except BaseException as error:  # completed() raises it where the process can end of it
            self._died = error

    def _begin(self) -> list[Call] | None:
        """Calls that hold a slot now, once there are any; None at the end."""
        with self._changed:
            while not self._closing:
                begun = [call for lane in self._lanes.values() for call in _fill(lane, _now_ms())]
                if begun:
                    return begun
                self._changed.wait()
            return None

    def _carry_out(self, begun: Sequence[Call]) -> None:
        self._outbox.write([(call.order.key, call.order.partition) for call in begun], [])
        ended = [_answer(call) for call in begun]
        for call in begun:
            self._lanes[call.lane].in_flight -= 1
        landed = [Landed(partition=result.call.order.partition, answered=result.answered) for result in ended]
        self._outbox.write([], landed)
        self._completed.extend(ended)


def build(settings: Settings) -> Service:
    """The service as the gateway's own `build` makes it, but for its caller. Raises `SettingsError`."""
    config = load_config(settings.config_dir)
    accesses = {name: access_of(name, pool, config.prices, settings)[0] for name, pool in config.pools.items()}
    sys.setswitchinterval(_SWITCH_S)
    outbox = Outbox(settings.outbox_dir / f"provider_gateway-{settings.instance}")
    return ProviderGateway(
        instance=settings.instance,
        pools=accesses,
        blobs=BlobStore(settings.blobs_url),
        outbox=outbox,
        caller=InstantCaller(outbox),
        runner=ThreadRunner(
            settings.outbox_dir / f"bulk-{settings.instance}",
            blobs=BlobStore(settings.blobs_url),
            authorizations={},
            clock_ms=lambda: time.time_ns() // 1_000_000,
            request_s=60.0,
        ),
    )


def _fill(lane: _Lane, now_ms: int) -> list[Call]:
    if now_ms >= lane.permit.until_ms:
        return []
    room = max(0, lane.permit.slots - lane.in_flight)
    begun = [lane.ready.popleft() for _ in range(min(room, len(lane.ready)))]
    lane.in_flight += len(begun)
    return begun


def _answer(call: Call) -> CallResult:
    now_ms = _now_ms()
    response = _RESPONSES[zlib.crc32(call.request.body) % len(_RESPONSES)]
    reply = call.adapter.reply(response, now_ms=now_ms)
    answered = concluded(
        call.order, reply, started_at_ms=now_ms, ended_at_ms=now_ms, http_status=200, provider_request_id=None
    )
    return CallResult(call=call, answers=(answered,), served_model=reply.served_model)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> int:
    settings = read_settings(os.environ)
    configure_logging()
    return run_service(build(settings), settings)


if __name__ == "__main__":
    sys.exit(main())
