"""Row 21 of the failures: no connection came about, so the request never left; and it is said who was not reached."""

import re
import socket
import ssl
import threading
from pathlib import Path

import pytest

from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.caller_desk import Desk, failure_of
from unit.provider_gateway.raw_provider import RawProvider


def refused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("refused", r"\(127\.0\.0\.1:\d+: Connection refused\)"),
        ("name", r"\(no-such-host\.invalid:80: (no such name, or nobody to ask for it|not reached in time)\)"),
        ("tls", r"\(127\.0\.0\.1:\d+: not reached in time\)"),
    ],
    ids=["refused", "name", "tls"],
)
def test_without_a_connection_the_request_never_left(desk: Desk, case: str, why: str) -> None:
    """Row 21: no cost, no retry used, no doubt; O1: it says who was not reached and why."""
    with RawProvider([b"plain text, no TLS"]) as provider:
        url = {
            "refused": f"http://127.0.0.1:{refused_port()}/v1",
            "name": "http://no-such-host.invalid/v1",
            "tls": provider.base_url.replace("http:", "https:"),
        }[case]
        answered = desk.call(url, deadline_s=2.0 if case == "tls" else 30.0)
    failure = failure_of(answered)
    assert (failure.signal, failure.billed, answered.cost_nano_usd) == (Signal.NOT_CONNECTED, Billed.NO, 0)
    assert answered.state is AttemptState.FAILED
    assert not failure.uses_retry_budget
    assert re.search(why, failure.message)


def test_an_untrusted_certificate_is_no_connection(desk: Desk, tmp_path: Path) -> None:
    """Row 21: the key is not shown to a server that can not prove its name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/v1"

        def handshake() -> None:
            client, _ = server.accept()
            with client, pytest.raises(OSError, match=r"."):
                context.wrap_socket(client, server_side=True)  # has no certificate to show

        thread = threading.Thread(target=handshake)
        thread.start()
        answered = desk.call(url)
        thread.join()
    failure = failure_of(answered)
    assert failure.signal == Signal.NOT_CONNECTED
    assert "no TLS that can be trusted" in failure.message
