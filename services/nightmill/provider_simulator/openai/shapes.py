"""OpenAI's answers as bytes, from templates: a JSON encoder per call would be the largest cost of a call."""

from __future__ import annotations

from typing import NamedTuple

from pydantic_core import to_json

from nightmill.provider_simulator.answers import Answer
from nightmill.provider_simulator.asks import Ask
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.rules import UsageForm, VectorForm
from nightmill.provider_simulator.vectors import encoded, vectors

_CHAT = (
    b'{"id":"chatcmpl-%b","object":"chat.completion","created":%d,"model":%b,"choices":[{"index":0,"message":'
    b'{"role":"assistant","content":%b,"refusal":%b,"annotations":[]%b},"logprobs":null,"finish_reason":"%b"}]%b,'
    b'"service_tier":"%b","system_fingerprint":null}'
)
_CHAT_USAGE = (
    b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":'
    b'{"cached_tokens":%d,"cache_write_tokens":%d,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":%d,'
    b'"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
)
_TOOL_CALL = (
    b',"tool_calls":[{"id":"call_%b","type":"function","function":{"name":"search","arguments":"{\\"q\\":\\"x\\"}"}}]'
)
_RESPONSE = (
    b'{"id":"resp_%b","object":"response","created_at":%d,"status":"%b","background":false,"error":null,'
    b'"incomplete_details":%b,"instructions":null,"max_output_tokens":%b,"model":%b,"output":[%b],'
    b'"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},'
    b'"service_tier":"%b","store":true,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto",'
    b'"tools":[],"top_p":1.0,"truncation":"disabled"%b,"user":null,"metadata":{}}'
)
_RESPONSE_USAGE = (
    b',"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
    b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
)
_MESSAGE = b'{"type":"message","id":"msg_%b","status":"%b","role":"assistant","content":[%b]}'
_FUNCTION_CALL = (
    b'{"type":"function_call","id":"fc_%b","call_id":"call_%b","name":"search","arguments":"{\\"q\\":\\"x\\"}",'
    b'"status":"completed"}'
)
_EMBEDDINGS = b'{"object":"list","data":[%b],"model":%b%b}'
_INCOMPLETE = {"length": b'{"reason":"max_output_tokens"}', "content_filter": b'{"reason":"content_filter"}'}


class Sent(NamedTuple):
    """What an answer says besides its content."""

    ident: bytes  # the unique part of its ids
    created_at_s: int
    tier: str
    report: UsageForm = UsageForm.FULL


def ident_of(digest: bytes, occurrence: int, *, odd: bool) -> bytes:
    """The unique part of an id; with `odd` it holds letters beyond ASCII."""
    plain = f"{digest[:10].hex()}{occurrence:04d}"
    return f"{plain}é漢".encode() if odd else plain.encode()


def chat(ask: Ask, answer: Answer, usage: Usage, sent: Sent) -> bytes:
    """A chat completion."""
    return _CHAT % (
        sent.ident,
        sent.created_at_s,
        to_json(ask.model),
        to_json(answer.content),
        to_json(answer.refusal),
        _TOOL_CALL % sent.ident if answer.tool_call else b"",
        answer.finish_reason.encode(),
        _chat_usage(usage, sent.report),
        sent.tier.encode(),
    )


def response(ask: Ask, answer: Answer, usage: Usage, sent: Sent) -> bytes:
    """An answer of /v1/responses."""
    incomplete = _INCOMPLETE.get(answer.finish_reason)
    status = b"completed" if incomplete is None else b"incomplete"
    if answer.tool_call:
        output = _FUNCTION_CALL % (sent.ident, sent.ident)
    else:
        if answer.refusal is not None:
            part = b'{"type":"refusal","refusal":%b}' % to_json(answer.refusal)
        else:
            part = b'{"type":"output_text","text":%b,"annotations":[],"logprobs":[]}' % to_json(answer.content or "")
        output = _MESSAGE % (sent.ident, status, part)
    return _RESPONSE % (
        sent.ident,
        sent.created_at_s,
        status,
        incomplete or b"null",
        to_json(ask.max_tokens),
        to_json(ask.model),
        output,
        sent.tier.encode(),
        _response_usage(usage, sent.report),
    )


def embeddings(ask: Ask, usage: Usage, sent: Sent, *, dimensions: int, seed: int, form: VectorForm) -> bytes:
    """The vectors of an embedding call."""
    made = vectors(ask.inputs, dimensions=ask.dimensions or dimensions, seed=seed, form=form)
    rows = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (place, encoded(one, base64=ask.base64))
        for place, one in enumerate(made)
    )
    tokens = usage.prompt_tokens if sent.report is UsageForm.FULL else 0
    told = b',"usage":{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
    silent = {UsageForm.MISSING: b"", UsageForm.NULL: b',"usage":null'}
    return _EMBEDDINGS % (rows, to_json(ask.model), silent.get(sent.report, told))


def _chat_usage(usage: Usage, report: UsageForm) -> bytes:
    if report is UsageForm.FULL:
        prompt, completion, cached, written, _, reasoning = usage
        return _CHAT_USAGE % (prompt, completion, prompt + completion, cached, written, reasoning)
    return {
        UsageForm.MISSING: b"",
        UsageForm.NULL: b',"usage":null',
    }.get(report, _CHAT_USAGE % (0, 0, 0, 0, 0, 0))


def _response_usage(usage: Usage, report: UsageForm) -> bytes:
    match report:
        case UsageForm.MISSING:
            return b""
        case UsageForm.NULL:
            return b',"usage":null'
        case UsageForm.ZERO:
            return _RESPONSE_USAGE % (0, 0, 0, 0, 0, 0)
        case UsageForm.FULL:
            return _RESPONSE_USAGE % (
                usage.prompt_tokens,
                usage.cached_tokens,
                usage.cache_write_tokens,
                usage.completion_tokens,
                usage.reasoning_tokens,
                usage.prompt_tokens + usage.completion_tokens,
            )
