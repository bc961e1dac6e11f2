"""Anthropic's /v1/messages/batches: create, list, retrieve, cancel, delete, results."""

from __future__ import annotations

from collections import Counter

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.anthropic import fields
from nightmill.provider_simulator.anthropic.words import worded
from nightmill.provider_simulator.bulk.batch import RESULTS_MS, Batch, Counts, iso
from nightmill.provider_simulator.bulk.states import Status
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.filestore import HIDDEN, FileRecord
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.openai.files_api import file_reply
from nightmill.provider_simulator.pages import page_of
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.scenario import Story
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import BatchStory, CountsWrong, ListLag, OddStatus

MAX_BYTES = 256 * 2**20


def created(state: State, inbound: Inbound, stories: list[Story]) -> Batch | ApiError:
    """A batch that is to be started, its requests on disk; or the error that the envelope earns.

    The `params` of a request are looked at when it runs.
    """
    if len(inbound.body) > MAX_BYTES:
        return ApiError(status=413, message="Request exceeds the maximum size", type="request_too_large")
    data = inbound.json()
    if isinstance(data, ApiError):
        return data
    problem = fields.BATCH(data)
    if problem is not None:
        return worded(problem)
    requests = data["requests"] if isinstance(data, dict) else None
    if not isinstance(requests, list):
        return ApiError(status=400, message="requests: Input should be a valid list")
    ids = Counter(request["custom_id"] for request in requests if isinstance(request, dict))
    twice = next((ident for ident, count in ids.items() if count > 1), None)
    if twice is not None:
        return ApiError(status=400, message=f"requests: custom_id must be unique, found more than one '{twice}'")
    limit = state.run.scenario.batches.max_enqueued_requests
    waiting = sum(one.counts.total for one in state.batches.values() if one.side is Side.ANTHROPIC and not one.ended)
    if limit is not None and waiting + len(requests) > limit:
        return errors.anthropic_rate_limit("batch requests in the processing queue", limit)
    now_ms = state.clock.now_ms()
    input_id = state.new_id(HIDDEN)
    size = 0
    with state.files.path(input_id).open("wb") as file:
        for request in requests:
            size += file.write(to_json(request) + b"\n")
    state.files.add(
        FileRecord(
            id=input_id,
            filename="requests.jsonl",
            purpose="batch",
            bytes=size,
            created_at_ms=now_ms,
            processed_at_ms=now_ms,
            expires_at_ms=None,
        )
    )
    return Batch(
        id=state.new_id("msgbatch_"),
        side=Side.ANTHROPIC,
        status=Status.IN_PROGRESS,
        endpoint="/v1/messages",
        input_file_id=input_id,
        created_at_ms=now_ms,
        expires_at_ms=now_ms + state.run.scenario.batches.window_s * 1000,
        version=inbound.headers["anthropic-version"],
        counts=Counts(total=len(requests)),
        stories=[story for story in stories if isinstance(story, BatchStory)],
    )


def listed(state: State, inbound: Inbound, voice: Voice) -> Reply:
    """GET /v1/messages/batches, newest first."""
    limit = inbound.whole_number("limit", 20, 1, 1000)
    if isinstance(limit, ApiError):
        return voice.refusal(limit)
    now_ms = state.clock.now_ms()
    found: list[tuple[str, JsonValue]] = []
    for batch in reversed(state.batches.values()):
        lag = batch.story(ListLag)
        if (
            batch.side is Side.ANTHROPIC
            and not batch.deleted
            and (lag is None or now_ms >= batch.created_at_ms + lag.for_ms)
        ):
            found.append((batch.id, as_json(state, batch, inbound)))
    page = page_of(found, limit=limit, after=inbound.query.get("after_id"), before=inbound.query.get("before_id"))
    if isinstance(page, ApiError):
        return voice.refusal(page)
    return Reply(status=200, body=to_json(page))


def retrieved(state: State, inbound: Inbound, ident: str, voice: Voice) -> Reply:
    """GET /v1/messages/batches/{id}."""
    batch = _found(state, ident)
    return voice.refusal(batch) if isinstance(batch, ApiError) else _shown(state, batch, inbound)


