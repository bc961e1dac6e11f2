"""`openai`: what chat, responses and embeddings answer, in every form, and what is billed for it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from conformance.sdk.conftest import STRICT
from conformance.sdk.lines import ask
from kit.simulator import Simulator

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"licence": {"enum": ["MIT", "BSD"]}, "sure": {"type": "boolean"}},
    "required": ["licence", "sure"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}


def test_chat_with_structured_output(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """E12: the usage that the client sees is what the books say."""
    completion = ask(gpt, response_format=FORMAT, max_completion_tokens=50, service_tier="flex")
    [choice] = completion.choices
    assert set(json.loads(choice.message.content)) == {"licence", "sure"}
    assert (choice.finish_reason, completion.service_tier) == ("stop", "flex")
    [row] = simulator.attempts()
    assert row["billed_prompt_tokens"] == completion.usage.prompt_tokens
    assert row["billed_completion_tokens"] == completion.usage.completion_tokens
    # 0.10 and 0.50 USD a million are 100 and 500 nano-USD a token; flex is half
    paid = (completion.usage.prompt_tokens * 100 + completion.usage.completion_tokens * 500) / 2
    assert row["billed_nano_usd"] == int(paid + 0.5)


@pytest.mark.parametrize(
    ("form", "expected"),
    [("length", openai.LengthFinishReasonError), ("content_filter", openai.ContentFilterFinishReasonError)],
)
def test_a_parsed_answer_that_is_cut_or_filtered(
    gpt: openai.OpenAI, simulator: Simulator, form: str, expected: type[Exception]
) -> None:
    simulator.set_scenario({**STRICT, "answers": [{"form": form}]})
    messages: Any = [{"role": "user", "content": "Which licence?"}]
    with pytest.raises(expected):
        gpt.chat.completions.parse(model="gpt-6-luna", messages=messages, response_format=FORMAT)


def test_responses(gpt: openai.OpenAI, simulator: Simulator) -> None:
    text: Any = {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}}
    answer = gpt.responses.create(model="gpt-6-luna", input="Which licence?", instructions="Be brief.", text=text)
    assert (answer.status, set(json.loads(answer.output_text))) == ("completed", {"licence", "sure"})
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert simulator.attempts()[0]["billed_prompt_tokens"] == answer.usage.input_tokens
    simulator.set_scenario({**STRICT, "answers": [{"form": "length"}]})
    cut = gpt.responses.create(model="gpt-6-luna", input=[{"role": "user", "content": "Which licence?"}])
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    simulator.set_scenario({**STRICT, "answers": [{"form": "refused"}]})
    refused: Any = gpt.responses.create(model="gpt-6-luna", input="Which?").output[0]
    assert refused.content[0].type == "refusal"
    with pytest.raises(openai.BadRequestError) as bad:
        gpt.responses.create(model="gpt-6-luna", input="x", max_output_tokens=3)
    assert bad.value.code == "integer_below_min_value"


def test_embeddings(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """The client asks for base64 unless it is told otherwise, and both ways give the same numbers."""
    packed = gpt.embeddings.create(model="text-embedding-3-small", input=["one", "two"])
    plain = gpt.embeddings.create(model="text-embedding-3-small", input=["one", "two"], encoding_format="float")
    assert [row.index for row in packed.data] == [0, 1]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert len(one.embedding) == 1536
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert sum(value * value for value in one.embedding) == pytest.approx(1, abs=1e-4)
    assert len(gpt.embeddings.create(model="e", input="one", dimensions=7).data[0].embedding) == 7
    assert simulator.attempts()[0]["billed_prompt_tokens"] == packed.usage.prompt_tokens == 2
    for bad in ("", ["one", ""], list(["x"] * 2049)):
        with pytest.raises(openai.BadRequestError):
            gpt.embeddings.create(model="e", input=bad)
    simulator.set_scenario({**STRICT, "answers": [{"vectors": "count"}]})
    assert len(gpt.embeddings.create(model="e", input=["one", "two"]).data) == 1


@pytest.mark.parametrize(
    ("form", "finish"),
    [
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_call", "tool_calls"),
        ("aborted", "abort"),
        ("refused", "stop"),
        ("null", "stop"),
        ("nan", "stop"),
        ("non_ascii", "stop"),
    ],
)
def test_answer_forms(gpt: openai.OpenAI, simulator: Simulator, form: str, finish: str) -> None:
    simulator.set_scenario({**STRICT, "answers": [{"content": {"a": 1}, "form": form}]})
    completion = ask(gpt)
    [choice] = completion.choices
    assert choice.finish_reason == finish
    match form:
        case "refused":
            assert choice.message.refusal
        case "null":
            assert choice.message.content is None
        case "nan":
            assert choice.message.content == '{"a": NaN}'
        case "tool_call":
            assert choice.message.tool_calls[0].function.name == "search"
        case "non_ascii":
            assert not completion.id.isascii()
        case _:
            pass


@pytest.mark.parametrize(("report", "seen"), [("missing", None), ("null", None), ("zero", 0)])
def test_usage_that_is_not_told_is_billed(
    gpt: openai.OpenAI, simulator: Simulator, report: str, seen: int | None
) -> None:
    """E12"""
    simulator.set_scenario({**STRICT, "answers": [{"usage": {"report": report}}]})
    usage = ask(gpt).usage
    assert (None if usage is None else usage.total_tokens) == seen
    assert simulator.ledger()["billed"]["prompt_tokens"] > 0


def test_cached_tokens(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """A long prefix costs a tenth the second time."""
    prefix = {"role": "system", "content": "x" * 8192}
    first, second = (
        ask(gpt, model="gpt-5.4-mini", messages=[prefix, {"role": "user", "content": text}]).usage for text in "ab"
    )
    assert (first.prompt_tokens_details.cached_tokens, second.prompt_tokens_details.cached_tokens) == (0, 2048)
    dear, cheap = (row["billed_nano_usd"] for row in simulator.attempts())
    assert dear - cheap == 2048 * (750 - 75)


def test_cache_breakpoints(gpt: openai.OpenAI, simulator: Simulator) -> None:
    """GPT-5.6 and later charge for what is written, and read only up to where something was marked."""
    part = {"type": "text", "text": "x" * 8192, "prompt_cache_breakpoint": {"mode": "explicit"}}
    marked = [{"role": "system", "content": [part]}]
    explicit: Any = {"mode": "explicit"}
    first, second = (
        ask(gpt, messages=[*marked, {"role": "user", "content": text}], prompt_cache_options=explicit).usage
        for text in "ab"
    )
    told = [
        (use.prompt_tokens_details.cached_tokens, use.prompt_tokens_details.cache_write_tokens)
        for use in (first, second)
    ]
    assert told == [(0, 2048), (2048, 0)]
    plain = ask(gpt, messages=[{"role": "user", "content": "y" * 8192}]).usage
    assert (plain.prompt_tokens_details.cached_tokens, plain.prompt_tokens_details.cache_write_tokens) == (0, 2048)
    write, read, _ = (row["billed_nano_usd"] for row in simulator.attempts())
    assert write - read == 2048 * (125 - 10)
