"""Embeddings as OpenAI defines them and compatible servers serve them: many texts in one call, a vector for each.

Request: `POST {base_url}/embeddings`, the texts in one list. Base64 is asked for, a third of the bytes of the same
floats and two percent of the work to read; a server that does not know it sends lists all the same, which are read,
too. What is told of each input is its `index`, not its place: a server may answer in any order. Source: SDK 3.57 and
API description of 2026-08-21 (read 2026-11-29).
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.pipeline import Embedding
from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.domain.prompt_cache import Lifetime
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.domain.vectors import encode_vector
from nightmill.kernel.wire.messages import Failure, Usage
from nightmill.provider_gateway.adapters.errors import (
    NO_ERROR,
    Words,
    error_body,
    failure_of_error,
    failure_of_status,
)
from nightmill.provider_gateway.adapters.reading import HEADERS, count, document_of, encode, members, strict_json, word
from nightmill.provider_gateway.exchange import Reply, Request, Response, Vectors
from nightmill.provider_gateway.failures import Signal, failure

#: how a message or a parameter names one of the inputs
_ONE_INPUT = re.compile(r"\binput(?:\[|\.)(\d{1,4})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingForm:
    """Bodies that hold a list of texts. `model` is JSON, `settings` the end of a JSON object."""

    url: str
    model: str
    settings: str
    may_cut: bool = False  #: the server is one of those that shorten a text without a word

    def request(self, messages: Sequence[ChatMessage], max_output_tokens: int, mark: Lifetime | None = None) -> Request:
        """The call for one text, which is the last message. Raises `UnicodeEncodeError`."""
        return self.together([messages[-1].content])

    def together(self, texts: Sequence[str]) -> Request:
        """The call for these texts. Raises `UnicodeEncodeError`."""
        inputs = ",".join([encode(text) for text in texts])
        head = f'{{"model":{self.model},"input":[{inputs}]'.encode()
        return Request(
            url=self.url,
            headers=HEADERS,
            body=head + self.settings.encode(),
            # of many texts together a usage does not tell which one was cut
            prompt_bytes=len(head) if self.may_cut and len(texts) == 1 else 0,
        )


def embedding_form(base_url: str, pool: Pool, embedding: Embedding, *, may_cut: bool) -> EmbeddingForm:
    """How `pool` is asked for vectors."""
    settings: dict[str, Any] = {}
    if "encoding_format" not in pool.refuses:
        settings["encoding_format"] = "base64"
    if embedding.shorten:
        settings["dimensions"] = embedding.dimensions
    return EmbeddingForm(
        url=base_url.rstrip("/") + "/embeddings",
        model=encode(pool.model),
        settings=members(settings),
        may_cut=may_cut,
    )


def vectors_of(response: Response, words: Words, *, inputs: int, now_ms: int) -> Vectors:
    """What a response to so many inputs means. Never raises."""
    if response.status != 200:
        found = failure_of_status(response, words, now_ms)
        return Vectors(failure=found, at_fault=_at_fault(response.body, inputs))
    document = _document(response)
    if isinstance(document, Signal):
        return Vectors(failure=failure(document, status=200))
    if not is_embeddings(document):
        error = error_body(document)
        if error != NO_ERROR:
            return Vectors(failure=failure_of_error(error, response, words, now_ms, Signal.ERROR_IN_SUCCESS))
        return Vectors(failure=failure(Signal.UNEXPECTED_SHAPE, status=200))
    texts = _in_order(document["data"], inputs)
    return Vectors(
        texts=() if isinstance(texts, Failure) else texts,
        usage=_usage(document.get("usage")),
        served_model=word(document.get("model")),
        failure=texts if isinstance(texts, Failure) else None,
    )


def reply_of_embeddings(response: Response, words: Words, now_ms: int) -> Reply:
    """What a response to a call of one text means."""
    found = vectors_of(response, words, inputs=1, now_ms=now_ms)
    text = found.texts[0] if found.texts else None
    return Reply(text=text, usage=found.usage, served_model=found.served_model, failure=found.failure)


def is_embeddings(document: Any) -> bool:
    """Whether a body of status 200 is a list of vectors."""
    return isinstance(document, dict) and isinstance(document.get("data"), list) and "choices" not in document


def _document(response: Response) -> Any:
    """The document of a body, in which, unlike elsewhere, a number may be NaN: what that means, the validator says."""
    document = document_of(response)
    if document is not Signal.BODY_MALFORMED or b"N" not in response.body:
        return document
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return document


def _in_order(data: Sequence[Any], inputs: int) -> tuple[str, ...] | Failure:
    """A vector's text for each input, in their order; or how they do not fit the inputs."""
    found: dict[int, str] = {}
    for entry in data:
        index = entry.get("index") if isinstance(entry, dict) else None
        text = _text(entry.get("embedding")) if isinstance(entry, dict) else None
        if not isinstance(index, int) or isinstance(index, bool) or text is None:
            return failure(Signal.EMBEDDINGS_MISMATCHED, detail="an entry is no vector with an index")
        found[index] = text
    if len(found) != len(data) or len(data) != inputs or not all(place in found for place in range(inputs)):
        counted = f"{len(data)} vectors, {len(found)} indices, {inputs} inputs"
        return failure(Signal.EMBEDDINGS_MISMATCHED, detail=counted)
    return tuple(found[place] for place in range(inputs))


def _text(value: Any) -> str | None:
    """A vector's text: base64 as it came, a list as what base64 would have been."""
    if isinstance(value, str):
        return value if value and value.isascii() else None
    if not isinstance(value, list) or not value:
        return None
    numbers = [math.nan if number is None else number for number in value]  # how some servers write NaN
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        return None
    try:
        return encode_vector(numbers)
    except OverflowError:
        return encode_vector([math.inf] * len(numbers))


def _usage(usage: Any) -> Usage | None:
    """Input tokens alone: a vector costs no output. None when they are not told; of no text they are 0."""
    told = count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return None if not told else Usage(input_tokens=told, cached_tokens=0, output_tokens=0)


def _at_fault(body: bytes, inputs: int) -> int | None:
    """Which input a refusal names, by its parameter or in its words; None: none, or more than one."""
    document = strict_json(body)
    error = NO_ERROR if isinstance(document, Signal) else error_body(document)
    named = {int(place) for text in (error.param or "", error.message) for place in _ONE_INPUT.findall(text)}
    places = [place for place in named if place < inputs]
    return places[0] if len(named) == 1 and places else None