def cancelled(state: State, inbound: Inbound, ident: str, voice: Voice) -> Reply:
    """POST /v1/messages/batches/{id}/cancel; a second cancel changes nothing."""
    batch = _found(state, ident)
    if isinstance(batch, ApiError):
        return voice.refusal(batch)
    if batch.ended:
        message = f"Batch {ident} cannot be canceled because it has already ended."
        return voice.refusal(ApiError(status=400, message=message))
    if batch.status is Status.IN_PROGRESS:
        batch.move(Status.CANCELING, now_ms=state.clock.now_ms())
        state.save_batch(batch)
        state.clock.wake()
    return _shown(state, batch, inbound)


def deleted(state: State, ident: str, voice: Voice) -> Reply:
    """DELETE /v1/messages/batches/{id}, once it has ended. Its books stay."""
    batch = _found(state, ident)
    if isinstance(batch, ApiError):
        return voice.refusal(batch)
    if not batch.ended:
        message = f"Batch {ident} cannot be deleted because it is still in progress. Cancel it first."
        return voice.refusal(ApiError(status=400, message=message))
    batch.deleted = True
    state.save_batch(batch)
    return Reply(status=200, body=to_json({"id": ident, "type": "message_batch_deleted"}))


def results(state: State, inbound: Inbound, ident: str, voice: Voice) -> Reply:
    """GET the results, as JSON lines."""
    batch = _found(state, ident)
    if isinstance(batch, ApiError):
        return voice.refusal(batch)
    if not batch.ended:
        message = f"Results for batch {ident} are not available yet; its processing has not ended."
        return voice.refusal(ApiError(status=400, message=message))
    record = state.files.get(batch.output_file_id or "", now_ms=state.clock.now_ms())
    if record is None or record.gone or _archived_at_ms(state, batch) is not None:
        return voice.refusal(ApiError(status=404, message=f"Results for batch {ident} are no longer available."))
    reply = file_reply(state.files.path(record.id), record, inbound.headers.get("Range"))
    if reply.file is not None:
        reply.content_type = "application/x-jsonl"
    return reply


def as_json(state: State, batch: Batch, inbound: Inbound) -> dict[str, JsonValue]:
    """The object as Anthropic sends it: no progress until it ends, and the counts always add up."""
    counts = batch.counts
    told = {
        "processing": 0 if batch.ended else counts.total,
        "succeeded": counts.completed if batch.ended else 0,
        "errored": counts.failed if batch.ended else 0,
        "canceled": counts.cancelled if batch.ended else 0,
        "expired": counts.expired if batch.ended else 0,
    }
    if batch.story(CountsWrong) is not None and batch.ended:
        told = {**dict.fromkeys(told, 0), "succeeded": counts.total}
    odd = batch.story(OddStatus)
    url = f"/v1/messages/batches/{batch.id}/results"
    if state.run.scenario.batches.results_url == "absolute":
        url = f"http://{inbound.headers.get('Host', 'localhost')}{url}"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": batch.status.value if odd is None else odd.status,
        "request_counts": dict(told),
        "created_at": iso(batch.created_at_ms),
        "expires_at": iso(batch.expires_at_ms),
        "ended_at": iso(batch.at_ms.get(Status.ENDED)),
        "cancel_initiated_at": iso(batch.at_ms.get(Status.CANCELING)),
        "archived_at": iso(_archived_at_ms(state, batch)),
        "results_url": url if batch.ended else None,
    }


def _archived_at_ms(state: State, batch: Batch) -> int | None:
    at_ms = batch.created_at_ms + RESULTS_MS
    return at_ms if state.clock.now_ms() >= at_ms else None


def _shown(state: State, batch: Batch, inbound: Inbound) -> Reply:
    return Reply(status=200, body=to_json(as_json(state, batch, inbound)))


def _found(state: State, ident: str) -> Batch | ApiError:
    batch = state.batches.get(ident)
    if batch is None or batch.side is not Side.ANTHROPIC or batch.deleted:
        return ApiError(status=404, message="The requested resource could not be found.")
    return batch
