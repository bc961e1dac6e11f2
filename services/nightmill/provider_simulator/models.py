"""The list of models, in the shape of whoever asks."""

from __future__ import annotations

from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.reply import Reply, Voice
from nightmill.provider_simulator.routes import Route


def models_reply(names: tuple[str, ...], route: Route, voice: Voice, *, anthropic: bool) -> Reply:
    """GET /v1/models and /v1/models/{id} in the shape of whoever asked."""
    shown = [_anthropic_model(name) if anthropic else _openai_model(name) for name in names]
    if route.action == "list":
        if anthropic:
            page = {"data": shown, "has_more": False, "first_id": names[0], "last_id": names[-1]}
            return Reply(status=200, body=to_json(page))
        return Reply(status=200, body=to_json({"object": "list", "data": shown}))
    if route.ident not in names:
        return voice.refusal(errors.model_not_found(route.ident))
    return Reply(status=200, body=to_json(shown[names.index(route.ident)]))


def _openai_model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "simulator"}


def _anthropic_model(name: str) -> dict[str, object]:
    return {"id": name, "type": "model", "display_name": name, "created_at": "2026-09-21T00:00:00Z"}
