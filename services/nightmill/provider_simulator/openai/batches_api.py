"""OpenAI's /v1/batches: create, list, retrieve, cancel."""

from __future__ import annotations

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.states import Status, check_move
from nightmill.provider_simulator.envelopes import shown
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.openai import fields
from nightmill.provider_simulator.openai.words import worded
from nightmill.provider_simulator.pages import page_of
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.scenario import Dialect, Story
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import BatchStory, CountsWrong, ListLag, OddStatus, OutputIdBlank

_HOUR_MS = 3_600_000
_TIMES = {
    "in_progress_at": Status.IN_PROGRESS,
    "finalizing_at": Status.FINALIZING,
    "completed_at": Status.COMPLETED,
    "failed_at": Status.FAILED,
    "expired_at": Status.EXPIRED,
    "cancelling_at": Status.CANCELLING,
    "cancelled_at": Status.CANCELLED,
}


def created(state: State, inbound: Inbound, stories: list[Story]) -> Batch | ApiError:
    """A batch that is to be started, or the 400 that the request earns."""
    data = inbound.json()
    if isinstance(data, ApiError):
        return data
    problem = fields.BATCH(data)
    if problem is not None:
        return worded(problem)
    if not isinstance(data, dict):
        return errors.invalid("Invalid type for the request body: expected an object.", code="invalid_type")
    now_ms, settings = state.clock.now_ms(), state.run.scenario.batches
    refusal = _refusal(state, data, now_ms)
    if refusal is not None:
        return refusal
    metadata, expiry = data.get("metadata"), data.get("output_expires_after")
    seconds = expiry.get("seconds") if isinstance(expiry, dict) else None
    return Batch(
        id=state.new_id("batch_"),
        side=Side.OPENAI,
        status=Status.VALIDATING,
        endpoint=str(data["endpoint"]),
        input_file_id=str(data["input_file_id"]),
        created_at_ms=now_ms,
        expires_at_ms=now_ms + settings.window_s * 1000,
        metadata={str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else None,
        output_expiry_s=seconds if isinstance(seconds, int) else None,
        stories=[story for story in stories if isinstance(story, BatchStory)],
    )


def _refusal(state: State, data: dict[str, JsonValue], now_ms: int) -> ApiError | None:
    """What depends on the account."""
    ident = str(data["input_file_id"])
    record = state.files.get(ident, now_ms=now_ms)
    if record is None:
        message = f"Invalid 'input_file_id': no such file '{ident}'."
        return errors.invalid(message, param="input_file_id", code="invalid_value")
    if record.purpose != "batch":
        message = f"Invalid value for 'purpose' of file '{ident}': expected 'batch', but got '{record.purpose}'."
        return errors.invalid(message, param="input_file_id", code="invalid_file_purpose")
    limit = state.run.scenario.batches.max_creations_per_hour
    if limit is not None:
        ours = (batch for batch in state.batches.values() if batch.side is Side.OPENAI)
        recent = sum(1 for batch in ours if now_ms - batch.created_at_ms < _HOUR_MS)
        if recent >= limit:
            return errors.rate_limit_exceeded(
                model="batches", dimension="requests", detail=f"Limit {limit} batch creations per hour."
            )
    return None


def listed(state: State, inbound: Inbound, voice: Voice) -> Reply:
    """GET /v1/batches, newest first."""
    limit = inbound.whole_number("limit", 20, 1, 100)
    if isinstance(limit, ApiError):
        return voice.refusal(limit)
    now_ms = state.clock.now_ms()
    found: list[tuple[str, JsonValue]] = []
    for batch in reversed(state.batches.values()):
        lag = batch.story(ListLag)
        if batch.side is Side.OPENAI and (lag is None or now_ms >= batch.created_at_ms + lag.for_ms):
            found.append((batch.id, as_json(batch, state.run.scenario.dialect)))
    page = page_of(found, limit=limit, after=inbound.query.get("after"))
    if isinstance(page, ApiError):
        return voice.refusal(page)
    return Reply(status=200, body=to_json({"object": "list", **page}))


def retrieved(state: State, ident: str, voice: Voice) -> Reply:
    """GET /v1/batches/{id}."""
    batch = _found(state, ident)
    return voice.refusal(batch) if isinstance(batch, ApiError) else _shown(state, batch)


def cancelled(state: State, ident: str, voice: Voice) -> Reply:
    """POST /v1/batches/{id}/cancel."""
    batch = _found(state, ident)
    if isinstance(batch, ApiError):
        return voice.refusal(batch)
    if batch.status is not Status.CANCELLING:
        try:
            check_move(Side.OPENAI, batch.status, Status.CANCELLING)
        except ValueError:
            return voice.refusal(errors.conflict(f"Cannot cancel a batch with status '{batch.status}'."))
        batch.move(Status.CANCELLING, now_ms=state.clock.now_ms())
        state.save_batch(batch)
        state.clock.wake()
    return _shown(state, batch)


def _shown(state: State, batch: Batch) -> Reply:
    return Reply(status=200, body=to_json(as_json(batch, state.run.scenario.dialect)))


def as_json(batch: Batch, dialect: Dialect) -> dict[str, JsonValue]:
    """The object as OpenAI sends it, with the lies that the scenario wants."""
    told: dict[str, JsonValue] = {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": {"object": "list", "data": [*batch.errors]} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": batch.status.value,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at_ms // 1000,
        "expires_at": batch.expires_at_ms // 1000,
        "request_counts": _counts(batch),
        "metadata": None if batch.metadata is None else dict(batch.metadata),
    }
    for name, status in _TIMES.items():
        at_ms = batch.at_ms.get(status)
        told[name] = None if at_ms is None else at_ms // 1000
    if batch.ended:
        told["usage"] = _usage(batch)
    blank, odd = batch.story(OutputIdBlank), batch.story(OddStatus)
    if blank is not None and batch.ended and batch.output_file_id is None:
        told["output_file_id"] = ""
    if odd is not None:
        told["status"] = odd.status
    return shown(told, dialect)


def _counts(batch: Batch) -> JsonValue:
    counts = batch.counts
    told: dict[str, JsonValue] = {"total": counts.total, "completed": counts.completed, "failed": counts.failed}
    story = batch.story(CountsWrong)
    if story is None:
        return told
    match story.form:
        case "null":
            return None
        case "zero" | "frozen":
            return {"total": counts.total if story.form == "frozen" else 0, "completed": 0, "failed": 0}
        case "all_completed":
            return {"total": counts.total, "completed": counts.total if batch.ended else 0, "failed": 0}


def _usage(batch: Batch) -> JsonValue:
    read, cached, written, reasoning = batch.usage
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": read + written,
    }


def _found(state: State, ident: str) -> Batch | ApiError:
    batch = state.batches.get(ident)
    if batch is None or batch.side is not Side.OPENAI:
        return errors.not_found(f"No batch found with id '{ident}'.")
    return batch
