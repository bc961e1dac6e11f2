"""The ways in which providers are known to lie, fail and differ, and the switch of a scenario for each of them."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from nightmill.provider_simulator.call_faults import CallFault
from nightmill.provider_simulator.rules import AnswerForm, VectorForm
from nightmill.provider_simulator.scenario import parse_scenario
from nightmill.provider_simulator.stories import BatchStory, FileStory, LineStory


def faults(*kinds: str, **options: Any) -> list[dict[str, Any]]:
    return [{"faults": [{"kind": kind, **options}]} for kind in kinds]


def answers(**rule: Any) -> list[dict[str, Any]]:
    return [{"answers": [rule]}]


CATALOGUE: dict[str, list[dict[str, Any]]] = {
    "01 retry-after in every form": [
        scenario
        for form in ("seconds", "milliseconds", "http_date", "garbage", "missing")
        for after_s in (0, -5, 300)
        for scenario in faults("rate_limited", retry_after=form, retry_after_s=after_s)
    ],
    "02 x-should-retry": faults("rate_limited", "server_error", should_retry=True) + faults("html", should_retry=False),
    "03 no credit": faults("quota_exhausted", code="insufficient_quota")
    + faults("quota_exhausted", code="credit_balance_exhausted"),
    "04 spend limits": [
        scenario
        for form in ("enforced", "contract", "ramp", "own", "workspace", "billing")
        for scenario in faults("spend_limit", form=form)
    ],
    "05 slow down": faults("slow_down", status=429) + faults("slow_down", status=503),
    "06 overloaded": faults("overloaded") + faults("overloaded", status=529) + faults("overloaded", status=503),
    "07 5xx in JSON and HTML": [
        scenario for status in (500, 502, 503, 504) for scenario in faults("server_error", "html", status=status)
    ],
    "08 other 4xx": [
        scenario
        for status, body in ((408, "json"), (409, "json"), (413, "html"), (425, "empty"), (422, "json"))
        for scenario in faults("client_error", status=status, body=body)
    ],
    "09 key revoked in the middle, 403": faults("unauthorized", from_ms=1000) + faults("client_error", status=403),
    "10 limit headers": [
        {"rate_limit": {"requests_per_min": 1}},
        {"rate_limit": {"input_tokens_per_min": 1, "output_tokens_per_min": 1}},
        *[scenario for form in ("absent", "zero", "project") for scenario in faults("limit_headers", form=form)],
    ],
    "11 the connection": [
        *faults("reset_early", "reset_before_billing", "disconnect", "drip", "hang", "bad_gzip"),
        *[s for framing in ("content_length", "chunked", "close") for s in faults("cut_json", framing=framing)],
    ],
    "12 odd bodies with 200": [
        *faults("html", status=200),
        *[
            s
            for form in ("error", "empty", "malformed", "null", "bom", "event_stream")
            for s in faults("odd_body", form=form)
        ],
    ],
    "13 late success": faults("reset_after_billing") + faults("hang", "disconnect", "server_error", billed=True),
    "14 ids beyond ASCII": answers(form="non_ascii"),
    "15 uploaded before processed": faults("file_pending"),
    "16 uploads": faults("upload_refused", form="format")
    + faults("upload_refused", form="too_large")
    + faults("upload_altered", lose_bytes=9),
    "17 failed in validation": [
        s
        for code in ("invalid_json_line", "token_limit_exceeded", "empty_file", "duplicate_custom_id")
        for lines in (0, 3)
        for s in faults("batch_failed", code=code, lines=lines)
    ],
    "18 enqueued tokens": [{"batches": {"max_enqueued_tokens": 1000}}, {"batches": {"max_enqueued_requests": 10}}],
    "19 stuck, counts frozen": [
        *[s for state in ("validating", "in_progress", "finalizing") for s in faults("batch_stuck", state=state)],
        *faults("counts_wrong", form="frozen"),
    ],
    "20 very fast batches": [{}],
    "21 shuffled output": [{"batches": {"shuffle": True}}, {"batches": {"shuffle": False}}],
    "22 all failed": faults("output_id_blank"),
    "23 mixed files": faults("line_error", rate=0.5),
    "24 forms of error rows": faults("server_error", "rate_limited", on=["line"])
    + faults("line_error", form="code", code="request_timeout")
    + faults("line_error", form="status_zero")
    + faults("counts_wrong", form="all_completed"),
    "25 rows missing, doubled, strange": [
        s for form in ("missing", "duplicate", "unknown_id", "foreign") for s in faults("row", form=form)
    ],
    "26 spoiled files": [
        s
        for form in ("cut_last_line", "no_final_newline", "crlf", "blank_line", "bom", "odd_size")
        for s in faults("result_file", form=form)
    ]
    + answers(form="line_separators"),
    "27 expiry": faults("batch_expires", keep=0.5)
    + faults("batch_expires", results="none")
    + [{"batches": {"expires": False}}],
    "28 cancel": [{"batches": {"cancel_ms": 5000}}, {"batches": {"cancelled_rows": True}}, *faults("cancel_races")],
    "29 Anthropic's counts and cancel": faults("cancel_races", "batch_expires"),
    "30 unknown types and states": faults("row", form="odd_type") + faults("odd_status", status="paused"),
    "31 results: where, and until when": [{"batches": {"results_url": "relative"}}, *faults("results_gone")],
    "32 missing from lists": faults("list_lag", for_ms=10_000),
    "33 create whose answer is lost": faults("reset_after_billing", "hang", on=["batch_create"], first=1),
    "34 polling that is limited": faults("rate_limited", on=["batch_retrieve", "batch_list"]),
    "35 webhooks": [
        s
        for form in ("delayed", "duplicated", "out_of_order", "bad_signature", "old_timestamp", "dropped")
        for s in faults("webhook", form=form)
    ],
    "36 finish reasons": [
        s
        for form in (
            "length",
            "content_filter",
            "aborted",
            "repetition",
            "refused",
            "paused",
            "tool_call",
            "context_full",
        )
        for s in answers(form=form)
    ],
    "37 answers": [
        s for form in ("fenced", "prose", "cut", "wrong_schema", "empty", "null", "nan") for s in answers(form=form)
    ],
    "38 usage": [
        *[s for report in ("missing", "null", "zero") for s in answers(usage={"report": report})],
        *answers(usage={"cached": 0.5, "cache_write": 0.2, "cache_write_1h": 0.1, "reasoning_tokens": 50}),
        *answers(service_tier="default"),
    ],
    "39 silent truncation": [{"dialect": "ollama", "truncate_tokens": 4096}],
    "40 self-hosted shapes": [
        {"dialect": name} for name in ("vllm", "sglang", "llama_cpp", "ollama", "tgi", "aibrix", "llm_d")
    ],
    "41 embeddings": [s for form in ("count", "dimension", "nan", "zero") for s in answers(vectors=form)],
    "42 versions": [{}],
    "43 time and room": [
        {"latency": {"fixed_ms": 5, "jitter_ms": 5, "tail_ms": 5, "per_token_us": 10, "warm_up_ms": 100}},
        {"capacity": {"slots": 4, "queue": 2}},
    ],
    "44 the same seed, the same answers": [{"seed": 7}],
    "45 the books": [{"prices": {"*": {"input": "1", "output": "2.5"}}}],
}


def test_there_are_45() -> None:
    assert [name[:2] for name in CATALOGUE] == [f"{n:02}" for n in range(1, 46)]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_switch_is_there(name: str) -> None:
    for scenario in CATALOGUE[name]:
        parse_scenario(scenario, where=name)


def test_no_switch_is_forgotten() -> None:
    """Every kind of fault and every form of answer that a scenario knows has its place above."""
    listed = [scenario for scenarios in CATALOGUE.values() for scenario in scenarios]
    kinds = {fault["kind"] for scenario in listed for fault in scenario.get("faults", [])}
    unions = (CallFault, BatchStory, LineStory, FileStory)
    known = {get_args(model.model_fields["kind"].annotation)[0] for union in unions for model in get_args(union)}
    assert known - kinds == {"slow", "redirect", "context_length_exceeded"}  # ordinary, not lies
    forms = {rule.get("form", "plain") for scenario in listed for rule in scenario.get("answers", [])}
    assert forms == {form.value for form in AnswerForm}
    vectors = {rule.get("vectors", "plain") for scenario in listed for rule in scenario.get("answers", [])}
    assert vectors == {form.value for form in VectorForm}
