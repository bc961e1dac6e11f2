"""36 to 41: why an answer ended, what is in it, what it says of its usage; shapes of self-hosted servers; vectors."""

from __future__ import annotations

import base64
import json
import math
from array import array
from typing import Any
from uuid import UUID

import pytest

from conformance.faults.site import BATCHES, CHAT, EMBEDDINGS, MESSAGES, Scenario, Site, only, unknown

SCHEMA = {"type": "object", "properties": {"licence": {"type": "string", "enum": ["MIT", "BSD"]}}}
WANTED = {"type": "json_schema", "json_schema": {"name": "licence", "schema": SCHEMA}}

#: a form of an answer, and its reason in OpenAI's words and in Anthropic's
REASONS = {
    "length": ("length", "max_tokens"),
    "content_filter": ("content_filter", "refusal"),
    "aborted": ("abort", "abort"),
    "repetition": ("repetition", "repetition"),
    "refused": ("stop", "refusal"),
    "paused": ("pause_turn", "pause_turn"),
    "tool_call": ("tool_calls", "tool_use"),
    "context_full": ("model_context_window_exceeded", "model_context_window_exceeded"),
}


def finish_reasons(site: Site, scenario: Scenario) -> None:
    """The reason; the refusal and its details; a call of a tool that nobody offered. All of it is billed."""
    form = only(scenario, "answers")["form"]
    reason, stop_reason = REASONS[form]
    [choice] = site.ask(CHAT).json()["choices"]
    assert choice["finish_reason"] == reason
    assert (choice["message"]["refusal"] is not None) is (form == "refused")
    assert ("tool_calls" in choice["message"]) is (form == "tool_call")
    message = site.ask(MESSAGES).json()
    assert message["stop_reason"] == stop_reason
    if stop_reason == "refusal":
        assert message["stop_details"].keys() == {"type", "category", "explanation"}
    else:
        assert message["stop_details"] is None
    assert ([part["type"] for part in message["content"]] == ["tool_use"]) is (form == "tool_call")
    books = site.books(received=2)
    assert (books.billed, books.delivered) == (2, 2)


