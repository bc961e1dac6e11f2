"""The failures that the simulated provider can show to a realtime call, row by row of the failure table.

A row that rests on weak sources stands here in each of its forms.
"""

from typing import Any, NamedTuple

from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.means import S

OPENAI: dict[str, Any] = {"provider": "openai", "model": "gpt-6-luna"}
RESPONSES: dict[str, Any] = {**OPENAI, "api": "responses"}
ANTHROPIC: dict[str, Any] = {"provider": "anthropic", "model": "claude-haiku-5-5"}
OLDER: dict[str, Any] = {**ANTHROPIC, "anthropic_version": "2023-06-01"}
SERVER: dict[str, Any] = {"provider": "openai_compatible", "model": "small"}
BOTH = (OPENAI, ANTHROPIC)
ALL = (OPENAI, RESPONSES, ANTHROPIC)


class Case(NamedTuple):
    """A scenario of the simulator and what the gateway's caller must make of it."""

    row: str
    pool: dict[str, Any]
    scenario: dict[str, Any]
    signal: Signal
    wait_ms: int | None = None
    param: str | None = None

    @property
    def name(self) -> str:
        return f"{self.row} {self.pool.get('api') or self.pool['provider']}"


def fault(kind: str, **fields: Any) -> dict[str, Any]:
    return {"faults": [{"kind": kind, **fields}]}


def refused(status: int, **fields: Any) -> dict[str, Any]:
    return fault("client_error", status=status, **fields)


def answers(form: str, **usage: Any) -> dict[str, Any]:
    return {"answers": [{"form": form, "usage": usage}]}


def each(
    row: str, pools: tuple[dict[str, Any], ...], scenario: dict[str, Any], signal: Signal, **more: Any
) -> list[Case]:
    return [Case(row, pool, scenario, signal, **more) for pool in pools]


HOUR_MS = 3_600_000
QUOTA_CODES: tuple[str, ...] = (
    *("insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded"),
    *("project_spend_limit_exceeded", "organization_usage_limit_exceeded", "billing_hard_limit_reached"),
)
POLICY_CODES: tuple[str, ...] = (
    *("content_filter", "content_policy_violation", "invalid_prompt", "bio_policy"),
    "misalignment_policy_violation",
)
DIALECTS = ("vllm", "sglang", "llama_cpp", "ollama", "tgi", "aibrix", "llm_d")
REMOVED = "temperature: this parameter was removed in version 2026-10-21"

