"""35: notices of batches: signed, late, twice, in another order, forged, old, lost, tried again, under two secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from conformance.faults.site import Scenario, Site, unknown
from conformance.sdk.test_webhooks import SECRET, Receiver

_HOOKS = "/v1/webhook_endpoints"
_Notice = tuple[dict[str, str], bytes]


@dataclass(frozen=True, slots=True)
class _Inbox:
    """A receiver, and OpenAI's own helper as the judge of what it gets."""

    receiver: Receiver
    client: openai.OpenAI

    def wait(self, count: int) -> list[_Notice]:
        return self.receiver.wait(count)

    def unwrapped(self, notice: _Notice, secret: str = SECRET) -> Any:
        headers, body = notice
        return self.client.webhooks.unwrap(body, headers, secret=secret)

    def signed(self, notice: _Notice, secret: str) -> bool:
        try:
            self.unwrapped(notice, secret)
        except openai.InvalidWebhookSignatureError:
            return False
        return True

    def batch_of(self, notice: _Notice) -> str:
        """The batch of a notice that is signed and new."""
        event = self.unwrapped(notice)
        assert (event.object, event.type) == ("event", "batch.completed")
        return str(event.data.id)


def webhooks(site: Site, scenario: Scenario) -> None:
    """What a receiver gets of two batches, or three."""
    form = scenario["faults"][0]["form"] if "faults" in scenario else "delivered"
    with _inbox() as inbox:
        target = {"webhooks": [{"url": inbox.receiver.url, "secret": SECRET}]}
        site.play({**scenario, **target})
        ids = [site.ended(site.create(1))["id"] for _ in range(2)]
        match form:
            case "delivered":
                assert [inbox.batch_of(one) for one in inbox.wait(2)] == ids
                _tried_again(site, inbox)
                _two_secrets(site, inbox)
            case "delayed":
                assert inbox.receiver.got == []
                site.advance(61)
                assert [inbox.batch_of(one) for one in inbox.wait(2)] == ids
            case "duplicated":
                got = inbox.wait(4)
                assert [inbox.batch_of(one) for one in got] == [ids[0], ids[0], ids[1], ids[1]]
                assert len({headers["webhook-id"] for headers, _ in got}) == 2
            case "out_of_order":
                assert [inbox.batch_of(one) for one in inbox.wait(2)] == ids[::-1]
            case "bad_signature" | "old_timestamp":
                said = "signature does not match" if form == "bad_signature" else "timestamp is too old"
                for notice in inbox.wait(2):
                    with pytest.raises(openai.InvalidWebhookSignatureError, match=said):
                        inbox.unwrapped(notice)
            case "dropped":
                site.play(target)
                later = site.ended(site.create(1))["id"]
                assert [inbox.batch_of(one) for one in inbox.wait(1)] == [later]
            case _:
                unknown(form)


def _tried_again(site: Site, inbox: _Inbox) -> None:
    """A receiver that says 500, and 302, gets the same notice once more."""
    inbox.receiver.got.clear()
    inbox.receiver.statuses = [500, 302]
    batch = site.ended(site.create(1))
    for tries in (1, 2):
        inbox.wait(tries)
        site.advance(60)
    got = inbox.wait(3)
    assert {inbox.batch_of(one) for one in got} == {batch["id"]}
    assert len({headers["webhook-id"] for headers, _ in got}) == 1


def _two_secrets(site: Site, inbox: _Inbox) -> None:
    """After a rotation both secrets are good for a day, then the new one alone."""
    wanted = {"name": "mill", "url": inbox.receiver.url, "event_types": ["batch.completed"]}
    made = site.post(_HOOKS, wanted).json()
    rotate = f"{_HOOKS}/{made['id']}/rotate_secret"
    old, new = made["signing_secret"], site.post(rotate, {"keep_old_secret_active_for_24_hours": True}).json()
    for seconds, old_is_good in ((0, True), (86_401, False)):
        site.advance(seconds)
        inbox.receiver.got.clear()
        site.ended(site.create(1))
        [notice] = [one for one in inbox.wait(2) if not inbox.signed(one, SECRET)]
        assert (inbox.signed(notice, new["signing_secret"]), inbox.signed(notice, old)) == (True, old_is_good)


@contextmanager
def _inbox() -> Iterator[_Inbox]:
    receiver = Receiver()
    try:
        with openai.OpenAI(api_key="k") as client:
            yield _Inbox(receiver, client)
    finally:
        receiver.close()
