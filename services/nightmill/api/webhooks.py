"""Notices of providers that a batch has ended: Standard Webhooks, checked before anything of them is read (E6).

Signature `v1`: base64 of HMAC-SHA256 over `id.timestamp.body`, with the key behind `whsec_`; several signatures and
several secrets are in force while a secret is rotated. A notice's time may be five minutes off, and it is told at most
once in a life of the api: which ones were told is in memory alone. One that is sent again after a restart, within its
five minutes, is told again, and that is harmless, for it is a hint alone: it makes gateways look once more at a batch
that is under way, and at none that has ended. As OpenAI's SDK 3.57 checks them, https://www.standardwebhooks.com
(2026-11-29).
"""

import base64
import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightmill.api.errors import ApiError
from nightmill.kernel.domain.settings import Pool
from nightmill.kernel.wire.messages import WebhookReceived
from nightmill.provider_gateway.keys import KeyUnusable, signing_key

log = logging.getLogger(__name__)

TOLERANCE_S = 300
MAX_BODY_BYTES = 64 << 10
_MOST_REMEMBERED = 20_000
_LONGEST_NAME = 200
_SENDER = "only a provider that has one of the pool's webhook_secrets can send this"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the headers of a delivery say; absent ones are empty."""

    id: str
    timestamp: str
    signature: str


class Receiver:
    """Secrets by pool, read once, and the notices of the last minutes. Safe from several threads."""

    def __init__(self, pools: Mapping[str, Pool], environment: Mapping[str, str]) -> None:
        self._keys = {name: _keys_of(name, pool, environment) for name, pool in pools.items() if pool.webhook_secrets}
        self._told: dict[str, int] = {}  #: when, by pool and the notice's id
        self._lock = threading.Lock()

    def read(self, pool: str, stamp: Stamp, body: bytes, now_ms: int) -> WebhookReceived | None:
        """The notice; None for one that was told before, or that is about something else. Raises `ApiError`."""
        keys = self._keys.get(pool)
        if not keys:
            what = f"pool {pool!r} takes no webhooks"
            raise ApiError(404, "no_webhook", what, "set webhook_secrets of the pool in pools.yaml")
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(413, "body_too_large", f"the notice is larger than {MAX_BODY_BYTES} bytes", _SENDER)
        _check_time(stamp, now_ms)
        if not _is_signed(stamp, body, keys):
            raise ApiError(400, "bad_signature", "the signature is none of this pool's", _SENDER)
        event, batch_id = _content(body)
        if batch_id is None or self._was_told(pool, stamp.id):
            return None
        return WebhookReceived(
            provider_batch_id=batch_id, pool=pool, webhook_id=stamp.id, event=event, received_at_ms=now_ms
        )

    def told(self, notice: WebhookReceived) -> None:
        """The notice was handed on: further deliveries of it are repeats."""
        with self._lock:
            oldest_ms = notice.received_at_ms - 2 * TOLERANCE_S * 1000
            if len(self._told) >= _MOST_REMEMBERED:
                self._told = {key: at_ms for key, at_ms in self._told.items() if at_ms >= oldest_ms}
            self._told[f"{notice.pool} {notice.webhook_id}"] = notice.received_at_ms

    def _was_told(self, pool: str, webhook_id: str) -> bool:
        with self._lock:
            return f"{pool} {webhook_id}" in self._told


def _keys_of(name: str, pool: Pool, environment: Mapping[str, str]) -> Sequence[bytes]:
    """The pool's signing keys. One that can not be read is told, and the others are in force."""
    keys: list[bytes] = []
    for source in pool.webhook_secrets:
        try:
            keys.append(signing_key(source, environment))
        except KeyUnusable as error:
            extra = {"action": "webhook_secret_unusable", "pool": name, "reason": str(error)}
            log.warning("a secret of webhooks can not be used", extra=extra)
    return keys


def _check_time(stamp: Stamp, now_ms: int) -> None:
    if not 0 < len(stamp.id) <= _LONGEST_NAME or not stamp.timestamp or not stamp.signature:
        raise ApiError(400, "unsigned", "webhook-id, webhook-timestamp or webhook-signature is missing", _SENDER)
    seconds = int(stamp.timestamp) if stamp.timestamp.isdecimal() and len(stamp.timestamp) < 15 else None
    if seconds is None or abs(now_ms - seconds * 1000) > TOLERANCE_S * 1000:
        what = f"webhook-timestamp is more than {TOLERANCE_S} s off"
        raise ApiError(400, "stale", what, "the provider sends it again; if this is a new one, mend this clock")


def _is_signed(stamp: Stamp, body: bytes, keys: Sequence[bytes]) -> bool:
    signed = f"{stamp.id}.{stamp.timestamp}.".encode() + body
    given = [each[3:].encode() for each in stamp.signature.split() if each.startswith("v1,")]
    wanted = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys]
    # every pair is compared: the time that it takes tells nothing
    return any([hmac.compare_digest(mine, theirs) for mine in wanted for theirs in given])  # noqa: C419


def _content(body: bytes) -> tuple[str, str | None]:
    """What happened, and the batch that it is about; None for an event of something else. Raises `ApiError`."""
    try:
        document = json.loads(body)
        event, data = document["type"], document["data"]
        if not isinstance(event, str) or not isinstance(data, dict):
            raise TypeError
        batch_id = data["id"] if event.startswith("batch.") else None
        if batch_id is not None and not (_is_name(event) and _is_name(batch_id)):
            raise TypeError
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ApiError(400, "invalid", "the notice has not the shape of an event", _SENDER) from error
    return event, batch_id


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isascii() and value.isprintable()
