"""A cap on request bodies: JSON is held in memory whole, so it must be small; uploads stream and have no cap."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nightmill.api.errors import ApiError, error_response

MAX_BODY_BYTES = 2 << 20
_TOO_LARGE = ApiError(
    413, "body_too_large", f"the body is larger than {MAX_BODY_BYTES} bytes", "upload documents with POST /v1/inputs"
)


class BodyCap:
    """ASGI middleware; `streamed` is the one path whose body may be of any length."""

    def __init__(self, app: ASGIApp, streamed: str) -> None:
        self._app = app
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == self._streamed:
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
            await error_response(_TOO_LARGE)(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            await error_response(_TOO_LARGE)(scope, receive, send)
            return
        messages = iter([body])

        async def replayed() -> Message:
            return next(messages, None) or await receive()

        await self._app(scope, replayed, send)


async def _read(receive: Receive) -> Message | None:
    """The whole body as one message; None when it is larger than the cap."""
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return message
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        if size > MAX_BODY_BYTES:
            return None
    return {"type": "http.request", "body": b"".join(pieces), "more_body": False}
