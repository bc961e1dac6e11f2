"""OpenAI's /v1/webhook_endpoints: create, list, retrieve, update, delete, rotate the secret, send a test; and the list
of event types. Only notices of batches are ever sent. Bodies and events as the official SDK 3.57 types them.
"""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.asks import Object
from nightmill.provider_simulator.checks import Check, Fields, array, choice, flag, record, text
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.openai.words import worded
from nightmill.provider_simulator.pages import page_of
from nightmill.provider_simulator.reply import Reply, Voice
from nightmill.provider_simulator.routes import Route
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.webhooks import GRACE_MS, Endpoint, new_secret

EVENT_TYPES = (
    *(f"batch.{end}" for end in ("completed", "failed", "expired", "cancelled")),
    *(f"response.{end}" for end in ("completed", "failed", "cancelled", "incomplete")),
    *(f"eval.run.{end}" for end in ("succeeded", "failed", "canceled")),
    *(f"fine_tuning.job.{end}" for end in ("succeeded", "failed", "cancelled")),
    "realtime.call.incoming",
    *(f"video.{end}" for end in ("completed", "failed")),
    *(f"agent.environment.{state}" for state in ("ready", "failed", "suspended", "expired")),
    *(f"agent.session.{state}" for state in ("created", "action_required", "in_progress", "idle", "failed")),
    "safety.alert.created",
)
_event_type = choice(*EVENT_TYPES)
_fields: Fields = {
    "name": text(shortest=1),
    "url": text(pattern=r"^https?://"),
    "event_types": array(_event_type, shortest=1),
}
_NEW: Check = record(_fields, "name", "url", "event_types")
_CHANGE: Check = record(_fields)
_ROTATION: Check = record({"keep_old_secret_active_for_24_hours": flag})
_TEST: Check = record({"event_type": _event_type}, "event_type")


def handled(state: State, inbound: Inbound, route: Route, voice: Voice) -> Reply:
    """Everything but the test delivery, which needs the network."""
    if route.action == "create":
        return _created(state, inbound, voice)
    if route.action == "list":
        return _listed(state, inbound, voice)
    if route.action == "types":
        return Reply(status=200, body=to_json({"object": "list", "data": list(EVENT_TYPES)}))
    endpoint = state.endpoints.get(route.ident)
    if endpoint is None:
        return voice.refusal(missing(route.ident))
    match route.action:
        case "update":
            return _updated(state, inbound, endpoint, voice)
        case "delete":
            state.remove_endpoint(endpoint.id)
            gone: dict[str, JsonValue] = {"id": endpoint.id, "object": "webhook_endpoint.deleted", "deleted": True}
            return Reply(status=200, body=to_json(gone))
        case "rotate":
            return _rotated(state, inbound, endpoint, voice)
        case _:
            return Reply(status=200, body=to_json(endpoint.as_json()))


def missing(ident: str) -> ApiError:
    """No such endpoint."""
    return errors.not_found(f"No webhook endpoint found with id '{ident}'.")


def test_event(inbound: Inbound) -> str | ApiError:
    """The event of which a sample is wanted, or the 400 that the body earns."""
    data = _checked(inbound, _TEST)
    return data if isinstance(data, ApiError) else str(data["event_type"])


def _checked(inbound: Inbound, check: Check) -> Object | ApiError:
    data = inbound.json() if inbound.body else {}
    if isinstance(data, ApiError):
        return data
    problem = check(data)
    if problem is not None:
        return worded(problem)
    return data if isinstance(data, dict) else errors.invalid("expected an object")


def _created(state: State, inbound: Inbound, voice: Voice) -> Reply:
    data = _checked(inbound, _NEW)
    if isinstance(data, ApiError):
        return voice.refusal(data)
    ident = state.new_id("whe_")
    endpoint = Endpoint(
        id=ident,
        name=str(data["name"]),
        url=str(data["url"]),
        event_types=_texts(data["event_types"]),
        created_at_ms=state.clock.now_ms(),
        secret=new_secret(ident),
    )
    state.save_endpoint(endpoint)
    return Reply(status=200, body=to_json({**endpoint.as_json(), "signing_secret": endpoint.secret}))


def _listed(state: State, inbound: Inbound, voice: Voice) -> Reply:
    limit = inbound.whole_number("limit", 20, 1, 100)
    if isinstance(limit, ApiError):
        return voice.refusal(limit)
    found = [(one.id, one.as_json()) for one in reversed(state.endpoints.values())]
    page = page_of(found, limit=limit, after=inbound.query.get("after"))
    if isinstance(page, ApiError):
        return voice.refusal(page)
    return Reply(status=200, body=to_json({"object": "list", **page}))


def _updated(state: State, inbound: Inbound, endpoint: Endpoint, voice: Voice) -> Reply:
    data = _checked(inbound, _CHANGE)
    if isinstance(data, ApiError):
        return voice.refusal(data)
    endpoint.name = str(data.get("name", endpoint.name))
    endpoint.url = str(data.get("url", endpoint.url))
    if "event_types" in data:
        endpoint.event_types = _texts(data["event_types"])
    state.save_endpoint(endpoint)
    return Reply(status=200, body=to_json(endpoint.as_json()))


def _rotated(state: State, inbound: Inbound, endpoint: Endpoint, voice: Voice) -> Reply:
    """A new secret; the old one stays in force for a day only if that is asked."""
    data = _checked(inbound, _ROTATION)
    if isinstance(data, ApiError):
        return voice.refusal(data)
    keep = data.get("keep_old_secret_active_for_24_hours") is True
    endpoint.old_secret = endpoint.secret if keep else None
    endpoint.old_until_ms = state.clock.now_ms() + GRACE_MS
    endpoint.secret = new_secret(state.new_id("secret"))
    state.save_endpoint(endpoint)
    return Reply(status=200, body=to_json({**endpoint.as_json(), "signing_secret": endpoint.secret}))


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()
