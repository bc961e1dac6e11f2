"""Anthropic's answers as bytes."""

from __future__ import annotations

from pydantic_core import to_json

from nightmill.provider_simulator.answers import Answer
from nightmill.provider_simulator.asks import Ask
from nightmill.provider_simulator.openai.shapes import Sent
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.rules import UsageForm

_MESSAGE = (
    b'{"id":"msg_%b","type":"message","role":"assistant","model":%b,"content":[%b],"stop_reason":"%b",'
    b'"stop_sequence":null,"stop_details":%b%b}'
)
_USAGE = (
    b',"usage":{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation":'
    b'{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},"output_tokens":%d,'
    b'"output_tokens_details":{"thinking_tokens":%d},"service_tier":"%b"}'
)
_TOOL_USE = b'{"type":"tool_use","id":"toolu_%b","name":"search","input":{"q":"x"}}'
_REFUSED = b'{"type":"refusal","category":"general_harms","explanation":"The request was declined."}'

#: OpenAI's finish reasons, which answers are composed with, in Anthropic's words
STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def message(ask: Ask, answer: Answer, usage: Usage, sent: Sent) -> bytes:
    """A message."""
    reason = STOP_REASONS.get(answer.finish_reason, answer.finish_reason)
    if answer.refusal is not None:
        reason = "refusal"
    if answer.tool_call:
        content = _TOOL_USE % sent.ident
    elif answer.content is None or (reason == "refusal" and not answer.content):
        content = b""
    else:
        content = b'{"type":"text","text":%b}' % to_json(answer.content)
    return _MESSAGE % (
        sent.ident,
        to_json(ask.model),
        content,
        reason.encode(),
        _REFUSED if reason == "refusal" else b"null",
        _usage(usage, sent),
    )


def _usage(usage: Usage, sent: Sent) -> bytes:
    tier = b"standard" if sent.tier in ("default", "auto", "standard_only") else sent.tier.encode()
    match sent.report:
        case UsageForm.MISSING:
            return b""
        case UsageForm.NULL:
            return b',"usage":null'
        case UsageForm.ZERO:
            return _USAGE % (0, 0, 0, 0, 0, 0, 0, tier)
        case UsageForm.FULL:
            written = usage.cache_write_tokens + usage.cache_write_1h_tokens
            return _USAGE % (
                usage.prompt_tokens - usage.cached_tokens - written,
                written,
                usage.cached_tokens,
                usage.cache_write_tokens,
                usage.cache_write_1h_tokens,
                usage.completion_tokens,
                usage.reasoning_tokens,
                tier,
            )
