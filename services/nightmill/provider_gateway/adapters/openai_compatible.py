"""Chat completions as OpenAI defines them and vLLM, SGLang, llama.cpp, Ollama and TGI serve them.

Request: `POST {base_url}/chat/completions` with `max_tokens`, the one name of that limit that all of them take.
Errors are read leniently, in the order `error.{code,type,message}`, `error` as text, `detail` (AIBrix), flat (SGLang);
`code` may be a number, a text or null. A success is believed only when its JSON is strict and whole and an answer is
in it: servers send cut JSON, web pages and errors with status 200.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.wire.messages import Failure, Usage
from nightmill.provider_gateway.exchange import Form, Reply, Request, Response
from nightmill.provider_gateway.failures import Signal, failure, go_duration_ms, retry_after_ms, signal_of_status

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_HEADERS = {"content-type": "application/json", "accept": "application/json"}

#: codes and types by which these servers name a failure, whatever its status
CODES: dict[str, Signal] = {
    "rate_limit_exceeded": Signal.RATE_LIMITED,
    "slow_down": Signal.SLOW_DOWN,
    "insufficient_quota": Signal.OUT_OF_CREDIT,
    "credit_balance_exhausted": Signal.OUT_OF_CREDIT,
    "organization_spend_limit_exceeded": Signal.OUT_OF_CREDIT,
    "project_spend_limit_exceeded": Signal.OUT_OF_CREDIT,
    "organization_usage_limit_exceeded": Signal.OUT_OF_CREDIT,
    "billing_hard_limit_reached": Signal.OUT_OF_CREDIT,
    "billing_error": Signal.BILLING,
    "flex_unavailable": Signal.TIER_UNAVAILABLE,
    "resource_unavailable": Signal.TIER_UNAVAILABLE,
    "server_is_overloaded": Signal.OVERLOADED,
    "service_unavailable_error": Signal.OVERLOADED,
    "overloaded_error": Signal.OVERLOADED,
    "overloaded": Signal.OVERLOADED,  # TGI, with 429
    "context_length_exceeded": Signal.CONTEXT_TOO_LONG,
    "exceed_context_size_error": Signal.CONTEXT_TOO_LONG,  # llama.cpp
    "string_above_max_length": Signal.TOO_LARGE,
    "content_size_limit_exceeded": Signal.TOO_LARGE,  # AIBrix
    "unsupported_parameter": Signal.PARAMETER_REFUSED,
    "unsupported_value": Signal.PARAMETER_REFUSED,
    "unknown_parameter": Signal.PARAMETER_REFUSED,
    "invalid_json_schema": Signal.PARAMETER_REFUSED,
    "invalid_api_key": Signal.KEY_REFUSED,
    "authentication_error": Signal.KEY_REFUSED,
    "unsupported_country_region_territory": Signal.KEY_REFUSED,
    "permission_error": Signal.MODEL_REFUSED,
    "model_not_found": Signal.MODEL_REFUSED,
    "content_filter": Signal.PROMPT_FILTERED,
    "content_policy_violation": Signal.PROMPT_FILTERED,
    "invalid_prompt": Signal.PROMPT_FILTERED,
    "bio_policy": Signal.PROMPT_FILTERED,
    "misalignment_policy_violation": Signal.PROMPT_FILTERED,
}

#: texts that servers without codes use; looked at last
TEXTS: tuple[tuple[re.Pattern[str], Signal], ...] = (
    (re.compile(r"Request too large for", re.I), Signal.REQUEST_OVER_RATE),
    (re.compile(r"maximum context length|prompt is too long|exceeds? the available context", re.I),
     Signal.CONTEXT_TOO_LONG),
    (re.compile(r"Loading model", re.I), Signal.MODEL_LOADING),
    (re.compile(r"maximum pending requests exceeded|server busy|Model is overloaded", re.I), Signal.OVERLOADED),
    (re.compile(r"model .{0,200}(not found|does not exist)", re.I | re.S), Signal.MODEL_REFUSED),
)  # fmt: skip

_FINISH: dict[str, Signal] = {
    "content_filter": Signal.CONTENT_FILTER,
    "abort": Signal.FINISH_ABORTED,
    "repetition": Signal.FINISH_ABORTED,
    "tool_calls": Signal.TOOL_CALL,
    "function_call": Signal.TOOL_CALL,
}
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")

#: a count beyond this is no call's: it is as good as none
_MAX_TOKENS = 1_000_000_000
#: how much of an error's message is searched; it may repeat the whole prompt
_SEARCHED = 4_000


class OpenAiCompatible:
    """Satisfies `Adapter`."""

    def form(self, *, base_url: str, pool: Pool, pipeline: Pipeline) -> Form:
        settings: dict[str, Any] = {"temperature": pipeline.model.temperature}
        if pipeline.model.seed is not None:
            settings["seed"] = pipeline.model.seed
        if pool.structured_output:
            name = _NOT_IN_NAME.sub("_", pipeline.name)[:64]
            schema = {"name": name, "schema": pipeline.output, "strict": True}
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        return _Form(
            url=base_url.rstrip("/") + "/chat/completions",
            model=_COMPACT.encode(pool.model),
            settings=_COMPACT.encode(settings)[1:],
        )

    def reply(self, response: Response, *, now_ms: int) -> Reply:
        document = _strict_json(response.body)
        if response.status != 200:
            return Reply(failure=_failure_of_status(response, document, now_ms))
        if isinstance(document, Signal):
            return Reply(failure=failure(Signal.HTML_BODY if _is_html(response) else document, status=200))
        return _reply_of_success(document, response, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Parts of the body as JSON texts; `settings` is the end of an object."""

    url: str
    model: str
    settings: str

    def request(self, messages: Sequence[ChatMessage], max_output_tokens: int) -> Request:
        chat = ",".join(
            [f'{{"role":"{message.role}","content":{_COMPACT.encode(message.content)}}}' for message in messages]
        )
        body = f'{{"model":{self.model},"messages":[{chat}],"max_tokens":{max_output_tokens},{self.settings}'
        return Request(url=self.url, headers=_HEADERS, body=body.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class _ErrorBody:
    code: str | None = None
    type: str | None = None
    message: str = ""
    param: str | None = None


def _reply_of_success(document: Any, response: Response, now_ms: int) -> Reply:
    choice = _first_choice(document)
    if choice is None:
        error = _error_body(document)
        if isinstance(document, dict) and error != _ErrorBody():
            return Reply(failure=_failure_of_error(error, response, now_ms, Signal.ERROR_IN_SUCCESS))
        return Reply(failure=failure(Signal.UNEXPECTED_SHAPE, status=200))
    message = choice["message"]
    text, finish = _text(message.get("content")), _word(choice.get("finish_reason"))
    signal = _signal_of_choice(message, text, finish)
    return Reply(
        text=text if text else None,
        finish_reason=finish,
        usage=_usage(document.get("usage")),
        served_model=_word(document.get("model")),
        failure=None if signal is None else failure(signal, detail=None if finish is None else f"finish {finish}"),
    )


def _signal_of_choice(message: Mapping[str, Any], text: str, finish: str | None) -> Signal | None:
    if message.get("refusal"):
        return Signal.REFUSAL
    if finish in _FINISH:
        return _FINISH[finish]
    return None if text.strip() else Signal.EMPTY_CONTENT


def _first_choice(document: Any) -> Mapping[str, Any] | None:
    choices = document.get("choices") if isinstance(document, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return choices[0] if isinstance(choices[0].get("message"), dict) else None


def _text(content: Any) -> str:
    """The answer's text; some servers send it as a list of parts."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return _whole("".join(text for text in texts if isinstance(text, str)))
    return _whole(content) if isinstance(content, str) else ""


def _whole(text: str) -> str:
    """JSON can hold half of a surrogate pair, which is no character and goes onto no wire: it becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _usage(usage: Any) -> Usage | None:
    """Usage when both counts are there; cached tokens are inside the prompt's."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(input_tokens=prompt, cached_tokens=min(cached or 0, prompt), output_tokens=completion)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS else None


def _word(value: Any) -> str | None:
    return _whole(value[:200]) if isinstance(value, str) and value else None


def _failure_of_status(response: Response, document: Any, now_ms: int) -> Failure:
    hinted = retry_after_ms(response.headers, now_ms=now_ms) is not None
    fallback = signal_of_status(response.status, html=_is_html(response), hinted=hinted)
    if response.status < 400 or isinstance(document, Signal):
        return _failure_of_error(_ErrorBody(), response, now_ms, fallback)
    return _failure_of_error(_error_body(document), response, now_ms, fallback)


def _failure_of_error(error: _ErrorBody, response: Response, now_ms: int, fallback: Signal) -> Failure:
    signal = _recognised(error) or fallback
    wait = retry_after_ms(response.headers, now_ms=now_ms)
    if signal is Signal.RATE_LIMITED:
        wait = _longest(wait, _reset_ms(error.type, response.headers))
    return failure(
        signal, status=response.status, code=error.code or error.type, param=error.param, retry_after_ms=wait
    )


def _recognised(error: _ErrorBody) -> Signal | None:
    by_text = next((signal for pattern, signal in TEXTS if pattern.search(error.message)), None)
    # a request over the per-minute limit has the code of an ordinary rate limit
    if by_text is Signal.REQUEST_OVER_RATE:
        return by_text
    return CODES.get(error.code or "") or CODES.get(error.type or "") or by_text


def _reset_ms(dimension: str | None, headers: Mapping[str, str]) -> int | None:
    """When the exhausted dimension (`requests` or `tokens`) has room again, by its reset header."""
    return go_duration_ms(headers.get(f"x-ratelimit-reset-{dimension}")) if dimension else None


def _longest(*waits: int | None) -> int | None:
    known = [wait for wait in waits if wait is not None]
    return max(known) if known else None


def _error_body(document: Any) -> _ErrorBody:
    """The error in a body, wherever the server put it."""
    if not isinstance(document, dict):
        return _ErrorBody()
    inner = document.get("error") or document.get("detail")
    if isinstance(inner, dict) and isinstance(inner.get("error"), dict):
        inner = inner["error"]
    if isinstance(inner, str):
        return _ErrorBody(message=inner[:_SEARCHED], type=_word(document.get("error_type")))
    outer = inner if isinstance(inner, dict) else document
    return _ErrorBody(
        code=_code(outer.get("code")),
        type=_word(outer.get("type")),
        message=outer["message"][:_SEARCHED] if isinstance(outer.get("message"), str) else "",
        param=_word(outer.get("param")),
    )


def _code(code: Any) -> str | None:
    """A code as text; vLLM, SGLang and llama.cpp repeat the status as a number, which says nothing."""
    return code if isinstance(code, str) and code and not code.isdigit() else None


def _is_html(response: Response) -> bool:
    return response.body.lstrip()[:1] == b"<" or response.headers.get("content-type", "").startswith("text/html")


def _strict_json(body: bytes) -> Any:
    """The document of a body, or the signal of what is wrong with it."""
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        # a JSON text that ends too early fails at its end, or in a string that never ends
        ended = error.pos >= len(error.doc.rstrip()) > 0
        cut = ended or error.msg.startswith("Unterminated string")
        return Signal.BODY_CUT if cut else Signal.BODY_MALFORMED
    except UnicodeDecodeError as error:
        return Signal.BODY_CUT if error.reason == "unexpected end of data" else Signal.BODY_MALFORMED
    except (ValueError, RecursionError):
        return Signal.BODY_MALFORMED


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
