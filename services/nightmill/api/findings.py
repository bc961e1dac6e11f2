"""What the api gives of single items, of money and of datasets, and of its surroundings. Keys are stable."""

from typing import Any, Literal

from pydantic import Field

from nightmill.api.models import Answer
from nightmill.kernel.domain.lifecycle import BatchState, Lane


class CostRow(Answer):
    """Calls that belong together: by stage, by model or by cause. Only the keys asked for are filled."""

    stage: str | None = None
    pool: str | None = None
    model: str | None = None
    price_version: str | None = None
    cause: str | None = None
    detail: str | None = None
    calls: int
    items: int | None = None
    input_tokens: int | None
    cached_tokens: int | None = Field(description="of input_tokens, those read from a provider's prompt cache")
    written_tokens: int | None = Field(description="of input_tokens, those written into it")
    output_tokens: int | None
    cost_nano_usd: int | None = Field(description="sum of the known costs; null when none is known")
    unknown_calls: int
    reserved_nano_usd: int | None = Field(description="worst case of the calls whose cost is unknown")


class CostAnswer(Answer):
    """A job's cost from the ledger."""

    job_id: str
    by: Literal["stage", "model", "cause"]
    rows: list[CostRow]
    cost_nano_usd: int
    unknown_calls: int
    reserved_nano_usd: int = Field(description="what the unknown calls cost at the most; on top of the known costs")


class ExplainedItem(Answer):
    """How an item was settled for one batch."""

    job_id: str
    batch_id: str
    ordinal: int
    generation: int
    source_id: str
    item_key: str
    outcome: str
    verdict: str
    rule: str
    field: str
    value: str
    failure_class: str
    failure_signal: str
    failure_message: str
    reused: bool
    attempts: int
    retries: int
    repairs: int
    unknown_attempts: int
    cost_nano_usd: int | None
    model: str
    pipeline_digest: str
    settled_at: str


class ExplainedAttempt(Answer):
    """One upstream call."""

    attempt_id: str
    job_id: str
    item_key: str = Field(description="another prompt, schema, model or row has another key")
    ordinal: int
    pool: str
    model: str
    lane: str
    state: str
    is_repair: bool
    late: bool
    failure_class: str
    failure_signal: str
    failure_message: str
    billed: str
    http_status: int | None
    finish_reason: str
    input_tokens: int | None = Field(description="all of the prompt, cached and written into a cache included")
    cached_tokens: int | None
    cache_write_tokens: int | None = Field(default=None, description="for the shorter or only lifetime")
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None
    cost_nano_usd: int | None = Field(description="null when it is not known")
    reserved_nano_usd: int | None = Field(description="worst case, kept while the cost is not known")
    price_version: str = Field(description="of the price book by which the cost was told")
    provider_request_id: str
    verdict: str
    rule: str
    field: str
    value: str
    output: str
    minted_at: str
    started_at: str | None
    ended_at: str | None


class PromptMessage(Answer):
    """One message of the first call, as rendered from the frozen row and pipeline."""

    role: str
    content: str


class LaneNote(Answer):
    """A lane that an item's batch took."""

    lane: Lane
    since: str | None = Field(description="null where the pipeline fixes it")
    reason: str = Field(description="why this lane, which pools it may use, and why not the others")


class Explanation(Answer):
    """Everything that is known of an item: newest settlement first, calls oldest first."""

    id: str
    items: list[ExplainedItem]
    attempts: list[ExplainedAttempt]
    lanes: list[LaneNote] = Field(default=[], description="oldest first, of the newest settlement or call")
    prompt: list[PromptMessage] | None
    prompt_note: str | None = Field(description="why there is no prompt")
    next_command: str


class SqlAnswer(Answer):
    """Rows in the order of `columns`; decimals are strings."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool


class DatasetVersion(Answer):
    """One version that readers can see."""

    version: int
    job_id: str
    batch_id: str
    generation: int
    state: BatchState
    rows: int
    location: str
    published_at_ms: int


class VersionList(Answer):
    """Versions of a dataset, newest first."""

    dataset_id: str
    current: int | None
    versions: list[DatasetVersion]


class PartHealth(Answer):
    """Whether something the api stands on answers."""

    ok: bool
    detail: str


class Health(Answer):
    """The api and what it stands on."""

    ok: bool
    kafka: PartHealth
    ledger: PartHealth
