"""What a call cost, from a provider's body to nano-USD: its classes, lane, tier and day (O1, P4)."""

import logging
from pathlib import Path
from typing import Any

import pytest

from nightmill.kernel.domain.lifecycle import AttemptState, Lane
from nightmill.kernel.domain.prices import WrittenPrice
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.adapters import adapter_of
from nightmill.provider_gateway.failures import Signal
from nightmill.provider_gateway.orders import Order, concluded, unknown, why_cost_unknown
from unit.provider_gateway.makers import NOW_MS, completion, make_access, make_documents, make_shard, response
from unit.provider_gateway.stage import Stage

#: in nano-USD a token: 1,000 fresh, 100 cached, 1,250 written for five minutes, 2,000 for an hour, 5,000 out
PRICE = WrittenPrice.model_validate(
    {
        "input_usd_per_million": 1,
        "cached_usd_per_million": 0.1,
        "cache_write_usd_per_million": 1.25,
        "cache_write_1h_usd_per_million": 2,
        "output_usd_per_million": 5,
        "batch_discount": 0.5,
        "above": [{"input_tokens": 2_000, "input_usd_per_million": 3, "output_usd_per_million": 7}],
    }
)


def chat(prompt: int, output: int, **details: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}
    return completion() | {"usage": usage}


def message(usage: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": '{"label": "a"}'}]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "small",
        "content": content,
        "stop_reason": "end_turn",
        "usage": usage,
    }


def in_region(region: str | None) -> dict[str, Any]:
    return message({"input_tokens": 333, "output_tokens": 10, "inference_geo": region})


@pytest.fixture
def order(tmp_path: Path) -> Order:
    shard = make_shard(make_documents(tmp_path), [0])
    return Order(shard=shard, index=0, partition=0, model="small", periods=(PRICE.period(),), price_version="p1")


def answered(order: Order, body: Any, *, provider: str = "openai_compatible", at_ms: int = NOW_MS) -> AttemptAnswered:
    reply = adapter_of("p", provider).reply(response(body), now_ms=at_ms)
    return concluded(order, reply, started_at_ms=at_ms, ended_at_ms=at_ms + 5)


@pytest.mark.parametrize(
    ("provider", "body", "nano"),
    [
        ("openai", chat(1_000, 10), 1_000 * 1_000 + 10 * 5_000),
        # cached and written tokens are part of OpenAI's prompt_tokens: 500 + 400 + 100
        (
            "openai",
            chat(1_000, 10, cached_tokens=400, cache_write_tokens=100),
            500 * 1_000 + 400 * 100 + 100 * 1_250 + 10 * 5_000,
        ),
        # Anthropic's input_tokens are what is left: 500 + 400 + 60 + 40
        (
            "anthropic",
            message(
                {
                    "input_tokens": 500,
                    "cache_read_input_tokens": 400,
                    "cache_creation_input_tokens": 100,
                    "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
                    "output_tokens": 10,
                }
            ),
            500 * 1_000 + 400 * 100 + 60 * 1_250 + 40 * 2_000 + 10 * 5_000,
        ),
        # reasoning is part of the output
        (
            "openai",
            completion()
            | {
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 8,
                    "completion_tokens_details": {"reasoning_tokens": 7},
                }
            },
            10 * 1_000 + 8 * 5_000,
        ),
        # 2,001 tokens in: the whole call costs more, what is cached as much as the rest
        ("openai", chat(2_001, 1, cached_tokens=2_000), 2_001 * 3_000 + 7_000),
        ("openai", chat(2_000, 1, cached_tokens=2_000), 2_000 * 100 + 5_000),
        ("openai", chat(10, 1) | {"service_tier": "default"}, 15_000),
        # carried out in a tier that has no price here
        ("openai", chat(10, 1) | {"service_tier": "priority"}, None),
        ("openai", completion() | {"usage": None}, None),
        ("openai", completion() | {"usage": {"prompt_tokens": 10}}, None),
        # a tenth more for work in the United States alone; elsewhere is not listed
        ("anthropic", in_region(None), 333 * 1_000 + 10 * 5_000),
        ("anthropic", in_region("global"), 333 * 1_000 + 10 * 5_000),
        ("anthropic", in_region("us"), (333 * 1_000 + 10 * 5_000) * 11 // 10),
        ("anthropic", in_region("eu"), None),
        # a split that does not tell of all that was written: the rest has the default lifetime
        (
            "anthropic",
            message(
                {
                    "input_tokens": 500,
                    "cache_creation_input_tokens": 100,
                    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 40},
                    "output_tokens": 10,
                }
            ),
            500 * 1_000 + 60 * 1_250 + 40 * 2_000 + 10 * 5_000,
        ),
    ],
    ids=[
        *("plain", "openai", "anthropic", "reasoning", "long", "not-long", "default", "priority", "none", "half"),
        *("nowhere", "global", "us", "eu", "split"),
    ],
)
def test_the_classes_of_a_providers_usage_are_charged_once_each(
    order: Order, provider: str, body: Any, nano: int | None
) -> None:
    """O1"""
    assert answered(order, body, provider=provider).cost_nano_usd == nano


