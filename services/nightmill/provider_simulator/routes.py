"""Which path is which call, and which of them a self-hosted server has."""

from __future__ import annotations

from dataclasses import dataclass

from nightmill.provider_simulator.operations import GENERATING, Operation
from nightmill.provider_simulator.reply import Side
from nightmill.provider_simulator.scenario import Dialect

_ID = "{id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a path means."""

    side: Side
    operation: Operation
    ident: str = ""  # of the file, batch, ... that the path names
    action: str = ""  # where one operation has several

    @property
    def generates(self) -> bool:
        """Whether it makes a model work."""
        return self.operation in GENERATING


_TABLE: dict[tuple[str, str], tuple[Side, Operation, str]] = {
    ("POST", "/v1/chat/completions"): (Side.OPENAI, Operation.CHAT, ""),
    ("POST", "/v1/responses"): (Side.OPENAI, Operation.RESPONSES, ""),
    ("POST", "/v1/embeddings"): (Side.OPENAI, Operation.EMBEDDINGS, ""),
    ("GET", "/v1/models"): (Side.OPENAI, Operation.MODELS, "list"),
    ("GET", "/v1/models/{id}"): (Side.OPENAI, Operation.MODELS, "retrieve"),
    ("POST", "/v1/files"): (Side.OPENAI, Operation.FILE_CREATE, ""),
    ("GET", "/v1/files"): (Side.OPENAI, Operation.FILE_LIST, ""),
    ("GET", "/v1/files/{id}"): (Side.OPENAI, Operation.FILE_RETRIEVE, ""),
    ("DELETE", "/v1/files/{id}"): (Side.OPENAI, Operation.FILE_DELETE, ""),
    ("GET", "/v1/files/{id}/content"): (Side.OPENAI, Operation.FILE_CONTENT, ""),
    ("POST", "/v1/batches"): (Side.OPENAI, Operation.BATCH_CREATE, ""),
    ("GET", "/v1/batches"): (Side.OPENAI, Operation.BATCH_LIST, ""),
    ("GET", "/v1/batches/{id}"): (Side.OPENAI, Operation.BATCH_RETRIEVE, ""),
    ("POST", "/v1/batches/{id}/cancel"): (Side.OPENAI, Operation.BATCH_CANCEL, ""),
    ("GET", "/v1/webhook_event_types"): (Side.OPENAI, Operation.WEBHOOKS, "types"),
    ("POST", "/v1/webhook_endpoints"): (Side.OPENAI, Operation.WEBHOOKS, "create"),
    ("GET", "/v1/webhook_endpoints"): (Side.OPENAI, Operation.WEBHOOKS, "list"),
    ("GET", "/v1/webhook_endpoints/{id}"): (Side.OPENAI, Operation.WEBHOOKS, "retrieve"),
    ("POST", "/v1/webhook_endpoints/{id}"): (Side.OPENAI, Operation.WEBHOOKS, "update"),
    ("DELETE", "/v1/webhook_endpoints/{id}"): (Side.OPENAI, Operation.WEBHOOKS, "delete"),
    ("POST", "/v1/webhook_endpoints/{id}/rotate_secret"): (Side.OPENAI, Operation.WEBHOOKS, "rotate"),
    ("POST", "/v1/webhook_endpoints/{id}/test"): (Side.OPENAI, Operation.WEBHOOKS, "test"),
    ("POST", "/v1/messages"): (Side.ANTHROPIC, Operation.MESSAGES, ""),
    ("POST", "/v1/messages/count_tokens"): (Side.ANTHROPIC, Operation.COUNT_TOKENS, ""),
    ("POST", "/v1/messages/batches"): (Side.ANTHROPIC, Operation.BATCH_CREATE, ""),
    ("GET", "/v1/messages/batches"): (Side.ANTHROPIC, Operation.BATCH_LIST, ""),
    ("GET", "/v1/messages/batches/{id}"): (Side.ANTHROPIC, Operation.BATCH_RETRIEVE, ""),
    ("DELETE", "/v1/messages/batches/{id}"): (Side.ANTHROPIC, Operation.BATCH_DELETE, ""),
    ("POST", "/v1/messages/batches/{id}/cancel"): (Side.ANTHROPIC, Operation.BATCH_CANCEL, ""),
    ("GET", "/v1/messages/batches/{id}/results"): (Side.ANTHROPIC, Operation.BATCH_RESULTS, ""),
}
_SHAPES = frozenset(shape for _, shape in _TABLE)
_FIXED = {key: Route(side=v[0], operation=v[1], action=v[2]) for key, v in _TABLE.items() if _ID not in key[1]}

#: servers that have no files and batches, with what they answer there
WITHOUT_BATCHES = {
    Dialect.VLLM: 404,
    Dialect.SGLANG: 404,
    Dialect.LLAMA_CPP: 404,
    Dialect.OLLAMA: 404,
    Dialect.TGI: 405,
}
_BATCH_PATHS = ("/v1/files", "/v1/batches", "/v1/webhook_")


def find(method: str, path: str) -> Route | None:
    """The call, or None for a path or method that nobody serves."""
    fixed = _FIXED.get((method, path))
    if fixed is not None:
        return fixed
    shape, ident = _shape(path)
    found = _TABLE.get((method, shape))
    if found is None or not ident:
        return None
    return Route(side=found[0], operation=found[1], ident=ident, action=found[2])


def known(path: str) -> bool:
    """Whether another method would be served on this path."""
    return path in _SHAPES or _shape(path)[0] in _SHAPES


def side_of(path: str) -> Side:
    """Whose error shape an unknown path gets."""
    return Side.ANTHROPIC if path.startswith("/v1/messages") else Side.OPENAI


def refused_status(path: str, dialect: Dialect, stated: int | None) -> int | None:
    """The status of a server that does not have this path at all; None: it has it."""
    status = stated or WITHOUT_BATCHES.get(dialect)
    if path.startswith(_BATCH_PATHS):
        return status
    if path.startswith("/v1/messages") and dialect not in (Dialect.OPENAI, Dialect.SELF_HOSTED):
        return 404
    return None


def _shape(path: str) -> tuple[str, str]:
    """The path with its id taken out, and the id."""
    steps = path.split("/")
    place = 4 if path.startswith("/v1/messages/batches/") else 3
    if len(steps) <= place:
        return path, ""
    ident, steps[place] = steps[place], _ID
    return "/".join(steps), ident
