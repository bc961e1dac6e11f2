"""A scenario: what the simulated provider knows, how fast it is, what it says, and how it fails.

This file, `rules`, `call_faults` and `stories` are the truth of the scenario's fields; unknown fields are refused.
Rules are tried from the top, and the first one that selects a call wins. All conditions that a rule states must hold
together; a rule without any selects every call that makes a model work.

    seed: 7
    latency: {fixed_ms: 200, jitter_ms: 50}
    answers:
      - {match: "MIT License", content: {licence: MIT}}
      - {rate: 0.02, form: fenced}
    faults:
      - {kind: rate_limited, rate: 0.05, retry_after_s: 2}
      - {kind: reset_after_billing, on: [batch_create], occurrences: [1]}
      - {kind: row, form: missing, rate: 0.001}
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from nightmill.provider_simulator.call_faults import CallFault, ResetEarly
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.rules import AnswerRule, Model
from nightmill.provider_simulator.stories import BatchStory, FileStory, LineStory, WebhookFault

FAULT_HEADER = "x-sim-fault"  # of one request: a fault in JSON, in place of the scenario's


class ScenarioError(ValueError):
    """A scenario that cannot be used; the text names the place, the field, the value and what is allowed."""


class Dialect(StrEnum):
    """Whose manners the OpenAI side has. Anthropic's own routes are served beside it, except by named servers."""

    OPENAI = "openai"  # as strict as the real one; a call without a key is refused
    SELF_HOSTED = "self_hosted"  # every route, no key needed, unknown fields ignored, OpenAI's shapes
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llama_cpp"
    OLLAMA = "ollama"
    TGI = "tgi"
    AIBRIX = "aibrix"  # with files and batches
    LLM_D = "llm_d"  # with files and batches


Story = BatchStory | FileStory | WebhookFault
Fault = Annotated[CallFault | LineStory | Story, Field(discriminator="kind")]


class Latency(Model):
    """Time before the first byte of an answer; failures that need no model come at once."""

    fixed_ms: int = Field(default=0, ge=0)
    jitter_ms: int = Field(default=0, ge=0)  # up to this much more, by hash of seed, body and occurrence
    tail_ms: int = Field(default=0, ge=0)  # mean of an exponential tail on top, by hash
    per_token_us: int = Field(default=0, ge=0)  # times the completion tokens
    warm_up_ms: int = Field(default=0, ge=0)  # since the scenario was set: 503 "Loading model"


class Capacity(Model):
    """How many calls a self-hosted server takes: more wait in the queue, and beyond it are refused with 503."""

    slots: int | None = Field(default=None, ge=1)
    queue: int = Field(default=0, ge=0)


class RateLimit(Model):
    """The hidden buckets: refilled evenly, `burst` deep. Without a burst a bucket holds a tenth of a minute."""

    requests_per_min: int | None = Field(default=None, ge=1)
    tokens_per_min: int | None = Field(default=None, ge=1)
    input_tokens_per_min: int | None = Field(default=None, ge=1)  # Anthropic's, cache reads excluded
    output_tokens_per_min: int | None = Field(default=None, ge=1)  # Anthropic's, as produced
    burst_requests: int | None = Field(default=None, ge=1)
    burst_tokens: int | None = Field(default=None, ge=1)
    burst_input_tokens: int | None = Field(default=None, ge=1)
    burst_output_tokens: int | None = Field(default=None, ge=1)


class Batches(Model):
    """How batches behave. Times are on the virtual clock; with all of them 0 a batch takes as long as the work."""

    missing_status: Literal[404, 405, 501] | None = None  # the server has no batches and answers this
    validate_ms: int = Field(default=0, ge=0)
    run_ms: int = Field(default=0, ge=0)  # at least this long in progress
    finalize_ms: int = Field(default=0, ge=0)
    cancel_ms: int = Field(default=0, ge=0)
    lines_per_s: float | None = Field(default=None, gt=0)
    shuffle: bool = True  # rows come in another order than the lines
    expires: bool = True  # False: as Azure, which keeps going after the window
    window_s: int = Field(default=86_400, ge=1)
    cancelled_rows: bool = False  # True: lines that did not run have a `batch_cancelled` row
    max_requests: int = Field(default=50_000, ge=1)
    max_file_bytes: int = Field(default=209_715_200, ge=1)
    max_enqueued_tokens: int | None = Field(default=None, ge=1)  # per model, over all unfinished batches
    max_enqueued_requests: int | None = Field(default=None, ge=1)  # Anthropic's, over all unfinished batches
    max_creations_per_hour: int | None = Field(default=None, ge=1)
    results_url: Literal["absolute", "relative"] = "absolute"  # Anthropic's