CASES = [
    *each("1 seconds", ALL, fault("rate_limited", retry_after_s=7), S.RATE_LIMITED, wait_ms=7_000),
    *each("1 ms", BOTH, fault("rate_limited", retry_after="milliseconds"), S.RATE_LIMITED, wait_ms=1_000),
    *each("1 zero", (ANTHROPIC,), fault("rate_limited", retry_after_s=0), S.RATE_LIMITED, wait_ms=0),
    *each("1 five minutes", BOTH, fault("rate_limited", retry_after_s=300), S.RATE_LIMITED, wait_ms=300_000),
    *each("1 clamped", BOTH, fault("rate_limited", retry_after_s=90_000), S.RATE_LIMITED, wait_ms=HOUR_MS),
    *each("1 tokens", BOTH, fault("rate_limited", dimension="tokens", retry_after_s=2), S.RATE_LIMITED, wait_ms=2_000),
    Case("2", OPENAI, {"rate_limit": {"tokens_per_min": 10}}, S.REQUEST_OVER_RATE),
    *each("3 429", (OPENAI, RESPONSES), fault("slow_down", retry_after_s=3), S.SLOW_DOWN, wait_ms=3_000),
    Case("3 503", OPENAI, fault("slow_down", status=503, retry_after="missing"), S.SLOW_DOWN),
    Case("3 ramp", ANTHROPIC, fault("spend_limit", form="ramp", retry_after_s=4), S.SLOW_DOWN, wait_ms=4_000),
    Case("3 acceleration", ANTHROPIC, refused(429, message="… maximum usage increase rate …"), S.SLOW_DOWN),
    *[Case(f"4 {code}", OPENAI, fault("quota_exhausted", code=code), S.OUT_OF_CREDIT) for code in QUOTA_CODES],
    Case("4 type alone", OPENAI, refused(429, type="insufficient_quota"), S.OUT_OF_CREDIT),
    *[
        Case(f"5 {form}", ANTHROPIC, fault("spend_limit", form=form), S.BILLING)
        for form in ("enforced", "contract", "own", "workspace", "billing")
    ],
    Case("5 402", OPENAI, refused(402), S.BILLING),
    *each("6", BOTH, refused(429), S.UNKNOWN_429),
    *each("6 garbage", BOTH, refused(429, retry_after="garbage"), S.UNKNOWN_429),
    Case("7", OPENAI, refused(429, code="flex_unavailable"), S.TIER_UNAVAILABLE),
    Case("7 named otherwise", OPENAI, refused(429, code="resource_unavailable"), S.TIER_UNAVAILABLE),
    *each("8", ALL, fault("overloaded"), S.OVERLOADED),
    *each("8 other status", (OPENAI,), fault("overloaded", status=529), S.OVERLOADED),
    Case("8 hinted", ANTHROPIC, fault("overloaded", retry_after="seconds"), S.OVERLOADED, wait_ms=1_000),
    Case("8 tgi", SERVER, {"dialect": "tgi", **refused(429)}, S.OVERLOADED),
    *[Case(f"9 {status}", pool, fault("server_error", status=status), S.SERVER_ERROR)
      for status in (500, 502, 504) for pool in ALL],
    *[Case(f"9 {dialect}", SERVER, {"dialect": dialect, **fault("server_error")}, S.SERVER_ERROR)
      for dialect in DIALECTS],
    # the header speaks to clients that call again within seconds; here the class decides, and the budget
    *each("9 told not to call again", BOTH, fault("server_error", should_retry=False), S.SERVER_ERROR),
    *each("14 told to call again", BOTH, refused(400, should_retry=True), S.BAD_REQUEST),
    Case("10", SERVER, {"dialect": "llama_cpp", "latency": {"warm_up_ms": 60_000}}, S.MODEL_LOADING),
    *each("11", BOTH, refused(408), S.REQUEST_TIMEOUT),
    Case("11 aibrix", SERVER, {"dialect": "aibrix", **refused(408)}, S.REQUEST_TIMEOUT),
    *each("12", BOTH, refused(409), S.CONFLICT),
    *each("13", BOTH, refused(425), S.TOO_EARLY),
    Case("14", OPENAI, refused(400, param="messages.0.content"), S.BAD_REQUEST, param="messages.0.content"),
    Case("14", RESPONSES, refused(400, param="input"), S.BAD_REQUEST, param="input"),
    Case("14", ANTHROPIC, refused(400, message="messages.0.content: no"), S.BAD_REQUEST, param="messages.0.content"),
    *each("14 422", BOTH, refused(422), S.BAD_REQUEST),
    *[Case(f"14 {dialect}", SERVER, {"dialect": dialect, **refused(422)}, S.BAD_REQUEST) for dialect in DIALECTS],
    *each("15", ALL, fault("context_length_exceeded"), S.CONTEXT_TOO_LONG),
    *[Case(f"15 {dialect}", SERVER, {"dialect": dialect, **fault("context_length_exceeded")}, S.CONTEXT_TOO_LONG)
      for dialect in DIALECTS],
    Case("16", ANTHROPIC, refused(400, message=REMOVED), S.PARAMETER_REFUSED, param="temperature"),
    Case("16", OPENAI, refused(400, code="unsupported_value", param="temperature"), S.PARAMETER_REFUSED,
         param="temperature"),
    *each("17", ALL, refused(413), S.TOO_LARGE),
    *each("17 page", BOTH, refused(413, body="html"), S.TOO_LARGE),
    *each("18", ALL, fault("unauthorized"), S.KEY_REFUSED),
    *[Case(f"18 {dialect}", SERVER, {"dialect": dialect, **fault("unauthorized")}, S.KEY_REFUSED)
      for dialect in DIALECTS],
    Case("18 region", OPENAI, refused(403, code="unsupported_country_region_territory"), S.KEY_REFUSED),
    *each("18 page", BOTH, refused(403, body="html"), S.KEY_REFUSED),
    *each("19 model", ALL, {"models": ["other"]}, S.MODEL_REFUSED),
    *[Case(f"19 {dialect}", SERVER, {"dialect": dialect, "models": ["other"]},
           S.ENDPOINT_MISSING if dialect == "aibrix" else S.MODEL_REFUSED) for dialect in DIALECTS],
    Case("19 right", ANTHROPIC, refused(403), S.MODEL_REFUSED),
    *each("19 path", (OPENAI, ANTHROPIC, SERVER), refused(404, body="empty"), S.ENDPOINT_MISSING),
    *each("21 proxy", BOTH, refused(407, body="html"), S.PROXY_AUTHENTICATION),
    *[Case(f"22 {kind}", pool, fault(kind), S.CONNECTION_LOST)
      for kind in ("reset_before_billing", "reset_after_billing", "disconnect") for pool in ALL],
    *each("22 closed, billed", BOTH, fault("disconnect", billed=True), S.CONNECTION_LOST),
    *each("23 hang", BOTH, fault("hang", for_ms=20_000), S.DEADLINE_PASSED),
    *each("23 drip", BOTH, fault("drip", chunk_bytes=1, every_ms=40), S.DEADLINE_PASSED),
    *each("23 slow", (OPENAI,), fault("slow", delay_ms=20_000), S.DEADLINE_PASSED),
    # part of the request may have arrived before the reset, so a single call can not call it free
    *each("24", BOTH, fault("reset_early"), S.CONNECTION_LOST),
    *each("25 length", ALL, fault("cut_json"), S.BODY_INCOMPLETE),
    *each("25 chunked", BOTH, fault("cut_json", framing="chunked"), S.BODY_INCOMPLETE),
    *each("26", ALL, fault("cut_json", framing="close"), S.BODY_CUT),
    *each("26 first half", BOTH, fault("odd_body", form="malformed"), S.BODY_CUT),
    *each("27 gzip", ALL, fault("bad_gzip"), S.BODY_UNDECODABLE),
    *each("27 mark", BOTH, fault("odd_body", form="bom"), S.BODY_MALFORMED),
    *each("27 empty", BOTH, fault("odd_body", form="empty"), S.BODY_MALFORMED),
    *each("28 known", BOTH, fault("odd_body", form="error"), S.SERVER_ERROR),
    *each("28 unknown", (SERVER,), fault("odd_body", form="error"), S.ERROR_IN_SUCCESS),
    *each("28 null", ALL, fault("odd_body", form="null"), S.UNEXPECTED_SHAPE),
    *each("28 page", ALL, fault("html", status=200), S.HTML_BODY),
    *[Case(f"29 {status}", pool, fault("redirect", status=status), S.REDIRECT)
      for status in (301, 302, 303, 307, 308) for pool in BOTH],
    *[Case(f"30 {status}", pool, fault("html", status=status), S.GATEWAY_HTML)
      for status in (502, 503, 504) for pool in BOTH],
    *each("31", (SERVER, *BOTH), fault("odd_body", form="event_stream"), S.STREAM_ERROR),
    Case("33", ANTHROPIC, answers("context_full"), S.CONTEXT_FULL),
    *each("34 abort", (SERVER,), answers("aborted"), S.FINISH_ABORTED),
    *each("34 repetition", (SERVER,), answers("repetition"), S.FINISH_ABORTED),
    *each("35", ALL, answers("refused"), S.REFUSAL),
    *each("36 finish", (OPENAI, RESPONSES), answers("content_filter"), S.CONTENT_FILTER),
    *[Case(f"36 {code}", OPENAI, refused(400, code=code), S.PROMPT_FILTERED) for code in POLICY_CODES],
    Case("37 turn", ANTHROPIC, answers("paused"), S.TURN_PAUSED),
    *each("37 tool", ALL, answers("tool_call"), S.TOOL_CALL),
    *each("38 empty", ALL, answers("empty"), S.EMPTY_CONTENT),
    *each("38 null", ALL, answers("null"), S.EMPTY_CONTENT),
]  # fmt: skip