def test_a_batch_costs_what_batches_cost(order: Order) -> None:
    """O1: whatever the tier says; without a price for batches the cost is not known."""
    bulk = Order(
        shard=replace(order.shard, lane=Lane.BULK),
        index=0,
        partition=0,
        model="small",
        periods=order.periods,
        price_version="p1",
    )
    told = answered(bulk, chat(1_000, 10) | {"service_tier": "default"})
    assert told.cost_nano_usd == (1_000 * 1_000 + 10 * 5_000) // 2
    # 100 tokens in at the dearest class of input, 64 out
    assert told.reserved_nano_usd == (100 * 2_000 + 64 * 5_000) // 2


def test_the_price_of_the_moment_a_call_began_holds(order: Order) -> None:
    """P4: and before and after what is priced, the cost is not known."""
    dated = WrittenPrice.model_validate(
        {"input_usd_per_million": 2, "output_usd_per_million": 2, "valid_from": "2026-11-30", "valid_to": "2026-11-30"}
    )
    priced = Order(shard=order.shard, index=0, partition=0, model="m", periods=(dated.period(),), price_version="p1")
    day_ms = NOW_MS - NOW_MS % 86_400_000
    costs = [
        answered(priced, chat(1, 0), at_ms=day_ms + offset_ms).cost_nano_usd
        for offset_ms in (-1, 0, 86_399_999, 86_400_000)
    ]
    assert costs == [None, 2_000, 2_000, None]


def test_what_is_reserved_covers_every_class(order: Order) -> None:
    """E10: all 100 tokens of the prompt may be written for an hour, and the answer may be as long as it can."""
    lost = unknown(order, Signal.CRASHED, now_ms=NOW_MS)
    assert (lost.cost_nano_usd, lost.reserved_nano_usd) == (None, 100 * 2_000 + 64 * 5_000)
    dearest = {
        "input_tokens": 0,
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_1h_input_tokens": 100},
        "output_tokens": 64,
    }
    assert answered(order, message(dearest), provider="anthropic").cost_nano_usd == lost.reserved_nano_usd


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (chat(10, 1), None),
        (completion() | {"usage": None}, "no_usage"),
        (chat(10, 1) | {"service_tier": "scale"}, "no_price"),
    ],
    ids=["known", "usage", "price"],
)
def test_an_unknown_cost_says_why(order: Order, body: Any, cause: str | None) -> None:
    assert why_cost_unknown(answered(order, body)) == cause
    assert why_cost_unknown(unknown(order, Signal.CRASHED, now_ms=NOW_MS)) == "outcome"


def test_an_unknown_cost_is_an_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P4: shown in the log and counted, once for all calls of a transaction."""
    stage = Stage(tmp_path, access=make_access(price=None))

    def counted() -> float:
        labels = {"cause": "no_price", "pool": "sim"}
        return metrics.registry.get_sample_value("nightmill_costs_unknown_total", labels) or 0

    before = counted()
    stage.dispatch(make_shard(stage.documents, [0, 1]))
    with caplog.at_level(logging.WARNING):
        sent = stage.run(response(completion()))
    stage.close()
    assert [each.state for each in sent] == [AttemptState.ANSWERED] * 2
    alarms = [vars(record) for record in caplog.records if vars(record).get("action") == "cost_unknown"]
    assert {(alarm["cause"], alarm["pool"]) for alarm in alarms} == {("no_price", "sim")}
    assert sum(alarm["calls"] for alarm in alarms) == counted() - before == 2
