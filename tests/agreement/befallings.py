"""What befalls the calls of a run: every fault that the provider simulator knows, but for those that no bill shows.

Faults of single calls and lines come at their rates throughout. What befalls whole batches and files is decided when
they are created, so those come in acts, one set of stories after another, for the first batches of each.
"""

from collections.abc import Iterator
from typing import Any, get_args

from nightmill.provider_simulator.call_faults import CallFault
from nightmill.provider_simulator.rules import AnswerForm
from nightmill.provider_simulator.stories import BatchStory, FileStory, LineStory

Rule = dict[str, Any]

#: a share of the calls that each rule befalls
RATE = 0.008
#: a line befalls its second and third try as well, and not every one for ever
LINES = {"on": ["line"], "occurrences": [1, 2, 3]}
#: at once, so that a pool's pause ends before anybody has to wait for it
_SOON = {"retry_after_s": 0}

CALLS: list[Rule] = [
    {"kind": "rate_limited", **_SOON},
    {"kind": "rate_limited", "retry_after": "milliseconds", "dimension": "tokens", **_SOON},
    {"kind": "rate_limited", "retry_after": "http_date", "should_retry": True, **_SOON},
    {"kind": "slow_down", **_SOON},
    {"kind": "overloaded", "should_retry": False},
    {"kind": "server_error"},
    {"kind": "server_error", "status": 504, "billed": True},
    {"kind": "server_error", "billed": True, "rate": 2 * RATE},
    {"kind": "client_error", "status": 400, "param": "messages"},
    {"kind": "client_error", "status": 408},
    {"kind": "client_error", "status": 409},
    {"kind": "client_error", "status": 413, "body": "html"},
    {"kind": "client_error", "status": 422},
    {"kind": "client_error", "status": 425},
    {"kind": "context_length_exceeded"},
    {"kind": "html"},
    {"kind": "html", "billed": True},
    {"kind": "html", "status": 200, "billed": True, "rate": RATE / 4},
    *({"kind": "odd_body", "form": form, "rate": RATE / 2} for form in ("error", "empty", "null", "bom")),
    {"kind": "odd_body", "form": "malformed", "billed": True},
    {"kind": "odd_body", "form": "event_stream", "billed": True},
    {"kind": "bad_gzip"},
    *({"kind": "cut_json", "framing": framing} for framing in ("content_length", "chunked", "close")),
    {"kind": "drip", "chunk_bytes": 256, "every_ms": 10},
    {"kind": "slow", "delay_ms": 150},
    *({"kind": "limit_headers", "form": form} for form in ("absent", "zero", "project")),
    {"kind": "reset_early", "rate": RATE / 2},
    {"kind": "reset_before_billing"},
    {"kind": "reset_after_billing", "rate": 2 * RATE},
    {"kind": "disconnect"},
    {"kind": "disconnect", "billed": True},
    {"kind": "hang", "for_ms": 100, "billed": True},
]
OF_LINES: list[Rule] = [
    {"kind": "server_error", **LINES},
    # an errored request of Anthropic's is not billed: https://platform.claude.com/docs/en/build-with-claude/batch-processing
    *({"kind": "server_error", "billed": True, "match": whose, **LINES} for whose in ("openai-bulk", "own-bulk")),
    {"kind": "overloaded", **LINES},
    {"kind": "rate_limited", **LINES},
    {"kind": "client_error", "status": 400, "param": "messages", **LINES},
    *({"kind": "reset_after_billing", "match": whose, **LINES} for whose in ("openai-bulk", "own-bulk")),
    {"kind": "line_error", **LINES},
    {"kind": "line_error", "form": "status_zero", **LINES},
    *({"kind": "row", "form": form, **LINES} for form in ("missing", "duplicate", "unknown_id", "foreign")),
    {"kind": "row", "form": "odd_type", "match": "anthropic", **LINES},
]

#: what an answer says of its usage, and how the answer is not as it should be
ANSWERS: list[Rule] = [
    {"rate": 0.1, "usage": {"cached": 0.37}},
    {"rate": 0.1, "usage": {"cached": 0.21, "cache_write": 0.4}},
    {"rate": 0.1, "match": "anthropic", "usage": {"cache_write": 0.3, "cache_write_1h": 0.33, "cached": 0.11}},
    {"rate": 0.1, "usage": {"reasoning_tokens": 7}},
    *({"rate": RATE, "usage": {"report": report}} for report in ("missing", "null", "zero")),
    {"rate": 0.05, "match": "openai", "service_tier": "flex"},
    *({"rate": RATE / 2, "form": form.value} for form in AnswerForm),
]

