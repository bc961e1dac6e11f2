"""Routes of jobs: inputs, submission, estimate, status, commands."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Literal
from uuid import uuid4

from anyio import from_thread, to_thread
from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from nightmill.api.board import job_status, job_statuses
from nightmill.api.desk import At, Desk
from nightmill.api.errors import ApiError, refusals, unknown_job
from nightmill.api.findings import CostAnswer, CostRow
from nightmill.api.ledger import in_nano_usd
from nightmill.api.mirror import KeyConflict
from nightmill.api.models import Commanded, EstimateAnswer, JobList, JobStatus, Submitted, Uploaded
from nightmill.api.pool_access import check_access
from nightmill.api.requests import CommandRequest, JobRequest
from nightmill.api.submission import check_request, make_job
from nightmill.api.waiting import waiting_for
from nightmill.kernel.domain.ids import batch_id, fields_digest
from nightmill.kernel.domain.lifecycle import ENDED_BATCH, BatchState, Command, InputFormat
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.runtime.stalls import FRESH_MS
from nightmill.kernel.store.blobs import BlobMissing
from nightmill.kernel.wire.messages import JobCommanded

log = logging.getLogger(__name__)

INPUTS_PATH = "/v1/inputs"
router = APIRouter()

_ANY_BYTES = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
    }
}

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Name = Annotated[str, Query(min_length=1, max_length=500)]

#: states in which a command would do nothing, and what to do instead
_VAIN: dict[Command, frozenset[BatchState]] = {
    Command.CANCEL: ENDED_BATCH,
    Command.RESUME: frozenset(BatchState) - {BatchState.HELD, BatchState.CANCELLED, BatchState.PARTIAL_FAILED},
    Command.APPROVE: frozenset(BatchState) - {BatchState.HELD},
}
_INSTEAD = {
    Command.CANCEL: "nightmill status shows how it ended",
    Command.RESUME: "only a job that is held, cancelled or partly published can be resumed",
    Command.APPROVE: "only a held job can be approved",
}


@router.post(INPUTS_PATH, status_code=201, responses=refusals(422), openapi_extra=_ANY_BYTES)
@router.put(INPUTS_PATH, status_code=201, responses=refusals(422), openapi_extra=_ANY_BYTES)
async def upload(request: Request, desk: At, format: InputFormat, name: Name) -> Uploaded:
    """Store the body as it is; memory is bounded, its length is not."""
    stream = request.stream()

    def store() -> tuple[str, int]:
        return desk.blobs.put_stream(_chunks(stream))

    blob, size = await to_thread.run_sync(store)
    if size == 0:
        raise ApiError(422, "empty_input", f"{name} is empty", "give a file with rows")
    log.info("input uploaded", extra={"action": "input_uploaded", "blob": blob, "bytes": size, "format": format.value})
    return Uploaded(blob=blob, bytes=size)


@router.post("/v1/jobs", status_code=201, responses=refusals(400, 409, 415, 422))
def submit(request: JobRequest, desk: At, key: Key = None) -> Submitted:
    """Start a job. A repeat with the same Idempotency-Key and content starts nothing and returns the first one's id."""
    now_ms = desk.now_ms()
    _check(request, desk, now_ms)
    job = make_job(request, desk.blobs.put(request.pipeline.canonical()), key=key, now_ms=now_ms)
    try:
        stored = desk.mirror.submit(job, repeatable=key is not None)
    except KeyConflict as error:
        message = f"the Idempotency-Key belongs to job {error.job_id}, which asks for something else"
        raise ApiError(409, "key_conflict", message, "use a new key for a new job") from error
    log.info("job submitted", extra={"action": "job_submitted", "job_id": stored.job_id})
    return Submitted(job_id=stored.job_id)


@router.post("/v1/estimate", responses=refusals(400, 410, 415, 422))
def estimate(request: JobRequest, desk: At) -> EstimateAnswer:
    """Tokens, cost and time of a job; starts and spends nothing."""
    now_ms = desk.now_ms()
    _check(request, desk, now_ms)
    return desk.estimator.estimate(request, desk.blobs.put(request.pipeline.canonical()), now_ms)