def contents(site: Site, scenario: Scenario) -> None:
    """What is done to the right answer, which the same question has without the rule."""

    def content() -> Any:
        [choice] = site.ask(response_format=WANTED).json()["choices"]
        assert choice["finish_reason"] == "stop"
        return choice["message"]["content"]

    site.play({})
    right = content()
    assert json.loads(right)["licence"] in ("MIT", "BSD")
    site.play(scenario)
    found = content()
    match only(scenario, "answers")["form"]:
        case "fenced":
            assert found == f"```json\n{right}\n```"
        case "prose":
            before, _, after = found.partition(right)
            assert before.strip()
            assert after.strip()
        case "cut":
            assert found == right[: len(right) // 2]
        case "wrong_schema":
            assert not isinstance(json.loads(found)["licence"], str)
        case "empty":
            assert found == ""
        case "null":
            assert found is None
        case "nan":
            assert math.isnan(json.loads(found)["licence"])
        case form:
            unknown(form)


def usage(site: Site, scenario: Scenario) -> None:
    """What the answer tells, beside what the books have."""
    rule = only(scenario, "answers")
    if "service_tier" in rule:
        _tiers(site, scenario)
    elif "report" in rule["usage"]:
        _silent(site, scenario, rule["usage"]["report"])
    else:
        _parts(site, scenario)


def _silent(site: Site, scenario: Scenario, report: str) -> None:
    """No usage, null or zeros: billed and delivered, and the usage is not."""
    for path in (CHAT, MESSAGES):
        site.play(scenario)
        told = site.ask(path).json()
        match report:
            case "missing":
                assert "usage" not in told
            case "null":
                assert told["usage"] is None
            case "zero":
                assert {value for name, value in told["usage"].items() if name.endswith("_tokens")} == {0}
            case _:
                unknown(report)
        row = site.row()
        assert (row["billed"], row["delivered"], row["usage_delivered"]) == (True, True, False)
        assert row["billed_prompt_tokens"] > 0


def _parts(site: Site, scenario: Scenario) -> None:
    """OpenAI's parts are inside the prompt's number, Anthropic's beside it; the books have each for itself."""
    text = "word " * 800
    told = site.ask(CHAT, text).json()["usage"]
    prompt, parts = told["prompt_tokens"], told["prompt_tokens_details"]
    shares = {"cached_tokens": int(prompt * 0.5), "cache_write_tokens": int(prompt * 0.2)}
    assert {name: parts[name] for name in shares} == shares
    assert told["completion_tokens_details"]["reasoning_tokens"] == 50 < told["completion_tokens"]
    assert told["total_tokens"] == prompt + told["completion_tokens"]
    site.play(scenario)
    told = site.ask(MESSAGES, text).json()["usage"]
    row = site.row()
    written = told["cache_creation"]
    read, short, hour = (int(row["billed_prompt_tokens"] * share) for share in (0.5, 0.2, 0.1))
    assert told["cache_read_input_tokens"] == read == row["billed_cached_tokens"]
    assert written["ephemeral_5m_input_tokens"] == short == row["billed_cache_write_tokens"]
    assert written["ephemeral_1h_input_tokens"] == hour == row["billed_cache_write_1h_tokens"]
    assert told["cache_creation_input_tokens"] == short + hour
    assert told["input_tokens"] == row["billed_prompt_tokens"] - read - short - hour
    assert told["output_tokens_details"]["thinking_tokens"] == 50 < told["output_tokens"]


def _tiers(site: Site, scenario: Scenario) -> None:
    """The tier that was given is told and billed, whichever was asked; a batch has its own."""
    given = only(scenario, "answers")["service_tier"]
    assert site.ask(CHAT, service_tier="priority").json()["service_tier"] == given
    assert site.row()["tier"] == given
    site.play({})
    [row] = site.rows(site.ended(site.create(1, "/v1/messages/batches")))
    assert row["result"]["message"]["usage"]["service_tier"] == "batch"
    assert [row["tier"] for row in site.simulator.attempts()] == ["batch"]


def silent_truncation(site: Site, scenario: Scenario) -> None:
    """200, and the usage alone tells that most of the prompt was not read."""
    got = site.ask(text="word " * 8000)
    assert (got.status, got.json()["usage"]["prompt_tokens"]) == (200, scenario["truncate_tokens"])
    assert got.json()["choices"][0]["finish_reason"] == "stop"


def self_hosted(site: Site, scenario: Scenario) -> None:
    """The body of a refusal as the server has it; batches that it has or has not."""
    got = site.ask(messages=[])
    error, problem = got.json(), "Invalid 'messages': empty array."
    assert got.status == 400
    match scenario["dialect"]:
        case "vllm" | "llm_d":
            assert (error["error"]["type"], error["error"]["code"]) == ("BadRequestError", 400)
        case "sglang":
            assert (error["object"], error["type"], error["code"]) == ("error", "400", 400)
            error = {"error": error}
        case "llama_cpp":
            assert error["error"].keys() == {"code", "message", "type"}
            assert error["error"]["code"] == 400
        case "ollama":
            assert (error["error"]["type"], error["error"]["param"]) == ("invalid_request_error", "messages")
        case "tgi":
            assert error["error_type"] == "validation"
            error = {"error": {"message": error["error"]}}
        case "aibrix":
            error = error["detail"]
            _uuids_and_no_nulls(site)
        case dialect:
            unknown(dialect)
    assert error["error"]["message"].startswith(problem)
    served = scenario["dialect"] in ("aibrix", "llm_d")
    assert site.get(f"{BATCHES}?limit=1").status == (200 if served else 405 if scenario["dialect"] == "tgi" else 404)


def _uuids_and_no_nulls(site: Site) -> None:
    made = site.create()
    assert str(UUID(made["id"])) == made["id"]
    assert str(UUID(made["input_file_id"])) == made["input_file_id"]
    assert None not in made.values()
    assert None not in site.ended(made).values()


def embeddings(site: Site, scenario: Scenario) -> None:
    """Floats and base64 are the same vectors; one is missing, short, not a number or all zero."""
    floats = site.ask(EMBEDDINGS).json()["data"]
    texts = site.ask(EMBEDDINGS, encoding_format="base64").json()["data"]
    read = [list(array("f", base64.b64decode(one["embedding"]))) for one in texts]
    assert [one["index"] for one in floats] == list(range(len(read)))
    for one, same in zip(floats, read, strict=True):
        assert one["embedding"] == pytest.approx(same, abs=1e-6, nan_ok=True)
    sizes = [len(vector) for vector in read]
    lengths = [math.sqrt(sum(value * value for value in vector)) for vector in read]
    form = only(scenario, "answers")["vectors"] if "answers" in scenario else "plain"
    assert sizes == {"count": [1536] * 2, "dimension": [1536, 1536, 1535]}.get(form, [1536] * 3)
    assert lengths[:2] == pytest.approx([1, 1])
    match form:
        case "nan":
            assert math.isnan(lengths[2])
        case "zero":
            assert lengths[2] == 0
        case "plain":
            assert lengths[2] == pytest.approx(1)
        case "count" | "dimension":
            pass  # the sizes tell
        case _:
            unknown(form)
