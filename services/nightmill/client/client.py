"""The client of one installation."""

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from pydantic import ValidationError

from nightmill.api.findings import Explanation, Health, SqlAnswer, VersionList
from nightmill.api.models import EstimateAnswer, JobList
from nightmill.api.requests import JobRequest, UploadedInput
from nightmill.client.connection import Connection
from nightmill.client.errors import BadInput
from nightmill.client.inputs import source_of
from nightmill.client.job import Job
from nightmill.client.pipelines import load_pipeline
from nightmill.client.progress import Progress
from nightmill.kernel.domain.pipeline import Pipeline, duration_s

NEWEST = "last"  #: in place of a job's id
Budget = Decimal | float | int | str


class Client:
    """Talks to the api of the installation in `home`. All methods raise `NightmillError`.

    `home` None means `NIGHTMILL_HOME`, else the user's data folder.
    """

    def __init__(self, home: Path | str | None = None) -> None:
        self._connection = Connection(home)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def home(self) -> Path:
        return self._connection.home

    def run(
        self,
        pipeline: Pipeline | str | Path,
        input: Any,
        *,
        limit: int | None = None,
        deadline: str | float | None = None,
        budget_usd: Budget | None = None,
        skip_bad_rows: bool = False,
        priority: int = 0,
        tenant: str = "default",
        tags: Mapping[str, str] | None = None,
        wait: bool = True,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Job:
        """Submit a job, and by default wait for its end, whatever it is: look at `status().state`.

        `input`: a path (JSONL, CSV, Parquet, a folder of texts), `"distributions"`, a list of dicts, or a pandas or
        pyarrow table. `deadline`: seconds, or `"6h"`, from submission.
        """
        request = self.request(
            pipeline,
            input,
            limit=limit,
            deadline=deadline,
            budget_usd=budget_usd,
            skip_bad_rows=skip_bad_rows,
            priority=priority,
            tenant=tenant,
            tags=tags,
        )
        job = self.submit(request)
        if wait:
            job.wait(on_progress)
        return job

    def request(
        self,
        pipeline: Pipeline | str | Path,
        input: Any,
        *,
        limit: int | None = None,
        deadline: str | float | None = None,
        budget_usd: Budget | None = None,
        skip_bad_rows: bool = False,
        priority: int = 0,
        tenant: str = "default",
        tags: Mapping[str, str] | None = None,
    ) -> JobRequest:
        """Upload the input and return what `submit` and `estimate` take; starts nothing."""
        loaded = pipeline if isinstance(pipeline, Pipeline) else load_pipeline(pipeline)
        source = source_of(input)
        fields = {
            "pipeline": loaded,
            "budget_usd": None if budget_usd is None else str(budget_usd),
            "deadline": _checked_deadline(deadline),
            "priority": priority,
            "tenant": tenant,
            "tags": dict(tags or {}),
        }
        if limit is not None and limit < 1:
            raise BadInput(f"limit = {limit}", "give at least 1")
        uploaded = self._connection.upload(
            "/v1/inputs", {"format": source.format.value, "name": source.name[-500:]}, source.open()
        )
        reference = UploadedInput(
            format=source.format,
            blob=uploaded["blob"],
            bytes=uploaded["bytes"],
            name=source.name[-500:],
            limit=limit,
            skip_bad_rows=skip_bad_rows,
        )
        return _validated({**fields, "input": reference})

    def submit(self, request: JobRequest) -> Job:
        """Start the job; a lost answer is asked for again without starting it twice."""
        answer = self._connection.post("/v1/jobs", request.model_dump(mode="json"), key=uuid4().hex)
        return Job(self._connection, answer["job_id"])

    def estimate(self, request: JobRequest) -> EstimateAnswer:
        """Tokens, cost and time; starts and spends nothing."""
        return EstimateAnswer.model_validate(self._connection.post("/v1/estimate", request.model_dump(mode="json")))

    def job(self, job_id: str) -> Job:
        """A handle on a job that was submitted before; `last` is the newest one."""
        if job_id == NEWEST:
            newest = self.jobs(limit=1).jobs
            if not newest:
                raise BadInput(f"job {NEWEST!r}: there is no job yet", "submit one with nightmill run")
            job_id = newest[0].job_id
        return Job(self._connection, job_id)

    def jobs(self, limit: int = 50) -> JobList:
        """Jobs, newest first."""
        return JobList.model_validate(self._connection.get("/v1/jobs", {"limit": limit}))

    def versions(self, dataset_id: str) -> VersionList:
        """Versions of a dataset (tenant.pipeline), newest first."""
        return VersionList.model_validate(self._connection.get(f"/v1/datasets/{quote(dataset_id, safe='')}/versions"))

    def results(self, dataset_id: str, version: int | None = None) -> Iterator[dict[str, Any]]:
        """Accepted rows of a dataset's version (None: the current one)."""
        params: dict[str, Any] = {"dataset": dataset_id} | ({} if version is None else {"version": version})
        return map(json.loads, self._connection.stream_lines("/v1/results", params))

    def explain(self, id_: str) -> Explanation:
        """Prompt, answers, rule and calls of an item, by item key, source id, or the start of one."""
        return Explanation.model_validate(self._connection.get("/v1/explain", {"source_id": id_}))

    def sql(self, query: str, *, max_rows: int = 1_000, max_seconds: int = 10) -> SqlAnswer:
        """A read-only question to the ledger."""
        body = {"sql": query, "max_rows": max_rows, "max_seconds": max_seconds}
        return SqlAnswer.model_validate(self._connection.post("/v1/sql", body))

    def health(self) -> Health:
        """Whether Kafka and the ledger answer."""
        return Health.model_validate(self._connection.get("/v1/health"))


def _checked_deadline(deadline: str | float | None) -> float | None:
    try:
        seconds = duration_s(deadline)
    except ValueError as error:
        raise BadInput(f"deadline: {error}") from error
    return None if seconds is None else float(seconds)


def _validated(fields: Mapping[str, Any]) -> JobRequest:
    try:
        return JobRequest.model_validate(fields)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, p['loc']))} = {p['input']!r}: {p['msg']}" for p in error.errors()]
        raise BadInput("; ".join(problems)) from error
