"""Sends the notices of batches to their receivers, again and again until one says 2xx, as OpenAI does.

Redirects are not followed; anything but a 2xx within 20 s is a failure.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
from dataclasses import replace
from urllib.parse import urlsplit

from pydantic_core import to_json

from nightmill.provider_simulator import faults
from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.openai.webhooks_api import missing, test_event
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.routes import Route
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import WebhookFault
from nightmill.provider_simulator.webhooks import (
    Delivery,
    Endpoint,
    Outgoing,
    event,
    retry_at_ms,
    signed_headers,
)

log = logging.getLogger(__name__)

TIMEOUT_S = 20.0
OLD_MS = 3_600_000  # how far back an old timestamp is


class Notifier:
    """One task sends what is due; the network is touched in threads."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._outgoing = Outgoing()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send; needs a running loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def clear(self) -> None:
        """Forget what is on its way."""
        self._outgoing = Outgoing()

    def batch_ended(self, batch: Batch) -> None:
        """Tell everybody who wants to know that the batch has ended. Only OpenAI has notices of batches."""
        if batch.side is not Side.OPENAI:
            return
        kind = f"batch.{batch.status}"
        for endpoint in self._state.endpoints.values():
            if kind in endpoint.event_types:
                self._notice(endpoint, kind, batch.id)
        self._state.clock.wake()

    async def test(self, inbound: Inbound, route: Route, voice: Voice) -> Reply:
        """POST /v1/webhook_endpoints/{id}/test: send a sample now and tell what came back."""
        endpoint = self._state.endpoints.get(route.ident)
        if endpoint is None:
            return voice.refusal(missing(route.ident))
        kind = test_event(inbound)
        if isinstance(kind, ApiError):
            return voice.refusal(kind)
        delivery = self._delivery(endpoint, kind, "batch_test")
        status = await self._posted(delivery, endpoint)
        if status is None:
            return voice.refusal(ApiError(status=400, message=f"The endpoint {endpoint.url} could not be reached."))
        result = {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": endpoint.id,
            "event_type": kind,
            "status_code": status,
            "success": True,
        }
        return Reply(status=200, body=to_json(result))

    def _delivery(self, endpoint: Endpoint, kind: str, batch_id: str) -> Delivery:
        state, now_ms = self._state, self._state.clock.now_ms()
        body = to_json(event(kind, ident=state.new_id("evt_"), batch_id=batch_id, now_ms=now_ms))
        message_id = state.new_id("wh_")
        return Delivery(
            endpoint_id=endpoint.id, message_id=message_id, body=body, due_at_ms=now_ms, created_at_ms=now_ms
        )

    def _notice(self, endpoint: Endpoint, kind: str, batch_id: str) -> None:
        """Put one notice on its way, with the turn that the scenario wants."""
        state = self._state
        occasion = Occasion(
            digest=batch_id.encode(),
            occurrence=1,
            arrival=state.run.arrival(Operation.WEBHOOKS),
            elapsed_ms=state.real_now_ms() - state.run.started_at_ms,
            prompt=f"{kind} {batch_id}",
            operation=Operation.WEBHOOKS,
        )
        story = next((s for s in faults.stories(state.run.scenario, occasion) if isinstance(s, WebhookFault)), None)
        for delivery in turned(self._delivery(endpoint, kind, batch_id), story):
            if story is not None and story.form == "out_of_order":
                self._outgoing.held.append(delivery)
            else:
                self._outgoing.put(delivery)

    async def _run(self) -> None:
        clock = self._state.clock
        while True:
            for delivery in self._outgoing.take(clock.now_ms()):
                await self._sent(delivery)
            await clock.until(self._outgoing.next_at_ms())

    async def _sent(self, delivery: Delivery) -> None:
        endpoint = self._state.endpoints.get(delivery.endpoint_id)
        if endpoint is None:
            return
        status = await self._posted(delivery, endpoint)
        if status is not None and 200 <= status < 300:
            return
        again_ms = retry_at_ms(delivery, now_ms=self._state.clock.now_ms())
        log.info("webhook not taken", extra={"action": "webhook_not_taken", "webhook_id": delivery.message_id})
        if again_ms is not None:
            self._outgoing.waiting.append(later(delivery, again_ms))

    async def _posted(self, delivery: Delivery, endpoint: Endpoint) -> int | None:
        secrets = endpoint.secrets(self._state.clock.now_ms())
        headers = signed_headers(delivery, secrets, now_ms=self._state.real_now_ms())  # receivers have real clocks
        return await asyncio.to_thread(_post, endpoint.url, delivery.body, headers)


def turned(delivery: Delivery, story: WebhookFault | None) -> list[Delivery]:
    """What is really sent: nothing, once, twice, late, or not as it should be."""
    if story is None:
        return [delivery]
    match story.form:
        case "dropped":
            return []
        case "duplicated":
            return [delivery, delivery]
        case "delayed":
            return [replace(delivery, due_at_ms=delivery.due_at_ms + story.delay_ms)]
        case "bad_signature":
            return [replace(delivery, bad_signature=True)]
        case "old_timestamp":
            return [replace(delivery, age_ms=OLD_MS)]
        case "out_of_order":
            return [delivery]


def later(delivery: Delivery, at_ms: int) -> Delivery:
    """The same notice at another time, as its next attempt."""
    return replace(delivery, due_at_ms=at_ms, attempt=delivery.attempt + 1)


def _post(url: str, body: bytes, headers: dict[str, str]) -> int | None:
    """The status of the answer; None if there was none."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=body, headers=headers)
        response = connection.getresponse()
        response.read(4096)
        return response.status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