@router.get("/v1/jobs", responses=refusals(422))
def jobs(desk: At, limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> JobList:
    """Jobs, newest first."""
    board = desk.mirror.board
    listed = job_statuses(board, desk.results_dir, limit=limit)
    return JobList(jobs=[_with_waiting(desk, each) for each in listed], total=len(board.job_ids()))


@router.get("/v1/jobs/{job_id}", responses=refusals(404, 422))
def status(job_id: str, desk: At) -> JobStatus:
    """Where a job stands, from views alone."""
    return _status(desk, job_id)


@router.get("/v1/jobs/{job_id}/cost", responses=refusals(404, 422))
def cost(job_id: str, desk: At, by: Literal["stage", "model", "cause"] = "stage") -> CostAnswer:
    """What a job's calls cost, from the ledger."""
    _status(desk, job_id)
    rows = [CostRow.model_validate(in_nano_usd(r)) for r in desk.ledger.named(f"job_cost_by_{by}", {"job_id": job_id})]
    return CostAnswer(
        job_id=job_id,
        by=by,
        rows=rows,
        cost_nano_usd=sum(row.cost_nano_usd or 0 for row in rows),
        unknown_calls=sum(row.unknown_calls for row in rows),
        reserved_nano_usd=sum(row.reserved_nano_usd or 0 for row in rows),
    )


def _asking(command: Command) -> Callable[..., Commanded]:
    """The route of a command."""

    def ask(job_id: str, desk: At, request: CommandRequest | None = None, key: Key = None) -> Commanded:
        return _command(command, job_id, desk, request or CommandRequest(), key)

    ask.__doc__ = f"Ask the publisher to {command} a job. A repeat with the same Idempotency-Key acts once."
    return ask


# a path each: another word in their place is an unknown path, and what else such a path is asked for is not allowed
for _each in Command:
    router.add_api_route(
        f"/v1/jobs/{{job_id}}/{_each}",
        _asking(_each),
        methods=["POST"],
        name=_each.value,
        status_code=202,
        responses=refusals(400, 404, 409, 415, 422),
    )


def _command(command: Command, job_id: str, desk: Desk, asked: CommandRequest, key: str | None) -> Commanded:
    known = _status(desk, job_id)
    if known.state in _VAIN[command]:
        raise ApiError(409, "wrong_state", f"job {job_id} is {known.state.value}", _INSTEAD[command])
    command_id = uuid4().hex if key is None else fields_digest(job_id, command, key).hex()[:32]
    order = JobCommanded(
        command_id=command_id,
        job_id=job_id,
        batch_id=batch_id(job_id),
        dataset_id=known.dataset_id,
        command=command,
        actor=asked.actor,
        reason=asked.reason,
        commanded_at_ms=desk.now_ms(),
    )
    desk.mirror.command(order)
    extra = {"action": "job_commanded", "job_id": job_id, "command": command.value, "command_id": command_id}
    log.info("job commanded", extra=extra)
    return Commanded(job_id=job_id, command=command, command_id=command_id)


def _check(request: JobRequest, desk: Desk, now_ms: int) -> None:
    check_request(request, desk.config, desk.blobs, now_ms)
    check_access(request, desk.config, desk.environment, desk.local_servers)


def _status(desk: At, job_id: str) -> JobStatus:
    found = job_status(desk.mirror.board, job_id, desk.results_dir)
    if found is None:
        raise unknown_job(job_id)
    return _with_waiting(desk, found)


def _with_waiting(desk: Desk, status: JobStatus) -> JobStatus:
    board = desk.mirror.board
    if not any(stall.reason for stall in board.stalls.values()):
        return status
    digest = board.pipeline_digest(status.job_id)
    try:
        pools = None if digest is None else desk.pipelines.get(digest).model.pools
    except (BlobMissing, Unavailable, ValidationError):
        pools = None  # better a wait too many than none
    waiting = waiting_for(board.stalls.values(), pools, desk.now_ms(), fresh_ms=FRESH_MS)
    if status.state in ENDED_BATCH:
        waiting = [each for each in waiting if each.service == "ledger"]
    return status.model_copy(update={"waiting": waiting})


def _chunks(stream: AsyncIterator[bytes]) -> Iterator[bytes]:
    """The body's pieces, for a thread that stores them."""

    async def following() -> bytes | None:
        return await anext(stream, None)

    try:
        while (chunk := from_thread.run(following)) is not None:
            yield chunk
    except ClientDisconnect as error:
        raise ConnectionAbortedError("the upload was broken off") from error
