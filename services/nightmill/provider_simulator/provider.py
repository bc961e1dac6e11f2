"""One simulated provider: every call that is not for the test runner, from the request to its reply.

The order of refusals is the providers': key, then body, then limits, then what the scenario does to the call.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from nightmill.provider_simulator import errors, faults, routes
from nightmill.provider_simulator.anthropic.read import check_headers as check_anthropic_headers
from nightmill.provider_simulator.anthropic.read import read_body as read_message
from nightmill.provider_simulator.asks import Ask, check_headers
from nightmill.provider_simulator.befall import Asked, befall, limit_headers
from nightmill.provider_simulator.bill import Call
from nightmill.provider_simulator.call_faults import CallFault
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.generate import Work, truncated, work
from nightmill.provider_simulator.inbound import Inbound, plain
from nightmill.provider_simulator.manage import Manager
from nightmill.provider_simulator.openai.read import read_body
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.routes import Route
from nightmill.provider_simulator.scenario import FAULT_HEADER, Dialect, ScenarioError, parse_fault
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import WebhookFault

_DIGEST_BYTES = 16
_UNLIMITED = {
    "x-ratelimit-limit-requests": "30000",
    "x-ratelimit-limit-tokens": "150000000",
    "x-ratelimit-remaining-requests": "29999",
    "x-ratelimit-remaining-tokens": "149999000",
    "x-ratelimit-reset-requests": "2ms",
    "x-ratelimit-reset-tokens": "0s",
}
_ORGANIZATION = "org-simulated"


class Provider:
    """Answers requests from `state`; `manager` has the files, batches and webhooks."""

    def __init__(self, state: State, manager: Manager) -> None:
        self._state = state
        self._manager = manager

    def slams_door(self, inbound: Inbound, route: Route) -> bool:
        """Whether the connection is reset before the body is read; counts as an arrival of its own kind."""
        run = self._state.run
        text = inbound.headers.get(FAULT_HEADER)
        if text is not None and '"reset_early"' in text:
            return True
        if not run.scenario.early_resets:
            return False
        arrival = run.arrival("early")
        occasion = Occasion(
            digest=arrival.to_bytes(8, "big"),
            occurrence=1,
            arrival=arrival,
            elapsed_ms=self._state.real_now_ms() - run.started_at_ms,
            prompt="",
            operation=route.operation,
        )
        return faults.slams_door(run.scenario, occasion)

    async def reply(self, inbound: Inbound, route: Route) -> Reply:
        """The reply, after the time that it takes. Whoever sends it says so with `sent`."""
        if route.generates:
            return await self._generated(inbound, route)
        reply = await self._managed(inbound, route)
        if reply.wait_ms > 0:
            await asyncio.sleep(reply.wait_ms / 1000)
        return reply

    def sent(self, reply: Reply, *, status: int | None, whole: bool, sent_bytes: int) -> None:
        """What reached the socket of a client that was still there."""
        call = reply.call
        if call is not None:
            call.status = status
            call.delivered = reply.completion and whole
            self._state.close_call(call)
        if reply.file is not None and sent_bytes:
            self._state.files.delivered(reply.file.file_id, reply.file.start, reply.file.start + sent_bytes)

    # Calls that make a model work

    async def _generated(self, inbound: Inbound, route: Route) -> Reply:
        state = self._state
        now_ms = state.real_now_ms()
        call = state.ledger.open(
            attempt_id=plain(inbound.headers.get("X-Client-Request-Id")),
            body_digest=hashlib.sha256(inbound.body).digest()[:_DIGEST_BYTES],
            now_ms=now_ms,
        )
        run, held = state.run, False
        try:
            reply = self._decided(inbound, route, call, now_ms)
            reply.call = call
            call.accepted, call.fault, call.code, call.tier = reply.accepted, reply.fault, reply.code, reply.tier
            call.usage_told = reply.usage_told
            if run.slots is not None and reply.usage is not None:
                run.working, held = run.working + 1, True
                await run.slots.acquire()
            if reply.wait_ms > 0:
                await asyncio.sleep(reply.wait_ms / 1000)
            call.billed, call.billed_nano_usd = reply.usage, run.cost(call.model, reply.usage, reply.tier)
            if reply.usage is not None:
                run.buckets.produced(reply.usage.completion_tokens)
        except BaseException:
            state.close_call(call)
            raise
        finally:
            if held:
                run.leave()
        return reply

    def _decided(self, inbound: Inbound, route: Route, call: Call, now_ms: int) -> Reply:
        run, scenario = self._state.run, self._state.run.scenario
        voice = self._voice(route, call.body_digest, call.occurrence)
        headers = self._headers(route, voice)
        ask = self._asked(inbound, route)
        if isinstance(ask, ApiError):
            return _with(voice.refusal(ask), headers)
        call.model, call.prompt_tokens = ask.model, ask.prompt_tokens
        ask = truncated(ask, scenario)
        occasion = Occasion(
            digest=call.body_digest,
            occurrence=call.occurrence,
            arrival=run.arrival("generate"),
            elapsed_ms=now_ms - run.started_at_ms,
            prompt=ask.prompt,
            operation=route.operation,
            model=ask.model,
        )
        wanted = ask.prompt_tokens + (ask.max_tokens or 0)
        over = run.buckets.take(
            tokens=max(ask.prompt_tokens, ask.max_tokens or 0), input_tokens=ask.prompt_tokens, now_ms=now_ms
        )
        limits = self._limits(route, now_ms)
        if over is not None:
            return _with(_with(voice.over_limit(over, model=ask.model), headers), limits)
        refusal = self._not_ready(occasion.elapsed_ms)
        if refusal is not None:
            return _with(voice.refusal(refusal), headers)
        fault = self._fault(inbound, occasion)
        if isinstance(fault, ApiError):
            return _with(voice.refusal(fault), headers)
        job = Work(
            operation=route.operation,
            ask=ask,
            digest=call.body_digest,
            occurrence=call.occurrence,
            occasion=occasion if scenario.answers else None,
        )

        def do() -> Reply:
            return work(job, scenario, run.cache, now_ms=now_ms)

        if fault is None:
            return _with(_with(do(), headers), limits)
        asked = Asked(model=ask.model, wanted_tokens=wanted, context_tokens=scenario.context_tokens)
        reply = befall(fault, do, voice, asked, now_ms=now_ms)
        return _with(_with(reply, headers), limit_headers(fault, limits, route.side, now_ms=now_ms))

    def _asked(self, inbound: Inbound, route: Route) -> Ask | ApiError:
        """The checked request, or its refusal: headers first."""
        scenario = self._state.run.scenario
        refusal = self._refused_headers(inbound, route)
        if refusal is not None:
            return refusal
        data = inbound.json()
        if isinstance(data, ApiError):
            return data
        if route.side is Side.ANTHROPIC:
            return read_message(route.operation, data, scenario, inbound.headers["anthropic-version"])
        return read_body(route.operation, data, scenario)

    def _not_ready(self, elapsed_ms: int) -> ApiError | None:
        """A self-hosted server that loads its model, or has no place left."""
        run = self._state.run
        if elapsed_ms < run.scenario.latency.warm_up_ms:
            return errors.loading_model()
        capacity = run.scenario.capacity
        if capacity.slots is not None and run.working >= capacity.slots + capacity.queue:
            return errors.busy()
        return None

    # Everything else

    async def _managed(self, inbound: Inbound, route: Route) -> Reply:
        state, operation = self._state, route.operation
        digest = hashlib.sha256(f"{inbound.method} {inbound.path}\n".encode() + inbound.body).digest()[:_DIGEST_BYTES]
        run, now_ms = state.run, state.real_now_ms()
        occurrence = run.occurrence(operation, digest)
        voice = self._voice(route, digest, occurrence)
        headers = self._headers(route, voice)
        refusal = self._refused_headers(inbound, route)
        if refusal is not None:
            return _with(voice.refusal(refusal), headers)
        occasion = Occasion(
            digest=digest,
            occurrence=occurrence,
            arrival=run.arrival(operation),
            elapsed_ms=now_ms - run.started_at_ms,
            prompt=inbound.body[:65_536].decode("utf-8", "replace"),
            operation=operation,
        )
        fault = self._fault(inbound, occasion)
        if isinstance(fault, ApiError):
            return _with(voice.refusal(fault), headers)
        do: Callable[[], Reply] = await self._manager.prepared(inbound, route, occasion, voice)
        return _with(befall(fault, do, voice, Asked(), now_ms=now_ms), headers)

    def _refused_headers(self, inbound: Inbound, route: Route) -> ApiError | None:
        dialect = self._state.run.scenario.dialect
        if route.side is Side.ANTHROPIC:
            return check_anthropic_headers(inbound.headers, dialect)
        return check_headers(
            authorization=inbound.headers.get("Authorization"),
            client_request_id=inbound.headers.get("X-Client-Request-Id"),
            dialect=dialect,
        )

    def _fault(self, inbound: Inbound, occasion: Occasion) -> CallFault | ApiError | None:
        """The fault of a header, else the scenario's."""
        text = inbound.headers.get(FAULT_HEADER)
        if text is not None:
            try:
                stated = parse_fault(text)
            except ScenarioError as exc:
                return errors.invalid(str(exc), code="invalid_scenario")
            if isinstance(stated, CallFault):
                return stated
            if isinstance(stated, WebhookFault) or occasion.operation not in stated.operations:
                message = f"{FAULT_HEADER}: kind: '{stated.kind}': does not befall this call; state it in the scenario"
                return errors.invalid(message, code="invalid_scenario")
        scenario = self._state.run.scenario
        if not scenario.faults:
            return None
        found = faults.decide(scenario, occasion)
        return found if isinstance(found, CallFault) else None

    def _voice(self, route: Route, digest: bytes, occurrence: int) -> Voice:
        dialect = self._state.run.scenario.dialect
        return Voice(side=route.side, dialect=dialect, request_id=f"req_{digest.hex()}{occurrence:04d}")

    def _headers(self, route: Route, voice: Voice) -> dict[str, str]:
        if route.side is Side.ANTHROPIC:
            return {"request-id": voice.request_id, "anthropic-organization-id": _ORGANIZATION}
        if voice.dialect is Dialect.OPENAI:
            return {
                "x-request-id": voice.request_id,
                "openai-organization": _ORGANIZATION,
                "openai-processing-ms": "12",
                "openai-version": "2020-10-01",
            }
        return {"x-request-id": voice.request_id}

    def _limits(self, route: Route, now_ms: int) -> dict[str, str]:
        run = self._state.run
        if route.side is Side.ANTHROPIC:
            return run.buckets.anthropic_headers(now_ms=now_ms)
        stated = run.buckets.headers()
        if run.scenario.dialect is not Dialect.OPENAI:
            return stated
        return {**_UNLIMITED, **stated} if stated else _UNLIMITED


def unknown(inbound: Inbound, dialect: Dialect, status: int | None) -> Reply:
    """A path or method that nobody serves; `status` as the dialect has it."""
    side = routes.side_of(inbound.path)
    voice = Voice(side=side, dialect=dialect, request_id="req_unknown")
    if status is not None and status != 404:
        error = ApiError(status=status, message="Method Not Allowed" if status == 405 else "Not Implemented")
    elif routes.known(inbound.path) and status is None:
        error = errors.method_not_allowed(inbound.method, inbound.path)
    elif side is Side.ANTHROPIC:
        error = ApiError(status=404, message="Not Found")
    else:
        error = errors.unknown_url(inbound.method, inbound.path)
    return voice.refusal(error)


def _with(reply: Reply, headers: dict[str, str]) -> Reply:
    reply.headers.update(headers)
    return reply
