"""What OpenAI does with a batch before it runs: read the whole file, then see whether it fits into the queue."""

from __future__ import annotations

import asyncio

from pydantic import JsonValue

from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.lines import BODIES, ENDPOINTS, FileCheck, raw_lines
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.openai.read import read_body
from nightmill.provider_simulator.scenario import Scenario
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import BatchFailed

_SLICE_LINES = 1000
_RELAXED = Scenario(strict=False)  # a bad body is a row in the error file, not a reason to fail the batch


async def validated(state: State, batch: Batch) -> None:
    """Fill in what is known after validation: model, total, tokens, and the errors that fail the batch."""
    settings = state.run.scenario.batches
    record = state.files.get(batch.input_file_id, now_ms=state.clock.now_ms())
    story = batch.story(BatchFailed)
    if record is None:
        batch.errors = [_error("invalid_file", f"The file {batch.input_file_id} does not exist any more.", None)]
        return
    if record.bytes > settings.max_file_bytes:
        message = f"The batch input file is larger than the {settings.max_file_bytes} maximum for the model."
        batch.errors = [_error("file_too_large", message, None)]
        return
    check = FileCheck(endpoint=batch.endpoint, max_requests=settings.max_requests)
    for raw in raw_lines(state.files.path(batch.input_file_id)):
        line = check.line(raw)
        if line is not None and settings.max_enqueued_tokens is not None:
            batch.enqueued_tokens += _tokens(batch, line.data()[BODIES[batch.side]])
        if check.total % _SLICE_LINES == 0:
            await asyncio.sleep(0)
    check.finish()
    batch.model, batch.counts.total = check.model, check.total
    batch.errors = _told(story, check.total) if story is not None else check.errors
    if not batch.errors:
        batch.errors = _queue_full(state, batch)
    if batch.errors:
        batch.enqueued_tokens = 0
        batch.counts.total = 0


def _queue_full(state: State, batch: Batch) -> list[dict[str, JsonValue]]:
    limit = state.run.scenario.batches.max_enqueued_tokens
    if limit is None:
        return []
    others = [other for other in state.batches.values() if other.model == batch.model and other.id != batch.id]
    if sum(other.enqueued_tokens for other in others) + batch.enqueued_tokens <= limit:
        return []
    message = (
        f"Enqueued token limit reached for {batch.model} in organization org-simulated. Limit: {limit:,} enqueued "
        "tokens. Please try again once some in_progress batches have been completed."
    )
    return [_error("token_limit_exceeded", message, None)]


def _tokens(batch: Batch, body: JsonValue) -> int:
    """Input tokens of a line; a body that cannot be read has none."""
    try:
        ask = read_body(ENDPOINTS[batch.endpoint], body, _RELAXED)
    except (KeyError, TypeError):
        return 0
    return 0 if isinstance(ask, ApiError) else ask.prompt_tokens


_MESSAGES = {
    "invalid_json_line": "This line is not parseable as valid JSON.",
    "token_limit_exceeded": "Enqueued token limit reached for this model. Limit: 900,000 enqueued tokens.",
    "empty_file": "The batch input file is empty.",
    "duplicate_custom_id": "The custom_id is used more than once; each request must have its own.",
}


def _told(story: BatchFailed, total: int) -> list[dict[str, JsonValue]]:
    """The errors of a scenario, on lines that are there."""
    message = story.message or _MESSAGES.get(story.code, "The batch could not be processed.")
    if story.lines == 0:
        return [_error(story.code, message, None, story.param)]
    return [_error(story.code, message, line, story.param) for line in range(1, min(story.lines, max(total, 1)) + 1)]


def _error(code: str, message: str, line: int | None, param: str | None = None) -> dict[str, JsonValue]:
    return {"code": code, "message": message, "param": param, "line": line}
