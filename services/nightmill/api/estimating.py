"""Tokens, cost and time of a job that is not started: the planner's own reading and arithmetic (P4)."""

from dataclasses import asdict

from nightmill.api.errors import ApiError
from nightmill.api.models import EstimateAnswer, PoolEstimate, Refused, RowProblem
from nightmill.api.requests import JobRequest
from nightmill.api.submission import deadline_at_ms, job_input
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.planner.admission import admit, doubts
from nightmill.planner.estimate import Estimate, estimate
from nightmill.planner.rows import RowProblem as PlannerProblem
from nightmill.planner.rows import Unreadable, shown
from nightmill.planner.survey import Survey, survey
from nightmill.planner.transforms import Transforms

_LISTED = 20


class Estimator:
    """Estimates of checked requests. Reads the whole input each time; safe from several threads."""

    def __init__(self, blobs: BlobStore, config: Config) -> None:
        from nightmill.planner.tokens import count_tokens

        self._blobs, self._config = blobs, config
        self._transforms = Transforms(blobs, config, count_tokens)

    def estimate(self, request: JobRequest, pipeline_digest: str, now_ms: int) -> EstimateAnswer:
        """What the job would take, and whether it would be refused. Raises `ApiError` for an input without sense."""
        transform = self._transforms.get(pipeline_digest, request.tenant)
        try:
            surveyed = survey(self._blobs, job_input(request), transform)
        except Unreadable as error:
            message, _, remedy = f"{request.input.name}, {error}".rpartition("; ")
            raise ApiError(422, "unreadable_input", message or str(error), remedy) from error
        deadline = deadline_at_ms(request, now_ms)
        plan = estimate(
            request.pipeline,
            surveyed.totals,
            tenant=request.tenant,
            config=self._config,
            now_ms=now_ms,
            deadline_at_ms=deadline,
        )
        refusal = self._refusal(request, plan, surveyed, now_ms)
        late = doubts(request.pipeline, plan, deadline_at_ms=deadline, now_ms=now_ms) if refusal is None else ()
        return _answer(plan, surveyed.problems, (*_lacks(surveyed), *late), refusal)

    def _refusal(self, request: JobRequest, plan: Estimate, surveyed: Survey, now_ms: int) -> Refused | None:
        totals = surveyed.totals
        if totals.refused_rows and not request.input.skip_bad_rows:
            first = surveyed.problems[0]
            rows = "1 row" if totals.refused_rows == 1 else f"{totals.refused_rows:,} rows"
            text = f"{request.input.name}, {first.place}: {first.reason}; {rows} can not be used"
            return Refused(rule="bad_rows", message=f"{text}; correct them, or leave them out with --skip-bad-rows")
        budget = request.budget_nano_usd
        if budget is None and request.pipeline.limits.budget_usd is not None:
            budget = round(request.pipeline.limits.budget_usd * 10**9)
        refusal = admit(
            request.pipeline,
            tenant=request.tenant,
            config=self._config,
            plan=plan,
            budget_nano_usd=budget,
            deadline_at_ms=deadline_at_ms(request, now_ms),
            now_ms=now_ms,
        )
        return None if refusal is None else Refused.model_validate(refusal)


def _lacks(surveyed: Survey) -> tuple[str, ...]:
    return tuple(f"no row has the column {shown(name)} that pipeline.yaml names" for name in surveyed.absent)


def _answer(
    plan: Estimate, problems: tuple[PlannerProblem, ...], warnings: tuple[str, ...], refusal: Refused | None
) -> EstimateAnswer:
    listed = [RowProblem.model_validate(problem) for problem in problems[:_LISTED]]
    fields = {name: value for name, value in asdict(plan).items() if name != "pools"}
    pools = [PoolEstimate(**asdict(pool)) for pool in plan.pools]
    return EstimateAnswer(**fields, pools=pools, problems=listed, warnings=list(warnings), refusal=refusal)
