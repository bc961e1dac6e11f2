"""What every adapter reads and writes alike: strict JSON, counts, words, and bodies that are no answer."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import MsgspecError
from msgspec.json import Decoder

from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal

HEADERS = {"content-type": "application/json", "accept": "application/json"}

#: a count beyond this is no call's: it is as good as none
_MAX_TOKENS = 1_000_000_000
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

encode = _COMPACT.encode
_QUICK = Decoder()


def members(settings: dict[str, Any]) -> str:
    """The end of a JSON object whose earlier members are written: `,"a":1}`."""
    return "," + encode(settings)[1:] if settings else "}"


def chat_json(messages: Sequence[ChatMessage]) -> str:
    """Messages as the list that most chat APIs take."""
    chat = [f'{{"role":"{message.role}","content":{encode(message.content)}}}' for message in messages]
    return f"[{','.join(chat)}]"


def document_of(response: Response) -> Any:
    """The document of a response with status 200, or the signal of what came in its place."""
    document = strict_json(response.body)
    if not isinstance(document, Signal):
        return document
    if is_html(response):
        return Signal.HTML_BODY
    return Signal.STREAM_ERROR if _is_stream(response) else document


def is_html(response: Response) -> bool:
    return response.body.lstrip()[:1] == b"<" or response.headers.get("content-type", "").startswith("text/html")


def _is_stream(response: Response) -> bool:
    """Frames of a stream that nobody asked for; vLLM sends its errors so after it has said 200."""
    frames = response.body.lstrip().startswith((b"data:", b"event:"))
    return frames or response.headers.get("content-type", "").startswith("text/event-stream")


def strict_json(body: bytes) -> Any:
    """The document of a body, or the signal of what is wrong with it."""
    try:
        return _QUICK.decode(body)
    except (MsgspecError, RecursionError):
        return _with_reason(body)


def _with_reason(body: bytes) -> Any:
    """The same by a reader that is slower, takes half of a surrogate pair, and says where it came to a stop."""
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


def text_of(content: Any, kind: str | None = None) -> str:
    """The text of a content that is a text or a list of parts; `kind` selects parts by their type."""
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, dict) and (kind is None or part.get("type") == kind))
        texts = (part.get("text") for part in parts)
        return whole("".join(text for text in texts if isinstance(text, str)))
    return whole(content) if isinstance(content, str) else ""


def whole(text: str) -> str:
    """JSON can hold half of a surrogate pair, which is no character and goes onto no wire: it becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def word(value: Any) -> str | None:
    return whole(value[:200]) if isinstance(value, str) and value else None


def count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS else None


def counts(details: Any, *names: str) -> list[int | None]:
    """Counts of an object, None for each that is not there."""
    return [count(details.get(name)) if isinstance(details, dict) else None for name in names]


def usage_of(
    prompt: int | None,
    completion: int | None,
    *,
    cached: int | None,
    written: int | None,
    written_1h: int | None = None,
) -> Usage | None:
    """Usage when both sums are there. Cached and written tokens are inside the prompt's, whatever a provider says.

    No prompt has 0 tokens: a provider that says so has counted nothing, and a cost of it would be 0 instead of unknown.
    """
    if not prompt or completion is None:
        return None
    read = min(cached or 0, prompt)
    short = None if written is None else min(written, prompt - read)
    return Usage(
        input_tokens=prompt,
        cached_tokens=read,
        output_tokens=completion,
        cache_write_tokens=short,
        cache_write_1h_tokens=None if written_1h is None else min(written_1h, prompt - read - (short or 0)),
    )
