"""`openai`: models, chat, responses, embeddings; its exceptions, its retries, its headers."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from conformance.sdk.conftest import STRICT
from kit.simulator import Simulator

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"licence": {"enum": ["MIT", "BSD"]}, "sure": {"type": "boolean"}},
    "required": ["licence", "sure"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
TOOLS: Any = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def ask(client: openai.OpenAI, text: str = "Which licence?", **more: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(**{"model": "gpt-6-luna", "messages": messages, **more})


def test_models(gpt: openai.OpenAI, simulator: Simulator) -> None:
    simulator.set_scenario({**STRICT, "models": ["gpt-6-luna", "gpt-6-sol"]})
    assert [model.id for model in gpt.models.list()] == ["gpt-6-luna", "gpt-6-sol"]
    assert gpt.models.retrieve("gpt-6-sol").id == "gpt-6-sol"
    with pytest.raises(openai.NotFoundError) as unknown:
        gpt.models.retrieve("gpt-2")
    assert unknown.value.code == "model_not_found"


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


def test_headers(gpt: openai.OpenAI) -> None:
    answer = gpt.chat.completions.with_raw_response.create(
        model="gpt-6-luna", messages=[{"role": "user", "content": "hi"}]
    )
    assert answer.request_id is not None
    assert answer.request_id.startswith("req_")
    assert answer.headers["openai-version"] == "2020-10-01"
    assert {"x-ratelimit-limit-requests", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests"} <= set(
        answer.headers
    )


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"extra_body": {"guided_json": {}}}, "guided_json", "unknown_parameter"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"temperature": 2.5}, "temperature", "decimal_above_max_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
        ({"service_tier": "gold"}, None, "invalid_value"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "array_above_max_length"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens", "invalid_parameter_combination"),
        ({"response_format": {"type": "json_object"}}, "messages", None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
            "response_format.json_schema.name",
            "invalid_value",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "properties": {}}},
                }
            },
            "response_format",
            "invalid_json_schema",
        ),
        ({"extra_body": {"model": None}}, None, None),
        ({"stream": True}, "stream", "unsupported_value"),
        ({"n": 2}, "n", "unsupported_value"),
        ({"logprobs": True}, "logprobs", "unsupported_value"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice", "unsupported_value"),
        ({"web_search_options": {}}, "web_search_options", "unsupported_value"),
    ],
)
def test_bad_requests(
    gpt: openai.OpenAI, simulator: Simulator, changes: dict[str, Any], param: str | None, code: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(gpt, **changes)
    error = refused.value
    assert (error.code, error.type) == (code, "invalid_request_error")
    assert param is None or error.param == param
    assert simulator.ledger()["accepted"]["calls"] == 0


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "rate_limited"}, openai.RateLimitError),
        ({"kind": "quota_exhausted"}, openai.RateLimitError),
        ({"kind": "slow_down", "status": 503}, openai.InternalServerError),
        ({"kind": "overloaded"}, openai.InternalServerError),
        ({"kind": "server_error"}, openai.InternalServerError),
        ({"kind": "unauthorized"}, openai.AuthenticationError),
        ({"kind": "client_error", "status": 403}, openai.PermissionDeniedError),
        ({"kind": "client_error", "status": 404}, openai.NotFoundError),
        ({"kind": "client_error", "status": 409}, openai.ConflictError),
        ({"kind": "client_error", "status": 422}, openai.UnprocessableEntityError),
        ({"kind": "client_error", "status": 413, "body": "html"}, openai.APIStatusError),
        ({"kind": "client_error", "status": 425}, openai.APIStatusError),
        ({"kind": "context_length_exceeded"}, openai.BadRequestError),
        ({"kind": "html", "status": 502}, openai.InternalServerError),
        ({"kind": "reset_before_billing"}, openai.APIConnectionError),
        ({"kind": "reset_early"}, openai.APIConnectionError),
        ({"kind": "disconnect"}, openai.APIConnectionError),
        ({"kind": "hang"}, openai.APITimeoutError),
        ({"kind": "cut_json"}, openai.APIConnectionError),
    ],
)
def test_exceptions(gpt: openai.OpenAI, simulator: Simulator, fault: dict[str, Any], expected: type[Exception]) -> None:
    simulator.set_scenario({**STRICT, "faults": [fault]})
    with pytest.raises(expected):
        ask(gpt.with_options(timeout=1))


def test_fault_by_header(gpt: openai.OpenAI) -> None:
    header = {"x-sim-fault": json.dumps({"kind": "rate_limited", "retry_after_s": 7})}
    with pytest.raises(openai.RateLimitError) as limited:
        ask(gpt, extra_headers=header)
    assert limited.value.response.headers["retry-after"] == "7"
    assert ask(gpt).choices
    with pytest.raises(openai.BadRequestError, match="x-sim-fault"):
        ask(gpt, extra_headers={"x-sim-fault": "{}"})


def test_keys(simulator: Simulator) -> None:
    with (
        openai.OpenAI(base_url=simulator.base_url, api_key="sk-invalid-3", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        ask(client)
    assert refused.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("changes", "expected", "code"),
    [
        ({"stream": True}, openai.BadRequestError, "unsupported_value"),
        ({"background": True}, openai.BadRequestError, "unsupported_value"),
        ({"previous_response_id": "resp_1"}, openai.BadRequestError, "previous_response_not_found"),
        ({"conversation": "conv_1"}, openai.NotFoundError, None),
        ({"extra_body": {"colour": "red"}}, openai.BadRequestError, "unknown_parameter"),
    ],
)
def test_responses_that_are_refused(
    gpt: openai.OpenAI, simulator: Simulator, changes: dict[str, Any], expected: type[openai.APIStatusError], code: str
) -> None:
    """What is not simulated is refused, as an unknown parameter is, and costs nothing."""
    with pytest.raises(expected) as refused:
        gpt.responses.create(**{"model": "gpt-6-luna", "input": "Which licence?", **changes})
    assert refused.value.code == code
    assert simulator.ledger()["accepted"]["calls"] == 0


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


def test_the_client_retries_what_it_may(simulator: Simulator) -> None:
    """E9: two failures are retried, a `x-should-retry: false` is obeyed."""
    with openai.OpenAI(base_url=simulator.base_url, api_key="k", max_retries=2) as client:
        simulator.set_scenario(
            {
                **STRICT,
                "faults": [{"kind": "rate_limited", "retry_after": "milliseconds", "retry_after_s": 0, "first": 2}],
            }
        )
        assert ask(client).choices
        assert [row["status"] for row in simulator.attempts(refused=True)] == [429, 429, 200]
        simulator.set_scenario({**STRICT, "faults": [{"kind": "server_error", "should_retry": False}]})
        simulator.reset()
        with pytest.raises(openai.InternalServerError):
            ask(client)
        assert simulator.ledger()["received"]["calls"] == 1


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
