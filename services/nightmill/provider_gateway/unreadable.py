"""What is kept of a body that is no answer: its beginning, as the attempt's output, for whoever opens the dead letter.

It goes where answers go, and no message or log quotes it. Pure.
"""

import dataclasses

from nightmill.provider_gateway.exchange import Reply, Response
from nightmill.provider_gateway.failures import Signal

_KEPT_BYTES = 8 << 10
_SIGNALS = frozenset(
    {
        *(Signal.BODY_CUT, Signal.BODY_MALFORMED, Signal.UNEXPECTED_SHAPE, Signal.ERROR_IN_SUCCESS),
        *(Signal.HTML_BODY, Signal.STREAM_ERROR),
    }
)


def with_body(reply: Reply, response: Response) -> Reply:
    """The reply; its text is the body where that could not be read."""
    found = reply.failure
    if found is None or found.signal not in _SIGNALS or reply.text is not None or not response.body:
        return reply
    return dataclasses.replace(reply, text=response.body[:_KEPT_BYTES].decode("utf-8", "replace"))