class WebhookTarget(Model):
    """A receiver of webhooks that exists from the start."""

    url: str
    secret: str = Field(pattern=r"^whsec_[A-Za-z0-9+/=]+$")
    event_types: tuple[str, ...] = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")


class ModelPrice(Model):
    """USD per million tokens, as decimal texts."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)  # None: as input
    cache_write: Decimal | None = Field(default=None, ge=0)
    cache_write_1h: Decimal | None = Field(default=None, ge=0)


class Scenario(Model):
    """Everything that decides the simulator's behaviour, besides the requests."""

    seed: int = 0
    dialect: Dialect = Dialect.SELF_HOSTED
    strict: bool = True  # False: bodies are read without being checked, for pure speed
    models: tuple[str, ...] = ()  # empty: every model name is served
    context_tokens: int | None = Field(default=None, ge=1)
    prompt_cache: bool = True  # OpenAI's (dialect openai), by itself or at breakpoints; Anthropic's, as marked
    prompt_cache_hits: float = Field(default=1, ge=0, le=1)  # share of the calls that find what is there
    truncate_tokens: int | None = Field(default=None, ge=1)  # longer prompts are cut silently, as Ollama does
    embedding_dimensions: int = Field(default=1536, ge=1)
    latency: Latency = Latency()
    capacity: Capacity = Capacity()
    rate_limit: RateLimit = RateLimit()
    batches: Batches = Batches()
    webhooks: tuple[WebhookTarget, ...] = ()
    prices: dict[str, ModelPrice] = Field(default_factory=dict)  # by model; `*` is for every other one
    answers: tuple[AnswerRule, ...] = ()
    faults: tuple[Fault, ...] = ()

    @field_validator("models", mode="after")
    @classmethod
    def _names(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        if "" in models:
            raise ValueError("a model needs a name")
        return models

    @cached_property
    def ruled(self) -> bool:
        """Whether any rule may select a call."""
        return bool(self.faults or self.answers)

    @cached_property
    def instant(self) -> bool:
        """Whether answers take no time."""
        return self.latency == Latency()

    @cached_property
    def faults_by_operation(self) -> dict[Operation, tuple[tuple[int, CallFault | LineStory], ...]]:
        """The rules that may befall an operation, each with its position, which is part of its draw."""
        calls = tuple(
            (n, rule)
            for n, rule in enumerate(self.faults)
            if isinstance(rule, CallFault) and not isinstance(rule, ResetEarly)
        )
        lines = tuple((n, rule) for n, rule in enumerate(self.faults) if isinstance(rule, CallFault | LineStory))
        return {
            op: tuple(pair for pair in (lines if op is Operation.LINE else calls) if op in pair[1].operations)
            for op in Operation
        }

    @cached_property
    def early_resets(self) -> tuple[tuple[int, ResetEarly], ...]:
        """The rules that are asked before a body is read."""
        return tuple((n, rule) for n, rule in enumerate(self.faults) if isinstance(rule, ResetEarly))

    @cached_property
    def stories_by_operation(self) -> dict[Operation, tuple[tuple[int, Story], ...]]:
        """The rules that change what becomes of a batch, a file or a webhook."""
        stories = tuple((n, rule) for n, rule in enumerate(self.faults) if isinstance(rule, Story))
        return {op: tuple(pair for pair in stories if op in pair[1].operations) for op in Operation}

    @cached_property
    def answers_by_operation(self) -> dict[Operation, tuple[tuple[int, AnswerRule], ...]]:
        """The content rules of an operation, each with its position."""
        numbered = tuple(enumerate(self.answers))
        return {op: tuple(pair for pair in numbered if op in pair[1].operations) for op in Operation}


_FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)


def parse_scenario(data: object, *, where: str) -> Scenario:
    """The scenario in `data`; `where` (a file name, a request) begins every line of the `ScenarioError`."""
    try:
        return Scenario.model_validate({} if data is None else data)
    except ValidationError as exc:
        raise ScenarioError(_lines(exc, where)) from exc


@lru_cache(maxsize=256)
def parse_fault(text: str) -> Fault:
    """The fault of a header: JSON as in a scenario file. Raises `ScenarioError`."""
    try:
        return _FAULT.validate_json(text)
    except ValidationError as exc:
        raise ScenarioError(_lines(exc, FAULT_HEADER)) from exc


def _lines(exc: ValidationError, where: str) -> str:
    return "\n".join(f"{where}: {_field(e['loc'])}: {e['input']!r:.200}: {e['msg']}" for e in exc.errors())


def _field(loc: Sequence[int | str]) -> str:
    """`faults[0].rate`; the tag that pydantic adds after the index of a fault is left out."""
    if len(loc) > 2 and loc[0] == "faults":
        loc = [*loc[:2], *loc[3:]]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".") or "(top)"
