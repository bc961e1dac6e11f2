"""What is asked of the model, whichever API asked, and the headers that every call needs."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.plans import Plan, plan_of
from nightmill.provider_simulator.prompt_cache import LEAST_TOKENS, Prefix
from nightmill.provider_simulator.scenario import Dialect

INVALID_KEY_PREFIX = "sk-invalid"
MAX_CLIENT_REQUEST_ID_CHARS = 512

_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_REPLY = 3

Object = dict[str, JsonValue]


class Ask(NamedTuple):
    """What the simulator reads of a request that makes a model work."""

    model: str
    prompt: str  # the texts of all messages, one after another
    last_text: str  # the text of the last message
    prompt_tokens: int
    max_tokens: int | None
    json_answer: bool = False
    schema: JsonValue = None  # of the answer; None: any
    prefixes: tuple[Prefix, ...] = ()  # which the prompt cache may have, or is to write; shortest first
    service_tier: str | None = None
    inputs: tuple[str, ...] = ()  # of an embedding call
    dimensions: int | None = None
    base64: bool = False
    plan: Plan | None = None  # of the schema, if it was made before


class AskPattern(NamedTuple):
    """Asks that differ from one another in how the prompt ends, and in nothing else."""

    ask: Ask  # one of them
    head: str  # of the prompt
    last_head: str  # of the last text
    more_tokens: int  # on top of the prompt's own

    def ask_with(self, text: str) -> Ask | None:
        """The ask whose prompt ends with `text`; None if it is so long that a prompt cache has a say."""
        prompt = self.head + text
        tokens = estimate_tokens(prompt)
        if tokens >= LEAST_TOKENS:
            return None
        ask = self.ask
        return Ask(  # by place: `_replace` is five times slower, and this is for every line of a batch
            ask.model,
            prompt,
            self.last_head + text,
            tokens + self.more_tokens,
            ask.max_tokens,
            ask.json_answer,
            ask.schema,
            service_tier=ask.service_tier,
            plan=ask.plan,
        )


def pattern_of(ask: Ask, text: str) -> AskPattern | None:
    """The pattern of asks that end as this one does, with a text; None where an ask depends on it in more ways."""
    free_json = ask.json_answer and ask.schema is None  # OpenAI wants to read the word in the prompt
    if ask.inputs or ask.prefixes or free_json or not ask.prompt.endswith(text) or not ask.last_text.endswith(text):
        return None
    return AskPattern(
        ask=ask if ask.schema is None else ask._replace(plan=plan_of(ask.schema)),
        head=ask.prompt[: -len(text)],
        last_head=ask.last_text[: -len(text)],
        more_tokens=ask.prompt_tokens - estimate_tokens(ask.prompt),
    )


def estimate_tokens(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: close enough to be a bill, and the same everywhere."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def prompt_tokens(prompt: str, messages: int) -> int:
    """The texts, and what each message and the reply add."""
    return estimate_tokens(prompt) + _TOKENS_PER_MESSAGE * messages + _TOKENS_PER_REPLY


def check_headers(*, authorization: str | None, client_request_id: str | None, dialect: Dialect) -> ApiError | None:
    """The refusal that a call on OpenAI's routes earns before its body is looked at."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        if authorization is not None or dialect is Dialect.OPENAI:
            return errors.missing_key()
    elif key.strip().startswith(INVALID_KEY_PREFIX):
        return errors.invalid_key()
    if client_request_id is not None and (
        len(client_request_id) > MAX_CLIENT_REQUEST_ID_CHARS or not client_request_id.isascii()
    ):
        return errors.invalid(
            f"X-Client-Request-Id must be ASCII and at most {MAX_CLIENT_REQUEST_ID_CHARS} characters long."
        )
    return None
