"""How each attempt ends: what it costs, what its failure does to the pool, and what never becomes a call."""

import dataclasses
import logging
from pathlib import Path

import pytest

from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.wire.messages import Repair
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.makers import ANSWER, POOL, completion, make_access, make_shard, response
from unit.provider_gateway.stage import Stage

LIMITED = response({"error": {"code": "rate_limit_exceeded", "type": "requests"}}, 429, retry_after="3")
REFUSED_KEY = response({"error": {"code": "invalid_api_key"}}, 401)


def test_a_rate_limit_pauses_the_pool_until_the_providers_time(stage: Stage) -> None:
    """E8, E9: the item comes back untouched; nobody calls before the time; then one goes first."""
    stage.dispatch(make_shard(stage.documents, range(12)))
    stage.step()
    stage.step()
    stage.caller.answer(LIMITED, 4)
    stage.step()
    stage.commit()
    failures = [a.failure for a in stage.sent()]
    assert len(failures) == 4
    assert {(f.failure_class, f.uses_retry_budget, f.retry_after_ms) for f in failures if f} == {
        (FailureClass.CAPACITY, False, 3_000)
    }
    for _ in range(140):
        stage.step()
    assert stage.caller.begun == []
    for _ in range(40):
        stage.step()
    assert len(stage.caller.begun) == 1


def test_an_account_failure_stops_the_pool_and_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """E8, O1: the pool stops for 30 s, items stay queued, people are told once."""
    stage.dispatch(make_shard(stage.documents, range(6)))
    stage.step()
    stage.step()
    with caplog.at_level(logging.ERROR):
        stage.caller.answer(REFUSED_KEY, 4)
        stage.step()
    assert {a.failure.failure_class for a in stage.sent() if a.failure} == {FailureClass.ACCOUNT}
    assert [record.__dict__["action"] for record in caplog.records] == ["pool_stopped"]
    for _ in range(10):
        stage.step(1_000)
    assert stage.caller.begun == []


def test_a_failed_calls_cost_is_zero_only_if_it_was_surely_not_billed(stage: Stage) -> None:
    """P4: not known is never 0."""
    stage.dispatch(make_shard(stage.documents, [0], shard_id="a"))
    stage.dispatch(make_shard(stage.documents, [1], shard_id="b"))
    stage.step()
    stage.step()
    stage.caller.answer(response({}, 400), 1)
    stage.caller.answer(response({}, 500), 1)
    stage.step()
    assert [(a.source_id, a.cost_nano_usd) for a in stage.sent()] == [("0", 0), ("1", None)]


def test_a_model_without_a_price_has_no_known_cost(tmp_path: Path) -> None:
    """P4."""
    stage = Stage(tmp_path, access=make_access(price=None))
    stage.dispatch(make_shard(stage.documents, [0]))
    (answered,) = stage.run(ANSWER)
    assert (answered.cost_nano_usd, answered.reserved_nano_usd) == (None, 0)
    stage.close()


def test_an_answer_without_usage_has_no_known_cost(stage: Stage) -> None:
    """P4."""
    stage.dispatch(make_shard(stage.documents, [0]))
    (answered,) = stage.run(response(completion() | {"usage": None}))
    assert (answered.state, answered.usage, answered.cost_nano_usd) == (AttemptState.ANSWERED, None, None)


def test_a_row_that_can_not_be_rendered_fails_alone(tmp_path: Path) -> None:
    """Q1: bad input is that row's failure, without a call."""
    stage = Stage(tmp_path, rows=[{"id": "0", "text": "fine"}, {"id": "1"}])
    stage.dispatch(make_shard(stage.documents, [0, 1]))
    sent = {a.source_id: a for a in stage.run(ANSWER)}
    assert sent["0"].state is AttemptState.ANSWERED
    failure = sent["1"].failure
    assert failure is not None
    assert (failure.failure_class, failure.signal) == (FailureClass.BAD_INPUT, Signal.PROMPT_UNRENDERABLE)
    assert sent["1"].cost_nano_usd == 0
    stage.close()


@pytest.mark.parametrize("row", [0, 99])
def test_a_document_that_is_gone_is_an_internal_failure(stage: Stage, row: int) -> None:
    shard = make_shard(stage.documents, [row])
    if row == 0:
        shard = replace(shard, pipeline_digest="0" * 64)
    stage.dispatch(shard)
    (answered,) = stage.run(ANSWER)
    assert answered.failure is not None
    assert answered.failure.failure_class is FailureClass.INTERNAL


def test_a_repair_shows_the_model_its_answer_and_the_problem(stage: Stage) -> None:
    """Q2."""
    repair = Repair(output='{"label": "c"}', problem="label: 'c' is not one of a, b")
    stage.dispatch(make_shard(stage.documents, [0], repair=repair))
    stage.step()
    stage.step()
    body = stage.caller.begun[0].request.body.decode()
    assert body.index("ticket 0") < body.index('{\\"label\\": \\"c\\"}') < body.index("is not one of a, b")
    stage.caller.answer(ANSWER)
    stage.step()
    assert stage.sent()[0].is_repair


@pytest.mark.parametrize(("length", "inline"), [(8 << 10, True), ((8 << 10) + 1, False)])
def test_a_long_output_of_an_earlier_life_goes_to_a_blob(stage: Stage, length: int, inline: bool) -> None:
    """Outputs over 8 KiB travel by reference."""
    stage.dispatch(make_shard(stage.documents, [0]))
    stage.step()
    stage.step()
    stage.caller.answer(response(completion("x" * length)))
    stage.crash()
    stage.step()
    (answered,) = stage.sent()
    if inline:
        assert (answered.output, answered.output_digest) == ("x" * length, None)
    else:
        assert answered.output is None
        assert stage.documents.blobs.get(answered.output_digest or "") == b"x" * length


@pytest.mark.parametrize(
    ("unusable", "pool"), [("environment variable KEY is not set", POOL), (None, "another")], ids=["key", "unknown"]
)
def test_attempts_of_an_unusable_pool_stay_queued(tmp_path: Path, unusable: str | None, pool: str) -> None:
    """E8: the account's failure, with the remedy in its message, and no call."""
    stage = Stage(tmp_path, access=dataclasses.replace(make_access(), unusable=unusable))
    stage.dispatch(make_shard(stage.documents, [0], pool=pool))
    (answered,) = stage.run(ANSWER)
    assert answered.failure is not None
    assert answered.failure.failure_class is FailureClass.ACCOUNT
    assert (unusable or "pools.yaml") in answered.failure.message
    stage.close()


def test_the_third_web_page_stops_the_pool(tmp_path: Path) -> None:
    """Row 28."""
    stage = Stage(tmp_path, slots=1)
    stage.dispatch(make_shard(stage.documents, range(5)))
    sent = stage.run(response(b"<html>log in</html>"), steps=5)
    signals = [a.failure.signal for a in sent if a.failure]
    # the fourth was under way when the third was seen
    assert signals == [Signal.HTML_BODY, Signal.HTML_BODY, Signal.HTML_PROXY, Signal.HTML_PROXY]
    stage.close()


def test_another_model_than_asked_for_is_named_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Some servers take any model's name: the answer is kept under the pool's model, which has the price."""
    stage.dispatch(make_shard(stage.documents, range(3)))
    with caplog.at_level(logging.WARNING):
        sent = stage.run(response(completion() | {"model": "tiny"}))
    assert {a.model for a in sent} == {"small"}
    assert [record.__dict__["served"] for record in caplog.records] == ["tiny"]
