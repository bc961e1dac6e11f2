"""Chat completions, as OpenAI defines them and compatible servers serve them: one list of messages, one choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.domain.prompt_cache import Lifetime
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters.errors import NO_ERROR, Words, error_body, failure_of_error
from nightmill.provider_gateway.adapters.marking import marked_chat_json
from nightmill.provider_gateway.adapters.reading import HEADERS, chat_json, count, counts, text_of, usage_of, word
from nightmill.provider_gateway.exchange import Reply, Request, Response
from nightmill.provider_gateway.failures import Signal, failure

_FINISH: dict[str, Signal] = {
    "content_filter": Signal.CONTENT_FILTER,
    "abort": Signal.FINISH_ABORTED,
    "repetition": Signal.FINISH_ABORTED,
    "tool_calls": Signal.TOOL_CALL,
    "function_call": Signal.TOOL_CALL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """How a request says where the shared beginning ends."""

    roles: Mapping[str, str]  #: the type of a text part, by the roles that can be marked
    mark: str  #: member of the marked part


@dataclass(frozen=True, slots=True, kw_only=True)
class ListForm:
    """Bodies that hold one list of messages. `model` is JSON, `settings` the end of a JSON object."""

    url: str
    model: str
    messages: str  #: name of the list
    limit: str  #: name of the limit of output tokens
    settings: str
    may_cut: bool = False  #: the server is one of those that shorten a prompt without a word
    marking: Marking | None = None

    def request(self, messages: Sequence[ChatMessage], max_output_tokens: int, mark: Lifetime | None = None) -> Request:
        how = self.marking if mark is not None else None
        marked = None if how is None else marked_chat_json(messages, how.roles, how.mark)
        prompt = f'{{"model":{self.model},"{self.messages}":{marked or chat_json(messages)}'.encode()
        rest = f',"{self.limit}":{max_output_tokens}{self.settings}'
        return Request(
            url=self.url,
            headers=HEADERS,
            body=prompt + rest.encode(),
            prompt_bytes=len(prompt) if self.may_cut else 0,
        )


def reply_of_chat(document: Any, response: Response, words: Words, now_ms: int) -> Reply:
    """What a chat completion, or an error in its place, means."""
    choice = _first_choice(document)
    if choice is None:
        error = error_body(document)
        if error != NO_ERROR:
            return Reply(failure=failure_of_error(error, response, words, now_ms, Signal.ERROR_IN_SUCCESS))
        return Reply(failure=failure(Signal.UNEXPECTED_SHAPE, status=200))
    message = choice["message"]
    text, finish = text_of(message.get("content")), word(choice.get("finish_reason"))
    signal = _signal_of_choice(message, text, finish)
    return Reply(
        text=text if text else None,
        finish_reason=finish,
        usage=_usage(document.get("usage")),
        served_model=word(document.get("model")),
        service_tier=word(document.get("service_tier")),
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


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    cached, written = counts(usage.get("prompt_tokens_details"), "cached_tokens", "cache_write_tokens")
    return usage_of(
        count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), cached=cached, written=written
    )
