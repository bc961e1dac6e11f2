"""From a request to a job: everything that can be refused before anything is started is refused here (P4, P6).

The planner asks admission again when it has read the input; what it then refuses ends as a refused job.
"""

import secrets
from collections.abc import Callable

from nightmill.api.errors import ApiError
from nightmill.api.requests import JobRequest
from nightmill.kernel.domain.ids import dataset_id, fields_digest, job_id
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import JobInput, JobSubmitted, Refusal
from nightmill.planner.admission import admit
from nightmill.validator.gate import SchemaError, gate_of

_KEYED_SUFFIX = 12


def check_request(request: JobRequest, config: Config, blobs: BlobStore, now_ms: int) -> None:
    """Raises `ApiError` for what can never run: prompt, schema, checks, pools, prices, a missing upload."""
    check_pipeline(request.pipeline)
    refusal = admit(
        request.pipeline,
        tenant=request.tenant,
        config=config,
        plan=None,
        budget_nano_usd=request.budget_nano_usd,
        deadline_at_ms=deadline_at_ms(request, now_ms),
        now_ms=now_ms,
    )
    if refusal is not None:
        raise refused(refusal)
    if not blobs.exists(request.input.blob):
        message = f"input.blob: no upload {request.input.blob}"
        raise ApiError(422, "unknown_blob", message, "upload the input with POST /v1/inputs first")
    if request.input.bytes == 0:
        raise ApiError(422, "empty_input", f"input: {request.input.name} is empty", "give a file with rows")


def check_pipeline(pipeline: Pipeline) -> None:
    """Raises `ApiError` when schema or checks can not be used."""
    try:
        gate_of(pipeline)
    except SchemaError as error:
        raise ApiError(422, "bad_schema", str(error), "correct the schema under output") from error
    except ValueError as error:
        raise ApiError(422, "bad_check", str(error), "correct the entry under checks in pipeline.yaml") from error


def refused(refusal: Refusal) -> ApiError:
    """An admission's refusal as an answer; its text ends with the remedy."""
    message, _, remedy = refusal.message.rpartition("; ")
    return ApiError(422, refusal.rule, message or refusal.message, remedy if message else "correct it and submit again")


def deadline_at_ms(request: JobRequest, now_ms: int) -> int | None:
    """The deadline of the request, else of its pipeline, counted from now."""
    wait_s = request.deadline or request.pipeline.limits.deadline
    return None if wait_s is None else now_ms + round(wait_s * 1000)


def job_input(request: JobRequest) -> JobInput:
    return JobInput(**request.input.model_dump())


def make_job(
    request: JobRequest,
    pipeline_digest: str,
    *,
    key: str | None,
    now_ms: int,
    random_hex: Callable[[int], str] = secrets.token_hex,
) -> JobSubmitted:
    """The job of a checked request. Equal Idempotency-Keys of one dataset give ids with the same suffix."""
    dataset = dataset_id(request.tenant, request.pipeline.name)
    suffix = random_hex(3) if key is None else fields_digest(dataset, key).hex()[:_KEYED_SUFFIX]
    return JobSubmitted(
        job_id=job_id(dataset, now_ms, suffix),
        dataset_id=dataset,
        tenant=request.tenant,
        pipeline=request.pipeline.name,
        pipeline_digest=pipeline_digest,
        input=job_input(request),
        budget_nano_usd=request.budget_nano_usd,
        deadline_at_ms=deadline_at_ms(request, now_ms),
        priority=request.priority,
        tags=dict(request.tags),
        submitted_at_ms=now_ms,
    )
