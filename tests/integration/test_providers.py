"""Each provider as strict as the real one, over HTTP: it takes the request, and its bill agrees (P4, E8)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.failure_cases import ALL, ANTHROPIC, OLDER, OPENAI, RESPONSES, SERVER
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.caller_desk import KEY, Desk, failure_of
from unit.provider_gateway.raw_provider import RawProvider, http_response

LONG = [{"id": "long", "text": "ticket " * 3_000}]


@pytest.fixture
def simulator(provider: Simulator) -> Simulator:
    provider.reset()
    provider.set_scenario({"dialect": "openai"})
    return provider


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def name_of(pool: dict[str, Any]) -> str:
    return str(pool.get("api") or pool.get("anthropic_version") or pool["provider"])


@pytest.mark.parametrize("pool", [*ALL, OLDER], ids=name_of)
def test_a_strict_provider_takes_the_request(simulator: Simulator, desk: Desk, pool: dict[str, Any]) -> None:
    """E6: nothing in it is unknown to the provider, and both sides can find the call again (O2)."""
    answered = desk.call(simulator.base_url, **pool)
    (billed,) = simulator.attempts()
    assert (answered.failure, answered.state) == (None, AttemptState.ANSWERED)
    assert re.fullmatch(r'\{"label":"[ab]"\}', answered.output or "")
    assert answered.finish_reason == "stop"
    assert billed["attempt_id"] == f"{answered.item_key}-1"
    assert answered.provider_request_id


@pytest.mark.parametrize("pool", [*ALL, OLDER], ids=name_of)
def test_the_classes_of_tokens_are_those_of_the_bill(simulator: Simulator, desk: Desk, pool: dict[str, Any]) -> None:
    """P4: to the token, whether the provider counts the cache inside the prompt or beside it."""
    usage = {"cached": 0.3, "cache_write": 0.2, "reasoning_tokens": 7}
    usage |= {"cache_write_1h": 0.25} if pool["provider"] == "anthropic" else {}
    simulator.set_scenario({"dialect": "openai", "answers": [{"usage": usage}]})
    used = desk.call(simulator.base_url, **pool).usage
    (billed,) = simulator.attempts()
    assert used is not None
    assert used.input_tokens == billed["billed_prompt_tokens"]
    assert used.output_tokens == billed["billed_completion_tokens"]
    assert 0 < used.cached_tokens == billed["billed_cached_tokens"]
    assert 0 < (used.cache_write_tokens or 0) == billed["billed_cache_write_tokens"]
    assert (used.cache_write_1h_tokens or 0) == billed["billed_cache_write_1h_tokens"]


@pytest.mark.parametrize("report", ["missing", "null", "zero"])
@pytest.mark.parametrize("pool", ALL, ids=name_of)
def test_a_usage_that_is_not_told_is_an_unknown_cost(
    simulator: Simulator, desk: Desk, pool: dict[str, Any], report: str
) -> None:
    """P4: unknown, never 0; the reservation is kept."""
    simulator.set_scenario({"dialect": "openai", "answers": [{"usage": {"report": report}}]})
    answered = desk.call(simulator.base_url, **pool)
    assert (answered.state, answered.usage, answered.cost_nano_usd) == (AttemptState.ANSWERED, None, None)
    assert answered.reserved_nano_usd > 0


@pytest.mark.parametrize("pool", ALL, ids=name_of)
def test_an_answer_cut_at_its_limit_goes_to_the_validator(
    simulator: Simulator, desk: Desk, pool: dict[str, Any]
) -> None:
    """Row 32: each provider's word for it becomes one."""
    simulator.set_scenario({"dialect": "openai", "answers": [{"form": "length"}]})
    answered = desk.call(simulator.base_url, **pool)
    assert (answered.state, answered.finish_reason, answered.failure) == (AttemptState.ANSWERED, "length", None)


@pytest.mark.parametrize("form", ["fenced", "prose", "wrong_schema", "cut", "nan", "line_separators", "non_ascii"])
@pytest.mark.parametrize("pool", ALL, ids=name_of)
def test_an_odd_answer_is_the_validators(simulator: Simulator, desk: Desk, pool: dict[str, Any], form: str) -> None:
    """Row 38: what the text says is judged there; the gateway hands it on whole."""
    simulator.set_scenario({"dialect": "openai", "answers": [{"form": form}]})
    answered = desk.call(simulator.base_url, **pool)
    assert (answered.state, answered.failure) == (AttemptState.ANSWERED, None)
    assert answered.output


def test_a_tier_that_was_not_asked_for_is_told(simulator: Simulator, desk: Desk) -> None:
    """P4: a call that was carried out in another tier is not charged as an ordinary one: its cost is unknown."""
    simulator.set_scenario({"dialect": "openai", "answers": [{"service_tier": "priority"}]})
    answered = desk.call(simulator.base_url, **OPENAI)
    assert answered.usage is not None
    assert answered.cost_nano_usd is None


@pytest.mark.parametrize("context_tokens", [1_024, 2_048])
def test_a_prompt_that_a_server_cut_is_no_success(tmp_path: Path, simulator: Simulator, context_tokens: int) -> None:
    """E8: the answer is about a part of the document; it was paid for, and the cost is known."""
    simulator.set_scenario({"dialect": "ollama", "truncate_tokens": context_tokens})
    desk = Desk(tmp_path / "long", rows=LONG)
    answered = desk.call(simulator.base_url, **SERVER)
    desk.close()
    failure = failure_of(answered)
    assert failure.signal == Signal.PROMPT_CUT
    assert f"{context_tokens} tokens counted" in failure.message
    assert (answered.cost_nano_usd or 0) > 0


@pytest.mark.parametrize("pool", [OPENAI, ANTHROPIC], ids=name_of)
def test_a_redirect_takes_the_key_nowhere(desk: Desk, pool: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Row 29, P6."""
    with caplog.at_level(0), RawProvider() as elsewhere:
        moved = http_response(b"", f"location: {elsewhere.base_url}/messages", status="308 Permanent Redirect")
        with RawProvider([moved]) as server:
            answered = desk.call(server.base_url, **pool)
    assert failure_of(answered).signal == Signal.REDIRECT
    assert elsewhere.requests == []
    assert KEY not in repr(answered) + caplog.text


def test_the_version_goes_with_every_call(simulator: Simulator, desk: Desk) -> None:
    with RawProvider([http_response(b"{}")]) as server:
        desk.call(server.base_url, **ANTHROPIC)
    assert b"anthropic-version: 2026-10-21\r\n" in server.requests[0]
    assert b"POST /v1/messages HTTP/1.1\r\n" in server.requests[0]


def test_responses_are_not_stored_at_the_provider(desk: Desk) -> None:
    """P6."""
    with RawProvider([http_response(b"{}")]) as server:
        desk.call(server.base_url, **RESPONSES)
    assert b'"store":false' in server.requests[0]
