"""`openai`: webhooks as its own helper reads them, and their management."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args, get_type_hints

import openai
import pytest
from openai.types.webhooks import WebhookCreateParams

from conformance.sdk.conftest import STRICT
from conformance.sdk.lines import end_of, jsonl, line, start
from kit.patience import PATIENCE_S
from kit.simulator import Simulator

DATA = jsonl([line("a")])
SECRET = "whsec_" + "QUJD" * 8


class Receiver:
    """An HTTP server that keeps what it gets and answers with `statuses`, then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def wait(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.got) < count:
            assert time.monotonic() < deadline, self.got
            time.sleep(0.01)
        return self.got

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def scenario(receiver: Receiver, *faults: dict[str, Any]) -> dict[str, Any]:
    return {**STRICT, "webhooks": [{"url": receiver.url, "secret": SECRET}], "faults": list(faults)}


def test_notice_of_a_batch(gpt: openai.OpenAI, simulator: Simulator, receiver: Receiver) -> None:
    simulator.set_scenario(scenario(receiver))
    batch = end_of(gpt, start(gpt, DATA))
    [(headers, body)] = receiver.wait(1)
    event: Any = gpt.webhooks.unwrap(body, headers, secret=SECRET)
    assert (event.type, event.data.id) == ("batch.completed", batch.id)
    gpt.webhooks.verify_signature(body, headers, secret=SECRET)
    gpt.webhooks.verify_signature(body, headers, secret=SECRET, tolerance=60)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        gpt.webhooks.unwrap(body + b" ", headers, secret=SECRET)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        gpt.webhooks.verify_signature(body, headers, secret="whsec_" + "QUJE" * 8)


@pytest.mark.parametrize("form", ["bad_signature", "old_timestamp"])
def test_notices_that_must_not_be_believed(
    gpt: openai.OpenAI, simulator: Simulator, receiver: Receiver, form: str
) -> None:
    simulator.set_scenario(scenario(receiver, {"kind": "webhook", "form": form}))
    end_of(gpt, start(gpt, DATA))
    [(headers, body)] = receiver.wait(1)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        gpt.webhooks.unwrap(body, headers, secret=SECRET)


def test_duplicates_have_one_id(gpt: openai.OpenAI, simulator: Simulator, receiver: Receiver) -> None:
    simulator.set_scenario(scenario(receiver, {"kind": "webhook", "form": "duplicated"}))
    end_of(gpt, start(gpt, DATA))
    first, second = receiver.wait(2)
    assert first[0]["webhook-id"] == second[0]["webhook-id"]


def test_a_receiver_that_fails_is_tried_again(gpt: openai.OpenAI, simulator: Simulator, receiver: Receiver) -> None:
    receiver.statuses = [500, 302]
    simulator.set_scenario(scenario(receiver))
    end_of(gpt, start(gpt, DATA))
    for tries in (1, 2):
        receiver.wait(tries)
        simulator.set_clock(advance_s=60)
    ids = {headers["webhook-id"] for headers, _ in receiver.wait(3)}
    assert len(ids) == 1


def test_delayed_dropped_and_out_of_order(gpt: openai.OpenAI, simulator: Simulator, receiver: Receiver) -> None:
    simulator.set_scenario(
        scenario(
            receiver,
            {"kind": "webhook", "form": "out_of_order", "first": 1},
            {"kind": "webhook", "form": "dropped", "first": 2},
        )
    )
    made = [end_of(gpt, start(gpt, DATA)).id for _ in range(3)]
    seen: list[Any] = [gpt.webhooks.unwrap(body, headers, secret=SECRET) for headers, body in receiver.wait(2)]
    assert [event.data.id for event in seen] == [made[2], made[0]]
    simulator.set_scenario(scenario(receiver, {"kind": "webhook", "form": "delayed", "delay_ms": 3_600_000}))
    late = end_of(gpt, start(gpt, DATA))
    simulator.set_clock(advance_s=3601)
    event: Any = gpt.webhooks.unwrap(receiver.wait(3)[2][1], receiver.got[2][0], secret=SECRET)
    assert event.data.id == late.id


def test_management_and_rotation(gpt: openai.OpenAI, receiver: Receiver) -> None:
    made: Any = gpt.webhooks.create(name="mill", url=receiver.url, event_types=["batch.completed"])
    assert gpt.webhooks.retrieve(made.id).name == "mill"
    assert gpt.webhooks.update(made.id, name="mill 2").name == "mill 2"
    assert [one.id for one in gpt.webhooks.list().data] == [made.id]
    assert gpt.webhooks.test(made.id, event_type="batch.completed").status_code == 200
    rotated: Any = gpt.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    assert rotated.signing_secret != made.signing_secret
    end_of(gpt, start(gpt, DATA))
    headers, body = receiver.wait(2)[1]
    for secret in (made.signing_secret, rotated.signing_secret):
        assert gpt.webhooks.unwrap(body, headers, secret=secret).type == "batch.completed"
    assert gpt.webhooks.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        gpt.webhooks.retrieve(made.id)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"url": "ftp://example.org"}, "url"),
        ({"event_types": []}, "event_types"),
        ({"event_types": ["batch.done"]}, "Invalid value: 'batch.done'"),
        ({"name": ""}, "name"),
        ({"extra_body": {"colour": "red"}}, "Unknown parameter: 'colour'"),
    ],
)
def test_endpoints_that_are_refused(gpt: openai.OpenAI, changes: dict[str, Any], said: str) -> None:
    wanted: Any = {"name": "mill", "url": "http://127.0.0.1:9/hook", "event_types": ["batch.completed"], **changes}
    with pytest.raises(openai.BadRequestError, match=said):
        gpt.webhooks.create(**wanted)


def test_the_list_of_events_is_what_may_be_asked_for(gpt: openai.OpenAI) -> None:
    """E12: every event that the SDK types, and no other."""
    (typed,) = get_args(get_type_hints(WebhookCreateParams)["event_types"])
    assert gpt.webhooks.event_types.list().data == list(get_args(typed))


def test_tests_and_rotations_that_are_refused(gpt: openai.OpenAI) -> None:
    url: Any = "http://127.0.0.1:9/hook"
    made = gpt.webhooks.create(name="mill", url=url, event_types=["batch.completed"])
    wrong: Any = "batch.done"
    with pytest.raises(openai.BadRequestError, match=r"Invalid value: 'batch\.done'"):
        gpt.webhooks.test(made.id, event_type=wrong)
    maybe: Any = "yes"
    with pytest.raises(openai.BadRequestError, match="expected a boolean"):
        gpt.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=maybe)
    with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'colour'"):
        gpt.webhooks.rotate_secret(made.id, extra_body={"colour": "red"})


def test_pages_of_endpoints(gpt: openai.OpenAI) -> None:
    url: Any = "http://127.0.0.1:9/hook"
    made = {gpt.webhooks.create(name=f"mill {n}", url=url, event_types=["batch.failed"]).id for n in range(5)}
    seen = [one.id for one in gpt.webhooks.list(limit=2)]
    assert (len(seen), set(seen)) == (5, made)
