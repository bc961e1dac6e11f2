"""What the api gives: the truth of its JSON. Keys are stable; money is integer nano-USD, times epoch ms.

An unknown cost is never 0: `cost_nano_usd` sums the known ones, `unknown_attempts` counts the others, and
`reserved_nano_usd` is what these cost at the most.
"""

from pydantic import BaseModel, ConfigDict, Field

from nightmill.kernel.domain.lifecycle import BatchState, Command, Lane


class Answer(BaseModel):
    """Base of what is given: new keys may come, those that exist stay."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="ignore")


class Problem(Answer):
    """What is wrong, in one of the api's stable codes, and what the caller can do about it."""

    code: str
    message: str
    remedy: str


class ErrorAnswer(Answer):
    """The one form of every answer that is no success."""

    error: Problem


class Uploaded(Answer):
    """Where an upload went."""

    blob: str
    bytes: int


class Submitted(Answer):
    """The job that was submitted, now or by an earlier request with the same Idempotency-Key."""

    job_id: str


class Commanded(Answer):
    """A command that was accepted; the publisher decides, `GET /v1/jobs/{job_id}` shows what came of it."""

    job_id: str
    command: Command
    command_id: str


class Noticed(Answer):
    """A provider's notice that was signed by it."""

    told: bool  #: False: it was told before, or is about nothing that concerns us


class Counts(Answer):
    """Items by outcome; `reused` of all these were settled from an earlier call."""

    accepted: int = 0
    rejected: int = 0
    dead_letter: int = 0
    in_review: int = 0
    cancelled: int = 0
    reused: int = 0

    @property
    def settled(self) -> int:
        return self.accepted + self.rejected + self.dead_letter + self.in_review + self.cancelled


class Spent(Answer):
    """What the job's calls used."""

    attempts: int = 0
    retries: int = 0
    repairs: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_nano_usd: int = Field(default=0, description="sum of the known costs")
    unknown_attempts: int = Field(default=0, description="attempts whose cost is not known")
    reserved_nano_usd: int = Field(default=0, description="what those cost at the most; on top of the known costs")


class Gold(Answer):
    """Agreement with known values."""

    compared: int
    right: int


class Waiting(Answer):
    """What keeps a service, and the job with it, from going on; it goes on by itself when that is gone."""

    service: str
    reason: str = Field(description="what is missing, where, and the remedy")
    since_ms: int
    until_ms: int | None = Field(description="when it is tried again, where that is known")


class JobStatus(Answer):
    """Where a job stands."""

    job_id: str
    dataset_id: str
    tenant: str
    pipeline: str
    state: BatchState
    reason: str | None
    generation: int
    input_name: str
    read_rows: int = Field(description="rows read so far by planning")
    planned: int | None = Field(description="null until the plan is sealed")
    refused_rows: int
    settled: int
    counts: Counts
    spent: Spent
    expected_cost_nano_usd: int | None
    worst_cost_nano_usd: int | None
    budget_nano_usd: int | None
    budget_left_nano_usd: int | None
    gold: Gold | None
    version: int | None = Field(description="newest version that the job has published")
    location: str | None = Field(description="folder of that version's files")
    priority: int
    tags: dict[str, str]
    submitted_at_ms: int
    deadline_at_ms: int | None
    ended_at_ms: int | None
    updated_at_ms: int
    waiting: list[Waiting] = Field(default=[], description="after a job's end only what its records wait for")
    ledger_behind: int | None = Field(
        default=None, description="records that cost, explain and sql do not show yet; null when it is not known"
    )


class JobList(Answer):
    """Jobs, newest first."""

    jobs: list[JobStatus]
    total: int


class RowProblem(Answer):
    """A row that can not be planned."""

    place: str
    reason: str
    source_id: str | None


class PoolEstimate(Answer):
    """The whole plan on one pool in one lane."""

    pool: str
    model: str
    lane: Lane
    expected_cost_nano_usd: int | None = Field(description="null where the model has no price in this lane")
    worst_cost_nano_usd: int | None
    duration_s: float
    limited_by: str


class Refused(Answer):
    """Why a job would not be admitted."""

    rule: str
    message: str


class EstimateAnswer(Answer):
    """Tokens, cost and time before anything is spent."""

    lane: Lane = Field(description="the one that would be chosen now")
    lane_reason: str
    items: int
    refused_rows: int
    problems: list[RowProblem]
    input_tokens: int
    output_tokens: int
    max_output_tokens: int
    expected_cost_nano_usd: int | None
    worst_cost_nano_usd: int | None
    duration_s: float
    done_at_ms: int
    price_version: str
    pools: list[PoolEstimate] = Field(description="those of the chosen lane first, the first of them as expected")
    warnings: list[str] = Field(default=[], description="what the input lacks, and why the deadline may be missed")
    refusal: Refused | None = None
