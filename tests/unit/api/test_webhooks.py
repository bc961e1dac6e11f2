"""Notices of providers over HTTP: a signed one is handed on, once; anything else is refused plainly (E6, row 53)."""

import base64
import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.api_server import CONFIG, ServedApi
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.wire.messages import WebhookReceived

NOW_S = 1_796_000_000
OLD, NEW = "whsec_" + base64.b64encode(b"the old one").decode(), "whsec_" + base64.b64encode(b"the new one").decode()
OTHER = "whsec_" + base64.b64encode(b"somebody else's").decode()
BODY = b'{"object":"event","id":"evt_1","type":"batch.completed","created_at":1796000000,"data":{"id":"batch_1"}}'


@dataclass
class Delivery:
    """What a provider sends."""

    secrets: tuple[str, ...] = (NEW,)
    body: bytes = BODY
    id: str = "wh_1"
    at: str = str(NOW_S)
    pool: str = "sim"
    headers: dict[str, str] = field(default_factory=dict)  #: in place of those that belong to it

    def signed(self) -> dict[str, str]:
        signatures = [sign(secret, self.id, self.at, self.body) for secret in self.secrets]
        own = {"webhook-id": self.id, "webhook-timestamp": self.at, "webhook-signature": " ".join(signatures)}
        return {name: value for name, value in {**own, **self.headers}.items() if value}


def sign(secret: str, ident: str, at: str, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, f"{ident}.{at}.".encode() + body, hashlib.sha256)).decode()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    home: Path = tmp_path_factory.mktemp("home")
    files = []
    for number, secret in enumerate((OLD, NEW)):
        file = home / f"secret-{number}"
        file.write_text(secret)
        file.chmod(0o600)
        files.append({"file": str(file)})
    document = CONFIG.model_dump(exclude={"prices"})
    document["pools"]["sim"]["webhook_secrets"] = [*files, {"file": str(home / "not-there")}]
    config = Config.model_validate({**document, "prices": CONFIG.prices})
    with ServedApi(home, config, now_ms=NOW_S * 1000) as served:
        yield served


def post(api: ServedApi, delivery: Delivery) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    try:
        connection.request("POST", f"/v1/webhooks/{delivery.pool}", delivery.body, delivery.signed())
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_notice_is_handed_on_once(api: ServedApi) -> None:
    """Row 53: the provider may send it again, signed anew; it is told that all is well, and nothing follows."""
    assert post(api, Delivery(id="once")) == (200, {"told": True})
    assert post(api, Delivery(id="once")) == (200, {"told": False})
    assert post(api, Delivery(id="once", at=str(NOW_S + 5))) == (200, {"told": False})
    wanted = WebhookReceived(
        provider_batch_id="batch_1",
        pool="sim",
        webhook_id="once",
        event="batch.completed",
        received_at_ms=NOW_S * 1000,
    )
    assert [each for each in api.sent(WebhookReceived) if each.webhook_id == "once"] == [wanted]


@pytest.mark.parametrize("secrets", [(OLD,), (NEW,), (OTHER, NEW), (OLD, NEW)])
def test_both_secrets_are_in_force_while_one_replaces_the_other(api: ServedApi, secrets: tuple[str, ...]) -> None:
    delivery = Delivery(secrets=secrets, id=f"rotation {len(secrets)} {secrets[0]}")
    assert post(api, delivery) == (200, {"told": True})


@pytest.mark.parametrize("at_s", [NOW_S - 300, NOW_S + 300])
def test_clocks_may_be_five_minutes_apart(api: ServedApi, at_s: int) -> None:
    assert post(api, Delivery(id=f"at {at_s}", at=str(at_s))) == (200, {"told": True})


BAD: list[tuple[str, Delivery, int, str]] = [
    ("another secret", Delivery(secrets=(OTHER,)), 400, "bad_signature"),
    ("no signature of version 1", Delivery(headers={"webhook-signature": "v2,abc v1a,x"}), 400, "bad_signature"),
    ("a signature that is no base64", Delivery(headers={"webhook-signature": "v1,\xe9"}), 400, "bad_signature"),
    ("a signature of another body", Delivery(headers={"webhook-signature": sign(NEW, "wh_1", str(NOW_S), b"{}")}),
     400, "bad_signature"),
    ("another id than was signed", Delivery(headers={"webhook-id": "wh_2"}), 400, "bad_signature"),
    ("another time than was signed", Delivery(headers={"webhook-timestamp": str(NOW_S + 1)}), 400, "bad_signature"),
    ("old", Delivery(at=str(NOW_S - 301)), 400, "stale"),
    ("of the future", Delivery(at=str(NOW_S + 301)), 400, "stale"),
    ("no time", Delivery(at="soon"), 400, "stale"),
    ("a time without end", Delivery(at="9" * 400), 400, "stale"),
    ("unsigned", Delivery(headers={"webhook-signature": ""}), 400, "unsigned"),
    ("nameless", Delivery(headers={"webhook-id": ""}), 400, "unsigned"),
    ("timeless", Delivery(headers={"webhook-timestamp": ""}), 400, "unsigned"),
    ("no JSON", Delivery(body=b"{"), 400, "invalid"),
    ("nested without end", Delivery(body=b"[" * 60_000), 400, "invalid"),
    ("no event", Delivery(body=b"[]"), 400, "invalid"),
    ("no batch", Delivery(body=b'{"type":"batch.completed","data":{"id":7}}'), 400, "invalid"),
    ("an id that is no text", Delivery(body=b'{"type":"batch.completed","data":{"id":"\\ud800"}}'), 400, "invalid"),
    ("an event that is no text", Delivery(body=b'{"type":"batch.\\ud800","data":{"id":"b"}}'), 400, "invalid"),
    ("ten megabytes", Delivery(body=b" " * 10_000_000), 413, "body_too_large"),
    ("a hundred kilobytes", Delivery(body=b" " * 100_000), 413, "body_too_large"),
    ("a pool without secrets", Delivery(pool="unpriced"), 404, "no_webhook"),
    ("a pool of nobody", Delivery(pool="nobody"), 404, "no_webhook"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "delivery", "status", "code"), BAD, ids=[row[0] for row in BAD])
def test_what_is_no_notice_is_refused_plainly(
    api: ServedApi, name: str, delivery: Delivery, status: int, code: str
) -> None:
    """Row 53: with a word that says why and none of what was sent; nothing is handed on."""
    before = len(api.sent(WebhookReceived))
    try:
        found, answer = post(api, delivery)
    except (BrokenPipeError, ConnectionResetError):
        assert status == 413  # refused before all of it was there
    else:
        assert (found, answer["error"]["code"]) == (status, code), name
    assert len(api.sent(WebhookReceived)) == before


def test_other_events_are_taken_and_mean_nothing(api: ServedApi) -> None:
    body = b'{"type":"response.completed","data":{"id":"resp_1"}}'
    assert post(api, Delivery(id="other event", body=body)) == (200, {"told": False})
