"""Routes of what came of jobs: results, versions, explanations, SQL; and whether the api's surroundings answer."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from nightmill.api.board import version_list
from nightmill.api.desk import At
from nightmill.api.errors import ApiError, refusals, unknown_dataset
from nightmill.api.findings import Explanation, Health, PartHealth, SqlAnswer, VersionList
from nightmill.api.requests import SqlRequest
from nightmill.kernel.runtime.log import LogUnavailable

router = APIRouter()

_JSON_LINES = "application/x-ndjson"
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "one row a line", "content": {_JSON_LINES: {"schema": {"type": "string"}}}}
}

Id = Annotated[str | None, Query(min_length=1, max_length=600)]


@router.get("/v1/datasets/{dataset_id}/versions", responses=refusals(404, 422))
def versions(dataset_id: str, desk: At) -> VersionList:
    """Versions of a dataset, newest first."""
    row = desk.mirror.board.datasets.get(dataset_id)
    if row is None:
        raise unknown_dataset(dataset_id)
    return version_list(row, desk.results_dir)


@router.get("/v1/results", response_class=StreamingResponse, responses=_LINES | refusals(404, 409, 410, 422))
def results(
    desk: At, job: Id = None, dataset: Id = None, version: int | None = None, staged: bool = False
) -> StreamingResponse:
    """Accepted rows as JSON lines: of a job, or of a dataset's version (the current one when none is named)."""
    board = desk.mirror.board
    if (job is None) == (dataset is None):
        raise ApiError(422, "invalid", "name either job or dataset", "for example ?job=…")
    if job is not None:
        lines = desk.results.of_job(board, job, staged=staged)
    else:
        lines = desk.results.of_dataset(board, dataset or "", version)
    return StreamingResponse(lines, media_type=_JSON_LINES)


@router.get("/v1/explain", responses=refusals(404, 409, 410, 422))
def explain(desk: At, item: Id = None, source_id: Id = None, tenant: str = "") -> Explanation:
    """Prompt, answers, rule and calls of an item, by its key or its source id."""
    id_ = item or source_id
    if id_ is None or (item and source_id):
        raise ApiError(422, "invalid", "name either item or source_id", "for example ?source_id=…")
    return desk.explainer.explain(desk.mirror.board, id_, tenant)


@router.post("/v1/sql", responses=refusals(400, 403, 415, 422))
def sql(request: SqlRequest, desk: At) -> SqlAnswer:
    """A read-only question to the ledger."""
    return desk.ledger.sql(request)


@router.get("/v1/health")
def health(desk: At) -> Health:
    """Whether Kafka and the ledger answer now. May take some seconds when one of them is away."""
    kafka, ledger = _kafka_health(desk), _ledger_health(desk)
    return Health(ok=kafka.ok and ledger.ok, kafka=kafka, ledger=ledger)


def _kafka_health(desk: At) -> PartHealth:
    try:
        desk.mirror.probe()
    except LogUnavailable as error:
        return PartHealth(ok=False, detail=str(error))
    problem = desk.mirror.problem
    return PartHealth(ok=problem is None, detail=problem or "answers")


def _ledger_health(desk: At) -> PartHealth:
    try:
        desk.ledger.probe()
    except ApiError as error:
        return PartHealth(ok=False, detail=error.message)
    return PartHealth(ok=True, detail="answers")
