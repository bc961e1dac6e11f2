"""What a status says of a failed call when nothing in its body is recognised. Pure."""

from nightmill.provider_gateway.failures import Signal

_STATUS: dict[int, Signal] = {
    402: Signal.BILLING,
    401: Signal.KEY_REFUSED,
    403: Signal.KEY_REFUSED,
    404: Signal.ENDPOINT_MISSING,
    405: Signal.ENDPOINT_MISSING,
    407: Signal.PROXY_AUTHENTICATION,
    408: Signal.REQUEST_TIMEOUT,
    409: Signal.CONFLICT,
    413: Signal.TOO_LARGE,
    424: Signal.SERVER_ERROR,
    425: Signal.TOO_EARLY,
    501: Signal.ENDPOINT_MISSING,
    503: Signal.OVERLOADED,
    529: Signal.OVERLOADED,
}
_GATEWAY_STATUS = frozenset({502, 503, 504})


def signal_of_status(status: int, *, html: bool, hinted: bool) -> Signal:
    """The signal of a status that is not 200, when nothing in the body is recognised.

    `hinted`: the response says when to come back.
    """
    if status == 429:
        return Signal.RATE_LIMITED if hinted else Signal.UNKNOWN_429
    if html and status in _GATEWAY_STATUS:
        return Signal.GATEWAY_HTML
    if status in _STATUS:
        return _STATUS[status]
    if status >= 500:
        return Signal.SERVER_ERROR
    if status >= 400:
        return Signal.BAD_REQUEST
    return Signal.REDIRECT if status >= 300 else Signal.UNEXPECTED_SHAPE
