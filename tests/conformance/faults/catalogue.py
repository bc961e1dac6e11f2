"""The 45 ways in which providers are known to lie, fail and differ, and the scenarios that bring each form of them.

`test_all_45` shows the effect of every scenario here over HTTP, and `unit/provider_simulator/test_catalogue` that no
kind of fault and no form of one has been left out.
"""

from __future__ import annotations

from typing import Any

Scenario = dict[str, Any]


def faults(*kinds: str, **options: Any) -> list[Scenario]:
    """One scenario a kind, with one fault."""
    return [{"faults": [{"kind": kind, **options}]} for kind in kinds]


def answers(**rule: Any) -> list[Scenario]:
    """One scenario, with one content rule."""
    return [{"answers": [rule]}]


def each(kind: str, form: str, *values: Any, **options: Any) -> list[Scenario]:
    """One scenario for each value of a field of the fault."""
    return [scenario for value in values for scenario in faults(kind, **{form: value}, **options)]


STUCK = {"kind": "batch_stuck", "keep": 0.4}
LIMITED = {"requests_per_min": 600}
FAILING = {"kind": "server_error", "on": ["line"]}

CATALOGUE: dict[str, list[Scenario]] = {
    "01 retry-after in every form": [
        scenario
        for form in ("seconds", "milliseconds", "http_date", "garbage", "missing")
        for scenario in each("rate_limited", "retry_after_s", 0, -5, 300, retry_after=form)
    ]
    + faults("rate_limited", dimension="tokens"),
    "02 x-should-retry": faults("rate_limited", "server_error", should_retry=True) + faults("html", should_retry=False),
    "03 no credit": each("quota_exhausted", "code", "insufficient_quota", "credit_balance_exhausted"),
    "04 spend limits": each("spend_limit", "form", "enforced", "contract", "ramp", "own", "workspace", "billing"),
    "05 slow down": each("slow_down", "status", 429, 503),
    "06 overloaded": faults("overloaded") + each("overloaded", "status", 529, 503),
    "07 5xx in JSON and HTML": [
        scenario for status in (500, 502, 503, 504) for scenario in faults("server_error", "html", status=status)
    ],
    "08 other 4xx": [
        scenario
        for status, body in ((408, "json"), (409, "json"), (413, "html"), (425, "empty"), (422, "json"))
        for scenario in faults("client_error", status=status, body=body)
    ],
    "09 key revoked in the middle, 403": faults("unauthorized", from_ms=500) + faults("client_error", status=403),
    "10 limit headers": [
        {"rate_limit": {"requests_per_min": 1, "burst_requests": 2}},
        {"rate_limit": {"input_tokens_per_min": 6000, "output_tokens_per_min": 1}},
        {"rate_limit": LIMITED, "faults": [{"kind": "limit_headers", "form": "absent"}]},
        *each("limit_headers", "form", "zero", "project"),
    ],
    "11 the connection": [
        *faults("reset_early", "reset_before_billing", "disconnect", "hang", "bad_gzip"),
        *faults("drip", chunk_bytes=32, every_ms=8),
        *each("cut_json", "framing", "content_length", "chunked", "close"),
    ],
    "12 odd bodies with 200": [
        *faults("html", status=200),
        *each("odd_body", "form", "error", "empty", "malformed", "null", "bom", "event_stream"),
    ],
    "13 late success": faults("reset_after_billing") + faults("hang", "disconnect", "server_error", billed=True),
    "14 ids beyond ASCII": answers(form="non_ascii"),
    "15 uploaded before processed": faults("file_pending", for_ms=60_000),
    "16 uploads": each("upload_refused", "form", "format", "too_large") + faults("upload_altered", lose_bytes=9),
    "17 failed in validation": [
        scenario
        for code in ("invalid_json_line", "token_limit_exceeded", "empty_file", "duplicate_custom_id")
        for scenario in each("batch_failed", "lines", 0, 3, code=code)
    ],
    "18 enqueued tokens": [
        {"batches": {"max_enqueued_tokens": 200}, "faults": [{"kind": "batch_stuck", "first": 1}]},
        {"batches": {"max_enqueued_requests": 15}, "faults": [{"kind": "batch_stuck", "first": 1}]},
    ],
    "19 stuck, counts frozen": [
        *each("batch_stuck", "state", "validating", "in_progress", "finalizing"),
        *faults("counts_wrong", form="frozen"),
    ],
    "20 very fast batches": [{}],
    "21 shuffled output": [{"batches": {"shuffle": True}}, {"batches": {"shuffle": False}}],
    "22 all failed": [{"faults": [FAILING]}, {"faults": [FAILING, {"kind": "output_id_blank"}]}],
    "23 mixed files": faults("line_error", rate=0.5),
    "24 forms of error rows": faults("server_error", "rate_limited", on=["line"])
    + faults("line_error", form="code", code="request_timeout")
    + faults("line_error", form="status_zero")
    + [{"faults": [{"kind": "counts_wrong", "form": form}, FAILING]} for form in ("all_completed", "zero", "null")],
    "25 rows missing, doubled, strange": each(
        "row", "form", "missing", "duplicate", "unknown_id", "foreign", match="? i-3"
    ),
    "26 spoiled files": [
        *each("result_file", "form", "cut_last_line", "no_final_newline", "crlf", "blank_line", "bom", "odd_size"),
        *answers(form="line_separators"),
    ],
    "27 expiry": faults("batch_expires", keep=0.5)
    + faults("batch_expires", results="none")
    + [{"batches": {"expires": False}, "faults": [{**STUCK, "for_ms": 2 * 86_400_000}]}],
    "28 cancel": [
        {"batches": {"cancel_ms": 60_000}, "faults": [STUCK]},
        {"batches": {"cancelled_rows": True}, "faults": [STUCK]},
        {"batches": {"validate_ms": 60_000}, "faults": [{"kind": "cancel_races"}]},
    ],
    "29 Anthropic's counts and cancel": [
        {"batches": {"run_ms": 60_000}},
        {"faults": [{"kind": "cancel_races"}, {**STUCK, "for_ms": 60_000}]},
        *faults("batch_expires", keep=0.3),
    ],
    "30 unknown types and states": faults("row", form="odd_type") + faults("odd_status", status="paused"),
    "31 results: where, and until when": [
        {"batches": {"results_url": "relative"}},
        {"batches": {"results_url": "absolute"}},
        *[
            {"faults": [{"kind": "results_gone", "file": file}, {"kind": "line_error", "match": "? i-3"}]}
            for file in ("both", "output", "error")
        ],
    ],
    "32 pages, and missing from lists": [{}, *faults("list_lag", for_ms=60_000)],
    "33 create whose answer is lost": faults("reset_after_billing", on=["batch_create"], first=1)
    + each("hang", "billed", True, False, on=["batch_create"], first=1),
    "34 polling that is limited": faults("rate_limited", on=["batch_retrieve", "batch_list"], first=1),
    "35 webhooks": [
        {},
        *faults("webhook", form="delayed", delay_ms=60_000),
        *each("webhook", "form", "duplicated", "bad_signature", "old_timestamp", "dropped"),
        *faults("webhook", form="out_of_order", first=1),
    ],
    "36 finish reasons": [
        scenario
        for form in ("length", "content_filter", "aborted", "repetition", "refused", "paused", "tool_call")
        for scenario in answers(form=form)
    ]
    + answers(form="context_full"),
    "37 answers": [
        scenario
        for form in ("fenced", "prose", "cut", "wrong_schema", "empty", "null", "nan")
        for scenario in answers(form=form)
    ],
    "38 usage": [
        *[scenario for report in ("missing", "null", "zero") for scenario in answers(usage={"report": report})],
        *answers(usage={"cached": 0.5, "cache_write": 0.2, "cache_write_1h": 0.1, "reasoning_tokens": 50}),
        *answers(service_tier="default"),
        *answers(service_tier="flex"),
    ],
    "39 silent truncation": [{"dialect": "ollama", "truncate_tokens": 4096}],
    "40 self-hosted shapes": [
        {"dialect": name} for name in ("vllm", "sglang", "llama_cpp", "ollama", "tgi", "aibrix", "llm_d")
    ],
    "41 embeddings": [
        {},
        *[scenario for form in ("count", "dimension", "nan", "zero") for scenario in answers(vectors=form)],
    ],
    "42 versions": [{"dialect": "openai"}],
    "43 time and room": [
        {"latency": {"fixed_ms": 20, "per_token_us": 1000}},
        {"latency": {"jitter_ms": 30, "tail_ms": 30}},
        {"latency": {"warm_up_ms": 3_600_000}},
        {"capacity": {"slots": 4, "queue": 2}, "latency": {"fixed_ms": 1000}},
    ],
    "44 the same seed, the same answers": [{"seed": 7}],
    "45 the books": [{"prices": {"*": {"input": "1", "output": "2.5"}}}],
}


_LEFT_OUT = ("on", "first", "match", "keep", "from_ms", "chunk_bytes", "every_ms")
_UNNAMED = ("faults", "answers", "kind", "form", "framing", "state", "status", "code", "file", "body", "retry_after")


def label(value: Any) -> str:
    """What tells a scenario from the others of its row."""
    if isinstance(value, list):
        return "-".join(map(label, value))
    if not isinstance(value, dict):
        return str(value)
    told = ((name, label(one)) for name, one in value.items() if name not in _LEFT_OUT)
    return "-".join(said if name in _UNNAMED else f"{name}-{said}" for name, said in told)
