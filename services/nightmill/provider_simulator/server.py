"""The provider's HTTP face: it carries out replies over sockets and keeps the books while it does so.

Routes: the provider's own under /v1, /health, and /__sim/ for whoever runs the test. Cut, dripped and reset replies
are written to the transport directly, since a web framework exists to prevent them. State is in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from pydantic_core import from_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.bill import Call, Ledger
from nightmill.provider_simulator.buckets import Buckets
from nightmill.provider_simulator.chat import check_headers, read_request
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.reply import Manner, Reply, over_limit, plan, refused
from nightmill.provider_simulator.scenario import Framing, Scenario, ScenarioError, parse_scenario

MAX_BODY_BYTES = 64 * 2**20
DEFAULT_MODEL = "simulated-model"

_WATCH_S = 0.02  # how often a held connection is looked at
_DIGEST_BYTES = 16
_NO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST in place of FIN
_REASONS = {200: b"OK"}


@dataclass(slots=True)
class _Run:
    """What starts anew when the scenario is set."""

    scenario: Scenario
    started_at_ms: int
    arrivals: int = 0
    buckets: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = Buckets(self.scenario.rate_limit, now_ms=self.started_at_ms)


class Simulator:
    """One simulated provider; `app()` is its HTTP application."""

    def __init__(self, scenario: Scenario, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._run = _Run(scenario, now_ms())
        self._ledger = Ledger()

    def app(self) -> web.Application:
        """A new application on this provider's state."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/__sim/ledger", self._totals),
                web.get("/__sim/ledger/attempts", self._attempts),
                web.put("/__sim/scenario", self._set_scenario),
                web.post("/__sim/reset", self._reset),
                web.route("*", "/{path:.*}", self._unknown),
            ]
        )
        return app

    # The provider

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        ledger, now_ms = self._ledger, self._now_ms()
        call = ledger.open(
            attempt_id=request.headers.get("X-Client-Request-Id"),
            body_digest=hashlib.sha256(body).digest()[:_DIGEST_BYTES],
            now_ms=now_ms,
        )
        try:
            reply = self._decide(request, body, call, now_ms)
            call.accepted, call.fault, call.code = reply.accepted, reply.fault, reply.code
            if reply.wait_ms > 0:
                await asyncio.sleep(reply.wait_ms / 1000)
            call.billed = reply.usage
            return await _perform(request, call, reply)
        finally:
            ledger.close(call, now_ms=self._now_ms())

    def _decide(self, request: web.Request, body: bytes, call: Call, now_ms: int) -> Reply:
        """Key, then body, then limits, then the scenario: the order in which a provider refuses."""
        run = self._run
        refusal = check_headers(
            authorization=request.headers.get("Authorization"),
            client_request_id=call.attempt_id,
            dialect=run.scenario.dialect,
        )
        if refusal is not None:
            return refused(refusal)
        chat = read_request(body, run.scenario)
        if isinstance(chat, ApiError):
            return refused(chat)
        call.model, call.prompt_tokens = chat.model, chat.prompt_tokens
        run.arrivals += 1
        over = run.buckets.take(tokens=max(chat.prompt_tokens, chat.max_tokens or 0), now_ms=now_ms)
        limits = run.buckets.headers()
        if over is not None:
            reply = over_limit(over, model=chat.model)
        else:
            occasion = Occasion(
                digest=call.body_digest,
                occurrence=call.occurrence,
                arrival=run.arrivals,
                elapsed_ms=now_ms - run.started_at_ms,
                prompt=chat.prompt,
            )
            reply = plan(run.scenario, chat, occasion, now_ms=now_ms)
        reply.headers.update(limits)
        reply.headers["x-request-id"] = f"req_{call.body_digest.hex()}{call.occurrence:04d}"
        return reply

    async def _models(self, request: web.Request) -> web.Response:
        refusal = check_headers(
            authorization=request.headers.get("Authorization"),
            client_request_id=None,
            dialect=self._run.scenario.dialect,
        )
        if refusal is not None:
            return _json(refusal.status, refusal.body())
        names = self._run.scenario.models or (DEFAULT_MODEL,)
        models = [{"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "simulator"} for name in names]
        return web.json_response({"object": "list", "data": models})

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _unknown(self, request: web.Request) -> web.Response:
        error = errors.unknown_url(request.method, request.path)
        return _json(error.status, error.body())

    # Whoever runs the test

    async def _totals(self, request: web.Request) -> web.Response:
        return web.json_response(self._ledger.totals())

    async def _attempts(self, request: web.Request) -> web.StreamResponse:
        """JSON lines of the accepted calls; with `?refused=1` of every call."""
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        lines: list[str] = []
        for call in list(self._ledger.calls(refused=request.query.get("refused") == "1")):
            lines.append(json.dumps(call.as_row()) + "\n")
            if len(lines) == 1000:
                await response.write("".join(lines).encode())
                lines.clear()
        await response.write("".join(lines).encode())
        return response

    async def _set_scenario(self, request: web.Request) -> web.Response:
        """Replace the scenario. Windows, `first` and the rate limits start anew; ledger and occurrences go on."""
        try:
            scenario = parse_scenario(from_json(await request.read()), where="request body")
        except (ScenarioError, ValueError) as exc:
            error = errors.invalid(str(exc), code="invalid_scenario")
            return _json(error.status, error.body())
        self._run = _Run(scenario, self._now_ms())
        return web.json_response({"seed": scenario.seed})

    async def _reset(self, request: web.Request) -> web.Response:
        """Empty books and full limits under the same scenario. Calls in flight end in the old books."""
        self._ledger = Ledger()
        self._run = _Run(self._run.scenario, self._now_ms())
        return web.json_response({})


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


async def _perform(request: web.Request, call: Call, reply: Reply) -> web.StreamResponse:
    """Send the reply as its manner says and note what was delivered."""
    match reply.manner:
        case Manner.WHOLE:
            return await _send_whole(request, call, reply)
        case Manner.DRIP:
            return await _send_drip(request, call, reply)
        case Manner.CUT:
            await _send_cut(request, call, reply)
        case Manner.RESET:
            _close(request, reset=True)
        case Manner.HANG:
            await _hold(request, reply.hold_ms)
            _close(request, reset=False)
    return web.Response()  # the connection is closed: aiohttp finds that out and sends nothing


async def _send_whole(request: web.Request, call: Call, reply: Reply) -> web.StreamResponse:
    response = web.Response(
        status=reply.status, body=reply.body, headers=reply.headers, content_type=reply.content_type
    )
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return response
    call.status = reply.status
    call.delivered = reply.completion and await _flushed(request)
    return response


async def _send_drip(request: web.Request, call: Call, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_type = reply.content_type
    response.content_length = len(reply.body)
    try:
        await response.prepare(request)
        call.status = reply.status
        for start in range(0, len(reply.body), reply.chunk_bytes):
            if start:
                await asyncio.sleep(reply.every_ms / 1000)
            await response.write(reply.body[start : start + reply.chunk_bytes])
        await response.write_eof()
    except ConnectionError:
        return response
    call.delivered = reply.completion and await _flushed(request)
    return response


async def _send_cut(request: web.Request, call: Call, reply: Reply) -> None:
    transport = request.transport
    if transport is None:
        return
    part = reply.body[: reply.keep_bytes]
    head = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n" % (
        reply.status,
        _REASONS.get(reply.status, b""),
        reply.content_type.encode(),
    )
    head += b"".join(f"{name}: {value}\r\n".encode() for name, value in reply.headers.items())
    match reply.framing:
        case Framing.CONTENT_LENGTH:
            transport.write(head + b"Content-Length: %d\r\n\r\n" % len(reply.body) + part)
        case Framing.CHUNKED:
            transport.write(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(part), part))
        case Framing.CLOSE:
            transport.write(head + b"Connection: close\r\n\r\n" + part)
    call.status = reply.status
    await _flushed(request)
    _close(request, reset=False)


async def _flushed(request: web.Request) -> bool:
    """Whether everything written so far reached the kernel while the client was still there."""
    transport = request.transport
    if transport is None or transport.is_closing():
        return False
    if transport.get_write_buffer_size() == 0:
        return True
    transport.set_write_buffer_limits(0)  # drain() then returns when the buffer is empty, not when it is low
    try:
        await request.writer.drain()
    except ConnectionError:
        return False
    return request.transport is not None


async def _hold(request: web.Request, hold_ms: int) -> None:
    """Wait until the client leaves, at most `hold_ms`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + hold_ms / 1000
    while loop.time() < until and request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(_WATCH_S)


def _close(request: web.Request, *, reset: bool) -> None:
    transport = request.transport
    if transport is None:
        return
    if reset:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    else:
        transport.close()