ACTS: list[list[Rule]] = [
    [{"kind": "reset_after_billing", "on": ["batch_create"]}, {"kind": "list_lag", "for_ms": 200}],
    [{"kind": "batch_stuck", "keep": 0.5}],
    [{"kind": "batch_stuck", "keep": 0.5, "for_ms": 4_000}, {"kind": "cancel_races"}],
    [{"kind": "results_gone"}],
    [{"kind": "batch_expires", "keep": 0.5}],
    [{"kind": "batch_expires", "keep": 0.5, "results": "none"}],
    [{"kind": "batch_failed", "lines": 2}, {"kind": "file_pending", "for_ms": 100}],
    [{"kind": "batch_failed", "code": "token_limit_exceeded", "lines": 0}],
    [{"kind": "upload_refused"}, {"kind": "result_file", "form": "cut_last_line"}],
    [{"kind": "upload_altered"}, {"kind": "result_file", "form": "crlf"}, {"kind": "counts_wrong", "form": "null"}],
    [{"kind": "result_file", "form": "blank_line"}, {"kind": "output_id_blank"}],
    [{"kind": "result_file", "form": "bom"}, {"kind": "counts_wrong"}],
    [{"kind": "result_file", "form": "no_final_newline"}, {"kind": "rate_limited", "on": ["batch_create"], **_SOON}],
]
#: of transport, for everything that belongs to batches
OF_BATCHES: list[Rule] = [
    {"kind": "server_error", "on": ["batch_retrieve", "batch_list", "file_content", "batch_results"], "rate": 0.05},
    {"kind": "disconnect", "on": ["batch_retrieve", "file_content", "batch_results"], "rate": 0.05},
    {"kind": "cut_json", "on": ["file_content", "batch_results"], "rate": 0.1},
]

#: what stops a pool until somebody looks: each befalls every call of a pool of its own
STOPS: dict[str, Rule] = {
    "unauthorized": {"kind": "unauthorized"},
    "quota": {"kind": "quota_exhausted"},
    "spend": {"kind": "spend_limit", "form": "enforced"},
    "barred": {"kind": "client_error", "status": 403},
    "unexplained": {"kind": "client_error", "status": 429},
    "redirect": {"kind": "redirect"},
    "pages": {"kind": "html", "status": 200, "billed": True},
}


def scenario(seed: int, act: list[Rule], **fields: Any) -> dict[str, Any]:
    """The scenario of one act."""
    rated = [{"rate": RATE, **rule} for rule in (*CALLS, *OF_LINES)]
    stops = [{**rule, "match": f"{name} stops"} for name, rule in STOPS.items()]
    hang = {"kind": "hang", "match": "impatient", "occurrences": [1], "billed": True}
    acting = [{**rule, **who} for rule in act for who in ({"first": 1}, {"first": 3, "match": "anthropic"})]
    return {"seed": seed, "answers": ANSWERS, "faults": [*acting, hang, *stops, *OF_BATCHES, *rated], **fields}


def kinds() -> set[str]:
    """Kinds of faults that a run brings."""
    acts = (rule for act in ACTS for rule in act)
    return {rule["kind"] for rule in (*CALLS, *OF_LINES, *OF_BATCHES, *STOPS.values(), *acts)}


def known_kinds() -> set[str]:
    """Kinds of faults that the simulator knows and that can show in a bill.

    Not those of webhooks, and not a status that no document names: such a batch is waited for until its provider says
    what it is.
    """
    return set(_kinds(CallFault | BatchStory | FileStory | LineStory)) - {"odd_status"}


def _kinds(union: Any) -> Iterator[str]:
    for fault in get_args(union):
        yield from get_args(fault.model_fields["kind"].annotation)


def kinds_of_calls() -> set[str]:
    """Kinds that the simulator's books name, call by call and line by line."""
    rows = {f"row_{rule['form']}" for rule in OF_LINES if rule["kind"] == "row"}
    stops = {rule["kind"] for rule in STOPS.values()}
    named = {rule["kind"] for rule in (*CALLS, *OF_LINES)} - {"row", "reset_early"}
    return named | rows | stops
