"""Where providers send their notices. Without the token: a signature stands in its place."""

import logging

from anyio import to_thread
from fastapi import APIRouter, Request

from nightmill.api.desk import At
from nightmill.api.errors import refusals
from nightmill.api.models import Noticed
from nightmill.api.webhooks import Stamp

log = logging.getLogger(__name__)

router = APIRouter()

#: read by hand: the signature is about the bytes of the body
_SIGNED = {
    "parameters": [
        {"in": "header", "name": name, "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    ],
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
}


@router.post("/v1/webhooks/{pool}", responses=refusals(400, 404, 422), openapi_extra=_SIGNED)
async def notice(pool: str, request: Request, desk: At) -> Noticed:
    """Take a signed notice about one of the pool's batches. A repeat changes nothing, and is no error to its sender."""
    headers = request.headers
    stamp = Stamp(
        id=headers.get("webhook-id", ""),
        timestamp=headers.get("webhook-timestamp", ""),
        signature=headers.get("webhook-signature", ""),
    )
    found = desk.receiver.read(pool, stamp, await request.body(), desk.now_ms())
    if found is None:
        return Noticed(told=False)
    await to_thread.run_sync(desk.mirror.hint, found)
    desk.receiver.told(found)
    extra = {"action": "webhook_received", "pool": pool, "batch": found.provider_batch_id, "event": found.event}
    log.info("webhook received", extra=extra)
    return Noticed(told=True)
