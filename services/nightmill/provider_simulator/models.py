"""The list of models, in the shape of whoever asks."""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.pages import page_of
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.routes import Route


def models_reply(names: tuple[str, ...], inbound: Inbound, route: Route, voice: Voice) -> Reply:
    """GET /v1/models and /v1/models/{id} in the shape of whoever asked, which Anthropic's clients tell by a header."""
    if "anthropic-version" in inbound.headers:
        return _anthropic(names, inbound, route, voice._replace(side=Side.ANTHROPIC))
    if route.action == "list":
        return Reply(status=200, body=to_json({"object": "list", "data": [_openai_model(name) for name in names]}))
    if route.ident not in names:
        return voice.refusal(errors.model_not_found(route.ident))
    return Reply(status=200, body=to_json(_openai_model(route.ident)))


def _anthropic(names: tuple[str, ...], inbound: Inbound, route: Route, voice: Voice) -> Reply:
    if route.action != "list":
        if route.ident not in names:
            return voice.refusal(errors.not_found(f"model: {route.ident}"))
        return Reply(status=200, body=to_json(_anthropic_model(route.ident)))
    limit = inbound.whole_number("limit", 20, 1, 1000)
    if isinstance(limit, ApiError):
        return voice.refusal(limit)
    found: list[tuple[str, JsonValue]] = [(name, _anthropic_model(name)) for name in names]
    page = page_of(found, limit=limit, after=inbound.query.get("after_id"), before=inbound.query.get("before_id"))
    return voice.refusal(page) if isinstance(page, ApiError) else Reply(status=200, body=to_json(page))


def _openai_model(name: str) -> dict[str, JsonValue]:
    return {"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "simulator"}


def _anthropic_model(name: str) -> dict[str, JsonValue]:
    return {"id": name, "type": "model", "display_name": name, "created_at": "2026-09-21T00:00:00Z"}
