"""The routes for whoever runs the test: /health and /__sim/ for ledger, scenario, clock and reset."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.scenario import Dialect, ScenarioError, parse_scenario
from nightmill.provider_simulator.state import State

_ROWS_PER_CHUNK = 1000
_CLOCK_FIELDS = frozenset({"advance_s", "speed"})


class Control:
    """What tests see and change; no key needed."""

    def __init__(self, state: State, reset: Callable[[], None]) -> None:
        self._state = state
        self._reset = reset

    def reply(self, inbound: Inbound) -> Reply | AsyncIterator[bytes]:
        """The reply, or JSON lines as a stream."""
        match inbound.method, inbound.path:
            case "GET", "/health":
                return _ok({"status": "ok"})
            case "GET", "/__sim/ledger":
                return _ok(self._totals())
            case "GET", "/__sim/ledger/attempts":
                return self._attempts(refused=inbound.query.get("refused") == "1")
            case "PUT", "/__sim/scenario":
                return self._set_scenario(inbound)
            case "POST", "/__sim/reset":
                self._reset()
                return _ok({})
            case "GET", "/__sim/clock":
                return self._clock()
            case "POST", "/__sim/clock":
                return self._set_clock(inbound)
            case _:
                return _refused(errors.unknown_url(inbound.method, inbound.path))

    def _totals(self) -> dict[str, object]:
        totals = self._state.ledger.totals(self._state.lines_page())
        created = list(self._state.batches.values())
        totals["batches"] = {"created": len(created), "open": sum(not batch.ended for batch in created)}
        return totals

    async def _attempts(self, *, refused: bool) -> AsyncIterator[bytes]:
        """One row per accepted call, batch lines after them; with `?refused=1` of every call that arrived."""
        state = self._state
        lines: list[bytes] = []
        for call in list(state.ledger.calls(refused=refused)):
            lines.append(json.dumps(call.as_row()).encode() + b"\n")
            if len(lines) == _ROWS_PER_CHUNK:
                yield b"".join(lines)
                lines.clear()
        for book in list(state.books.values()):
            for row in book.attempts(state.files.delivered_to(book.output_id), refused=refused):
                lines.append(row)
                if len(lines) == _ROWS_PER_CHUNK:
                    yield b"".join(lines)
                    lines.clear()
        yield b"".join(lines)

    def _set_scenario(self, inbound: Inbound) -> Reply:
        """Replace the scenario. Windows, `first` and the rate limits start anew; everything else goes on."""
        data = inbound.json()
        if isinstance(data, ApiError):
            return _refused(data)
        try:
            scenario = parse_scenario(data, where="request body")
        except ScenarioError as exc:
            return _refused(errors.invalid(str(exc), code="invalid_scenario"))
        self._state.set_scenario(scenario)
        return _ok({"seed": scenario.seed})

    def _clock(self) -> Reply:
        clock = self._state.clock
        return _ok({"now_ms": clock.now_ms(), "speed": clock.speed, "ahead_ms": clock.ahead_ms})

    def _set_clock(self, inbound: Inbound) -> Reply:
        """`{"advance_s": 86400}` and `{"speed": 1000}`."""
        data = inbound.json()
        if not isinstance(data, dict) or not data.keys() <= _CLOCK_FIELDS:
            return _refused(errors.invalid("expected an object with advance_s (>= 0) or speed (> 0)"))
        advance_s, speed = data.get("advance_s", 0), data.get("speed")
        if not isinstance(advance_s, int | float) or advance_s < 0:
            return _refused(errors.invalid(f"advance_s: {advance_s!r}: must be a number >= 0", param="advance_s"))
        if speed is not None and (not isinstance(speed, int | float) or speed <= 0):
            return _refused(errors.invalid(f"speed: {speed!r}: must be a number > 0", param="speed"))
        self._state.clock.set(advance_ms=int(advance_s * 1000), speed=speed)
        self._state.save_clock()
        return self._clock()


def _ok(value: dict[str, object]) -> Reply:
    return Reply(status=200, body=to_json(value))


def _refused(error: ApiError) -> Reply:
    return Voice(side=Side.OPENAI, dialect=Dialect.OPENAI, request_id="").refusal(error)
