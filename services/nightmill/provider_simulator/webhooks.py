"""OpenAI's webhooks: who receives what, and the Standard Webhooks signature (standardwebhooks.com, read 2026-11-29)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pydantic import JsonValue, TypeAdapter

from nightmill.provider_simulator.scenario import WebhookTarget

GRACE_MS = 86_400_000  # an old secret stays in force this long, when asked
RETRY_MS = 72 * 3_600_000  # then a delivery is given up
FIRST_RETRY_MS = 5_000


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """One receiver."""

    id: str
    name: str
    url: str
    event_types: tuple[str, ...]
    created_at_ms: int
    secret: str
    old_secret: str | None = None
    old_until_ms: int = 0

    def as_json(self) -> dict[str, JsonValue]:
        """The object as OpenAI sends it: the secret is told once, at creation and rotation."""
        return {
            "object": "webhook_endpoint",
            "id": self.id,
            "name": self.name,
            "url": self.url,
            "event_types": list(self.event_types),
            "created_at": self.created_at_ms // 1000,
            "updated_at": self.created_at_ms // 1000,
            "signing_secret_hint": self.secret[-4:],
        }

    def as_row(self) -> dict[str, JsonValue]:
        """What the journal keeps."""
        return {**asdict(self), "event_types": list(self.event_types)}

    def secrets(self, now_ms: int) -> list[str]:
        """The secrets in force, newest first."""
        old = [self.old_secret] if self.old_secret is not None and now_ms < self.old_until_ms else []
        return [self.secret, *old]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notice on its way to one receiver."""

    endpoint_id: str
    message_id: str
    body: bytes
    due_at_ms: int
    created_at_ms: int
    attempt: int = 0
    age_ms: int = 0  # the timestamp is told this much too old
    bad_signature: bool = False


@dataclass(slots=True)
class Outgoing:
    """All deliveries that are due or will be."""

    waiting: list[Delivery] = field(default_factory=list)
    held: list[Delivery] = field(default_factory=list)  # until the next one was put

    def put(self, delivery: Delivery) -> None:
        """One more; those that wait for it follow it."""
        self.waiting.append(delivery)
        self.waiting.extend(self.held)
        self.held.clear()

    def take(self, now_ms: int) -> list[Delivery]:
        """What is due, and not here any more."""
        due = [one for one in self.waiting if one.due_at_ms <= now_ms]
        self.waiting = [one for one in self.waiting if one.due_at_ms > now_ms]
        return due

    def next_at_ms(self) -> int | None:
        """When something is due."""
        return min((one.due_at_ms for one in self.waiting), default=None)


def endpoint_of_row(row: dict[str, JsonValue]) -> Endpoint:
    """The endpoint that `as_row` wrote."""
    return TypeAdapter(Endpoint).validate_python(row)


def endpoint_of_target(target: WebhookTarget, *, place: int, now_ms: int) -> Endpoint:
    """The endpoint of a scenario's target."""
    return Endpoint(
        id=f"whe_scenario{place}",
        name=f"scenario target {place}",
        url=target.url,
        event_types=target.event_types,
        created_at_ms=now_ms,
        secret=target.secret,
    )


def new_secret(seed: str) -> str:
    """A signing secret that depends on nothing but `seed`."""
    return "whsec_" + base64.b64encode(hashlib.sha256(seed.encode()).digest()).decode()


def signed_headers(delivery: Delivery, secrets: Sequence[str], *, now_ms: int) -> dict[str, str]:
    """The headers of one delivery, signed with every secret in force."""
    stamp = (now_ms - delivery.age_ms) // 1000
    signatures = [_signature(secret, delivery.message_id, stamp, delivery.body) for secret in secrets]
    if delivery.bad_signature:
        signatures = ["v1," + base64.b64encode(bytes(32)).decode()]
    return {
        "Content-Type": "application/json",
        "User-Agent": "OpenAI/1.0 (+https://platform.openai.com/docs/webhooks)",
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": " ".join(signatures),
    }


def retry_at_ms(delivery: Delivery, *, now_ms: int) -> int | None:
    """When to try again after a failure: 5 s, doubling, for 72 hours; None: given up."""
    at_ms = now_ms + FIRST_RETRY_MS * 2**delivery.attempt
    return at_ms if at_ms - delivery.created_at_ms <= RETRY_MS else None


def event(kind: str, *, ident: str, batch_id: str, now_ms: int) -> dict[str, JsonValue]:
    """The body of a notice about a batch."""
    data: Mapping[str, JsonValue] = {"id": batch_id}
    return {"object": "event", "id": ident, "type": kind, "created_at": now_ms // 1000, "data": dict(data)}


def _signature(secret: str, message_id: str, stamp: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{stamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
