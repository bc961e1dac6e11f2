"""What befalls calls for embeddings, over real HTTP: rows of the failure table as they fall on many items (E7, E8)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.failure_cases import DIALECTS, fault, refused
from kit.simulator import Simulator
from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.domain.settings import EmbeddingLimits
from nightmill.kernel.domain.vectors import decode_vector
from nightmill.provider_gateway.caller import CallResult
from nightmill.provider_gateway.failures import Signal
from nightmill.provider_simulator.vectors import vector
from unit.provider_gateway.caller_desk import Desk, failure_of
from unit.provider_gateway.makers import EMBED
from unit.provider_gateway.means import MEANS, S

ROWS = 3
OPENAI: dict[str, Any] = {"provider": "openai", "model": "text-embedding-3-small", "embeddings": EmbeddingLimits()}
SERVER: dict[str, Any] = {**OPENAI, "provider": "openai_compatible", "model": "small"}
FLOATS: dict[str, Any] = {**SERVER, "refuses": ("encoding_format",)}
ALL = (OPENAI, SERVER, FLOATS)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, pipeline=EMBED)
    yield made
    made.close()


def call(provider: Simulator, desk: Desk, pool: dict[str, Any], scenario: dict[str, Any], **how: Any) -> CallResult:
    provider.reset()
    strict = "openai" if pool["provider"] == "openai" else "self_hosted"
    provider.set_scenario({"dialect": strict, **scenario})
    return desk.together(provider.base_url, ROWS, **pool, **how)


@pytest.mark.parametrize("pool", ALL, ids=["base64", "server", "floats"])
def test_a_strict_provider_takes_the_request(provider: Simulator, desk: Desk, pool: dict[str, Any]) -> None:
    """E7, P4: one call, a vector for each text, and shares of tokens that are the bill."""
    result = call(provider, desk, pool, {})
    (billed,) = provider.attempts()
    for place, answered in enumerate(result.answers):
        own = vector(f"ticket {place}", dimensions=8, seed=0)
        assert list(decode_vector(answered.output or "")) == pytest.approx(list(own), abs=1e-7)
    assert sum(each.usage.input_tokens for each in result.answers if each.usage) == billed["billed_prompt_tokens"]
    assert billed["attempt_id"] == f"{result.answers[0].item_key}-1"
    assert len({each.provider_request_id for each in result.answers}) == 1
    assert desk.outbox.marks() == {}
    assert len(desk.outbox.answers()) == ROWS


@pytest.mark.parametrize("pool", ALL, ids=["base64", "server", "floats"])
def test_a_wrong_count_is_the_calls(provider: Simulator, desk: Desk, pool: dict[str, Any]) -> None:
    """Row 39: nobody can say whose vector is missing; all of it was paid for."""
    result = call(provider, desk, pool, {"answers": [{"vectors": "count"}]})
    for answered in result.answers:
        found = failure_of(answered)
        assert (found.failure_class, found.uses_retry_budget, found.billed) == MEANS[S.EMBEDDINGS_MISMATCHED]
        assert found.signal == S.EMBEDDINGS_MISMATCHED
    (billed,) = provider.attempts()
    costs = [answered.cost_nano_usd for answered in result.answers]
    assert sum(cost for cost in costs if cost is not None) == 1_000 * billed["billed_prompt_tokens"]


@pytest.mark.parametrize("form", ["dimension", "nan", "zero"])
@pytest.mark.parametrize("pool", ALL, ids=["base64", "server", "floats"])
def test_a_wrong_vector_is_the_validators(provider: Simulator, desk: Desk, pool: dict[str, Any], form: str) -> None:
    """Row 39: it spoils no other one."""
    result = call(provider, desk, pool, {"answers": [{"vectors": form}]})
    assert {answered.state for answered in result.answers} == {AttemptState.ANSWERED}
    assert all(answered.output for answered in result.answers)


@pytest.mark.parametrize("report", ["missing", "null", "zero"])
def test_a_usage_that_is_not_told_is_an_unknown_cost(provider: Simulator, desk: Desk, report: str) -> None:
    """P4."""
    result = call(provider, desk, OPENAI, {"answers": [{"usage": {"report": report}}]})
    assert {(each.state, each.usage, each.cost_nano_usd) for each in result.answers} == {
        (AttemptState.ANSWERED, None, None)
    }
    assert all(each.reserved_nano_usd > 0 for each in result.answers)


@pytest.mark.parametrize(
    ("pool", "scenario"),
    [
        (OPENAI, fault("context_length_exceeded")),
        *[(SERVER, {"dialect": dialect, **fault("context_length_exceeded")}) for dialect in DIALECTS],
        (OPENAI, refused(400, param="input")),
        (SERVER, refused(422)),
        (OPENAI, refused(413)),
        (OPENAI, refused(413, body="html")),
        (OPENAI, refused(400, code="content_policy_violation")),
        (OPENAI, {"rate_limit": {"tokens_per_min": 10}}),
    ],
)
def test_a_refusal_of_many_is_nobodys_yet(
    provider: Simulator, desk: Desk, pool: dict[str, Any], scenario: dict[str, Any]
) -> None:
    """Rows 2, 14, 15, 17, 36: the call is divided, and no attempt is used up."""
    result = call(provider, desk, pool, scenario)
    assert (result.answers, [len(piece) for piece in result.again]) == ((), [2, 1])
    assert desk.outbox.answers() == []


def test_a_refusal_that_names_an_input_is_its_own(provider: Simulator, desk: Desk) -> None:
    """Row 14."""
    result = call(provider, desk, OPENAI, refused(400, param="input[1]"))
    (answered,) = result.answers
    assert (answered.source_id, failure_of(answered).signal) == ("1", S.BAD_REQUEST)
    assert [[order.index for order in piece] for piece in result.again] == [[0, 2]]


@pytest.mark.parametrize(
    ("scenario", "signal"),
    [
        (fault("rate_limited", retry_after_s=7), S.RATE_LIMITED),
        (fault("quota_exhausted"), S.OUT_OF_CREDIT),
        (fault("unauthorized"), S.KEY_REFUSED),
        ({"models": ["other"]}, S.MODEL_REFUSED),
        (fault("server_error", status=500), S.SERVER_ERROR),
        (fault("reset_after_billing"), S.CONNECTION_LOST),
        (fault("cut_json"), S.BODY_INCOMPLETE),
        (fault("cut_json", framing="close"), S.BODY_CUT),
        (fault("odd_body", form="null"), S.UNEXPECTED_SHAPE),
        (fault("html", status=200), S.HTML_BODY),
    ],
)
def test_what_is_no_inputs_fault_is_everybodys(
    provider: Simulator, desk: Desk, scenario: dict[str, Any], signal: Signal
) -> None:
    """E8, P4: each attempt has the class of the table, and of a bill that nobody knows each keeps its reservation."""
    result = call(provider, desk, OPENAI, scenario)
    assert len(result.answers) == ROWS
    for answered in result.answers:
        found = failure_of(answered)
        assert found.signal == signal
        assert (found.failure_class, found.uses_retry_budget, found.billed) == MEANS[signal]
        assert answered.state is (AttemptState.UNKNOWN if signal is S.CONNECTION_LOST else AttemptState.FAILED)
        assert answered.cost_nano_usd == (0 if found.billed is Billed.NO else None)
        assert answered.reserved_nano_usd > 0


def test_a_call_of_many_ends_at_its_deadline_for_all(provider: Simulator, desk: Desk) -> None:
    """Row 23."""
    result = call(provider, desk, OPENAI, fault("hang", for_ms=20_000), deadline_s=1.5)
    assert {failure_of(each).signal for each in result.answers} == {S.DEADLINE_PASSED}
    assert {each.state for each in result.answers} == {AttemptState.UNKNOWN}


def test_a_long_text_that_a_server_cut_is_no_success(tmp_path: Path, provider: Simulator) -> None:
    """E8: it was called alone, so the usage tells."""
    provider.set_scenario({"dialect": "ollama", "truncate_tokens": 1_024})
    desk = Desk(tmp_path / "long", rows=[{"id": "long", "text": "ticket " * 3_000}], pipeline=EMBED)
    result = desk.together(provider.base_url, 1, **SERVER)
    desk.close()
    assert failure_of(result.answers[0]).signal == S.PROMPT_CUT
