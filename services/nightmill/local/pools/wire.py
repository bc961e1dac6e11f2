"""How a provider is asked whether a pool works, and what is read from its answers (pure).

A provider that is not in the table is asked as OpenAI is. A list of models
comes as `{"data": [...]}` (OpenAI, Anthropic, vLLM, SGLang), `{"models": [...]}` (Ollama's and Mistral's way) or bare.
Nothing of an answer is shown but plain names and numbers: an error's message may repeat the key.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from nightmill.kernel.domain.parameters import anthropic_version
from nightmill.kernel.domain.settings import Pool
from nightmill.local.pools.call import Answer, Question

#: more tokens than the question has on any server that is known
QUESTION_TOKENS = 16
_QUESTION = "Say hi."
_MAX_NAME = 120
_NAME = re.compile(r"^[^\x00-\x20\x7f-\x9f]+\Z")
_CODE = re.compile(r"^(?=.*[A-Za-z])[A-Za-z0-9_.-]{1,64}\Z")
_SEARCHED = 4_000
_MAX_TOKENS = 1_000_000_000
#: where servers say how long a prompt and its answer may be: vLLM and SGLang, OpenRouter, Groq, LM Studio, Anthropic
_CONTEXT_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")

#: of chat completions, the Responses API and the Messages API
_ANSWERS = ("choices", "output", "content")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one API is asked for a short answer, and for its models."""

    path: str  #: below the base address
    limit: str  #: name of the limit of an answer's tokens
    answer_tokens: int = 1  #: the least that it takes
    prompt: str = "messages"
    models: str = "/models"
    settings: Mapping[str, Any] = field(default_factory=dict)


_CHAT = Shape(path="/chat/completions", limit="max_tokens")
#: of a pool that embeds, whoever provides it
_EMBEDDINGS = Shape(path="/embeddings", limit="", answer_tokens=0, prompt="input")
#: by provider, or by provider and api
SHAPES: dict[str, Shape] = {
    "openai_compatible": _CHAT,
    "openai": replace(_CHAT, limit="max_completion_tokens"),  # its newer models know no max_tokens
    "openai responses": Shape(
        path="/responses", limit="max_output_tokens", answer_tokens=16, prompt="input", settings={"store": False}
    ),
    "anthropic": Shape(path="/messages", limit="max_tokens", models="/models?limit=1000"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A model as a server lists it."""

    model: str
    context_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What an error's body says, without its text."""

    code: str | None  #: a plain name
    of_model: bool  #: it speaks of the model
    of_money: bool  #: it speaks of a spend limit


class Asker:
    """The questions of one pool. They take the key where the gateway's calls have it."""

    def __init__(self, pool: Pool, base_url: str, key: str | None) -> None:
        self._pool, self._base_url = pool, base_url.rstrip("/")
        by_provider = SHAPES.get(f"{pool.provider} {pool.api}") or SHAPES.get(pool.provider, _CHAT)
        self._shape = by_provider if pool.embeddings is None else _EMBEDDINGS
        self._headers = {"accept": "application/json", "user-agent": "nightmill"}
        if pool.provider == "anthropic":
            self._headers["anthropic-version"] = anthropic_version(pool)
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"

    @property
    def answer_tokens(self) -> int:
        """How long the answer of a call may become."""
        return self._shape.answer_tokens

    def models(self) -> Question:
        """Which models are there: costs nothing anywhere."""
        return Question(url=self._base_url + self._shape.models, headers=self._headers)

    def call(self) -> Question:
        """The cheapest call that makes the model work."""
        shape = self._shape
        body: dict[str, Any] = {"model": self._pool.model}
        if self._pool.embeddings is not None:
            body[shape.prompt] = [_QUESTION]
        else:
            body[shape.prompt] = [{"role": "user", "content": _QUESTION}]
            body |= {shape.limit: shape.answer_tokens, **shape.settings}
        headers = {**self._headers, "content-type": "application/json"}
        return Question(url=self._base_url + shape.path, headers=headers, body=json.dumps(body).encode())


def offers(answer: Answer) -> list[Offer] | None:
    """The models that a server lists, or None when this is no list of models."""
    document = _document(answer)
    listed = document
    if isinstance(document, dict):
        listed = next((document[name] for name in ("data", "models") if isinstance(document.get(name), list)), None)
    if not isinstance(listed, list):
        return None
    found = [Offer(model=name, context_tokens=_context(each)) for each in listed if (name := _name(each)) is not None]
    return found if found or not listed else None


def usage(answer: Answer) -> tuple[int, int] | None:
    """Input and output tokens of an answered call as the provider counts them; None: it does not say."""
    document = _document(answer)
    counts = document.get("usage") if isinstance(document, dict) else None
    if not isinstance(counts, dict):
        return None
    given = _count(counts.get("prompt_tokens", counts.get("input_tokens")))
    made = _count(counts.get("completion_tokens", counts.get("output_tokens", 0 if "data" in document else None)))
    return None if given is None or made is None else (given, made)


def is_completion(answer: Answer) -> bool:
    """Whether the body has the shape of an answer of a model."""
    document = _document(answer)
    if not isinstance(document, dict):
        return False
    return any(isinstance(document.get(name), list) for name in _ANSWERS)


def dimensions(answer: Answer) -> int | None:
    """Of how many numbers the vector in an answer is; None when there is none."""
    document = _document(answer)
    data = document.get("data") if isinstance(document, dict) else None
    vector = data[0].get("embedding") if isinstance(data, list) and data and isinstance(data[0], dict) else None
    return len(vector) if isinstance(vector, list) and vector else None


def is_web_page(answer: Answer) -> bool:
    return answer.body.lstrip()[:1] == b"<" or answer.headers.get("content-type", "").startswith("text/html")


def refusal(answer: Answer) -> Refusal:
    """What the error in a body says, wherever the server put it."""
    document = _document(answer)
    inner: Any = document
    if isinstance(document, dict):
        inner = document.get("error") or document.get("detail") or document
    if isinstance(inner, dict) and isinstance(inner.get("error"), dict):
        inner = inner["error"]
    fields = inner if isinstance(inner, dict) else {"message": inner}
    details = fields.get("details")
    codes = [details.get("error_code")] if isinstance(details, dict) else []
    codes += [fields.get("code"), fields.get("type"), fields.get("error_type")]
    code = next((each for each in codes if isinstance(each, str) and _CODE.match(each)), None)
    message = fields.get("message")
    text = message[:_SEARCHED].lower() if isinstance(message, str) else ""
    return Refusal(
        code=code,
        of_model=code == "model_not_found" or re.search(r"\bmodel\b", text) is not None,
        of_money="api usage limits" in text,
    )


def target(answer: Answer) -> str | None:
    """Where a redirect points: scheme, host and path."""
    try:
        parts = urlsplit(answer.headers.get("location", ""))
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    except ValueError:
        return None
    shown = f"{parts.scheme}://{host}{parts.path}" if parts.hostname else parts.path
    return shown[:_MAX_NAME] if shown and _NAME.match(shown) else None


def _document(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _name(each: Any) -> str | None:
    names = [each.get(field) for field in ("id", "name", "model")] if isinstance(each, dict) else [each]
    found = next((name for name in names if isinstance(name, str)), None)
    return found if found is not None and len(found) <= _MAX_NAME and _NAME.match(found) else None


def _context(each: Any) -> int | None:
    counts = (_count(each.get(field)) for field in _CONTEXT_FIELDS) if isinstance(each, dict) else ()
    return next((count for count in counts if count), None)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS else None
