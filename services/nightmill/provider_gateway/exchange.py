"""What an adapter and the HTTP side say to each other: one request, one response, and what the response means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nightmill.kernel.domain.pipeline import Embedding, Pipeline
from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.domain.prompt_cache import Lifetime
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.wire.messages import Failure, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A POST to a provider. The key is not in it: the HTTP side adds it last."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    #: the prompt is in the first so many bytes of the body; 0 where the server is trusted to read all of it or refuse
    prompt_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response whose body was read to its end. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a provider's response means. `failure` None: `text` is an answer, which the validator will judge."""

    text: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None  #: None: the provider did not say, so the cost is not known
    served_model: str | None = None  #: as the provider names it; may differ from what was asked
    service_tier: str | None = None  #: as the provider names how it worked; it may cost more or less
    price_percent: int | None = 100  #: of the listed price, for where it worked; None: not known
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """What a response to a call for embeddings means. `failure` None: there is a vector for each input, in order."""

    texts: tuple[str, ...] = ()  #: of `kernel.domain.vectors`, which the validator will judge
    usage: Usage | None = None  #: of the whole call
    served_model: str | None = None
    failure: Failure | None = None
    at_fault: int | None = None  #: position of the one input that the failure names


class Form(Protocol):
    """The requests of one pipeline to one pool. What all of them say is written once. Pure."""

    def request(self, messages: Sequence[ChatMessage], max_output_tokens: int, mark: Lifetime | None = None) -> Request:
        """The call that asks for an answer to `messages`; with a mark, what they share is to be cached so long.

        Raises `UnicodeEncodeError`.
        """


class Adapter(Protocol):
    """The wire format and the failure signals of one kind of provider. Pure."""

    def form(self, *, base_url: str, pool: Pool, pipeline: Pipeline) -> Form:
        """How `pipeline` asks `pool`."""

    def reply(self, response: Response, *, now_ms: int) -> Reply:
        """What `response` means. Never raises: whatever came is an answer or a failure."""


class TextsForm(Form, Protocol):
    """The requests of one pipeline of embeddings to one pool. Pure."""

    def together(self, texts: Sequence[str]) -> Request:
        """The call that asks for a vector of each of `texts`. Raises `UnicodeEncodeError`."""


class Embedder(Protocol):
    """Embeddings of one kind of provider. Pure."""

    def texts_form(self, *, base_url: str, pool: Pool, embedding: Embedding) -> TextsForm:
        """How `pool` is asked."""

    def vectors(self, response: Response, *, inputs: int, now_ms: int) -> Vectors:
        """What `response` to a call of so many inputs means. Never raises."""
