"""A pipeline as it is frozen with a job: pydantic models are the truth of its fields.

`pipeline.yaml` names files for its prompt and schema; here both are resolved to text and object. The frozen form is
canonical JSON in the blob store; its digest travels with every message instead of the pipeline itself.
"""

import json
import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nightmill.kernel.domain.ids import NAME, digest
from nightmill.kernel.domain.lifecycle import Lane

_DURATION = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)$")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Sensitivity(StrEnum):
    """How closely documents must be kept; a pool may see its own class and those before it (P6)."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"

    def allows(self, documents: "Sensitivity") -> bool:
        """Whether a pool of this class may see documents of the other."""
        order = list(Sensitivity)
        return order.index(documents) <= order.index(self)


def duration_s(text: Any) -> Any:
    """Seconds of `90s`, `15m`, `6h` or `2d`; a number is taken as seconds. Raises ValueError."""
    if isinstance(text, str):
        match = _DURATION.match(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no duration; write 90s, 15m, 6h or 2d")
        return float(match[1]) * _UNIT_S[match[2]]
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is no duration; write 90s, 15m, 6h or 2d")
    return text


_Seconds = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]
#: seconds; at most some thirty years, so that a time they lead to is still a time
Duration = Annotated[
    _Seconds,
    BeforeValidator(duration_s, json_schema_input_type=_Seconds | Annotated[str, Field(pattern=_DURATION.pattern)]),
]

#: a provider has a day for a batch
PROVIDERS_DAY_S = 86_400.0
BY_DEADLINE: Literal["by deadline"] = "by deadline"
_MAX_DEPTH = 128


def _over(text: Any) -> Any:
    """Seconds of `over 2h`; a number is taken as seconds. Raises ValueError."""
    if isinstance(text, str):
        word, _, rest = text.strip().partition(" ")
        if word != "over":
            raise ValueError(f"{text!r} is no such time; write over 2h")
        return duration_s(rest)
    return duration_s(text)


def _json_only(value: dict[str, Any]) -> dict[str, Any]:
    """What can be frozen as canonical JSON. Raises ValueError."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
        level = [each for each in level if isinstance(each, dict | list | tuple)]
        if not level:
            break
    else:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels; write it flatter, or use $defs")
    try:
        canonical_json(value)
    except (TypeError, ValueError) as error:
        text = "holds what is no JSON (a date, NaN, infinity or half a character); write a text or a finite number"
        raise ValueError(text) from error
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_json_only)]


class Frozen(BaseModel):
    """Base of configuration: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class InputSpec(Frozen):
    """Which columns of a row are its identity and what the prompt may use."""

    id: str = Field(min_length=1)
    fields: tuple[str, ...] = Field(min_length=1)
    version: str | None = None  #: a column that changes whenever the document does


class ModelPolicy(Frozen):
    """Which pools may answer, and how they sample."""

    pools: tuple[str, ...] = Field(min_length=1)
    max_output_tokens: int = Field(ge=0, le=200_000)  #: of an embedding, which has no answer in words, 0
    temperature: float = Field(default=0, ge=0, le=2)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)


class Embedding(Frozen):
    """What makes a pipeline one of embeddings: its prompt is the text, and the answer is a vector (E7)."""

    dimensions: int = Field(gt=0, le=65_536)  #: numbers of every vector
    shorten: bool = False  #: ask the model for so many; else that is how many it gives by itself


class RepairSpec(Frozen):
    """How often an invalid answer may be mended by a further call (Q2)."""

    attempts: int = Field(default=1, ge=0, le=3)


class GoldGate(Frozen):
    """Agreement with known values, checked before publication."""

    field: str
    column: str | None = None  #: input column that holds the known value; the field's own name when absent
    accuracy: float = Field(ge=0, le=1)
    sample: int | None = Field(default=None, gt=0)  #: compare at most so many

    @property
    def gold_column(self) -> str:
        return self.column or self.field


class Gates(Frozen):
    """What must hold before readers see a batch (Q4)."""

    completion: float = Field(default=1.0, ge=0, le=1)  #: least share of planned items ended accepted or rejected
    rejects: float = Field(default=0.05, ge=0, le=1)  #: greatest share of rejected items
    gold: GoldGate | None = None


class Publish(Frozen):
    """Where accepted results go."""

    target: Literal["files"] = "files"
    format: Literal["parquet", "jsonl"] = "parquet"
    mode: Literal["replace"] = "replace"
    partial: bool = False  #: publish although items failed or wait for review; the manifest lists them
    columns: tuple[str, ...] = ()  #: input columns to carry over


class BulkOver(Frozen):
    """Bulk while more than so long is left until the deadline, else realtime; also where there is no deadline."""

    bulk: Annotated[_Seconds, BeforeValidator(_over, json_schema_input_type=_Seconds | str)]


def _lane(text: Any) -> Any:
    """One message for all forms of `lane`. Raises ValueError."""
    if isinstance(text, Lane | BulkOver) or text in (*Lane, BY_DEADLINE):
        return text
    if isinstance(text, dict) and text.keys() == {"bulk"}:
        return BulkOver.model_validate(text)
    raise ValueError(f"{text!r} is no lane; write realtime, bulk, by deadline, or {{bulk: over 2h}}")


#: realtime or bulk whatever the deadline; or what the deadline allows, and then items may move to realtime
LaneRule = Annotated[Lane | Literal["by deadline"] | BulkOver, BeforeValidator(_lane)]


class Limits(Frozen):
    """What a job may spend."""

    budget_usd: float | None = Field(default=None, ge=0, le=10**9)
    deadline: Duration | None = None  #: seconds from submission
    attempts: int = Field(default=4, ge=1, le=20)  #: retry budget of one item


class Pipeline(Frozen):
    """A transform: documents in, validated records out; or vectors, if it has an `embedding`."""

    name: str
    input: InputSpec
    prompt: str = Field(min_length=1)
    output: JsonObject
    embedding: Embedding | None = None
    checks: tuple[JsonObject, ...] = ()
    model: ModelPolicy
    lane: LaneRule = Lane.REALTIME
    repair: RepairSpec = RepairSpec()
    gates: Gates = Gates()
    publish: Publish = Publish()
    limits: Limits = Limits()
    sensitivity: Sensitivity = Sensitivity.INTERNAL

    @model_validator(mode="before")
    @classmethod
    def _leave_out_answers(cls, data: Any) -> Any:
        """An embedding needs none of what describes an answer in words."""
        if not isinstance(data, dict) or data.get("embedding") is None:
            return data
        model = data.get("model")
        filled = {"model": {"max_output_tokens": 0, **model}} if isinstance(model, dict) else {}
        return {"output": {}, "repair": {"attempts": 0}, **data, **filled}

    @model_validator(mode="after")
    def _check_kind(self) -> "Pipeline":
        if self.embedding is None:
            if not self.model.max_output_tokens:
                raise ValueError("model.max_output_tokens: 0 leaves no room for an answer; write at least 1")
            return self
        of_answers = {
            "output": bool(self.output),
            "checks": bool(self.checks),
            "repair.attempts": bool(self.repair.attempts),
            "gates.gold": self.gates.gold is not None,
            "model.max_output_tokens": bool(self.model.max_output_tokens),
            "model.temperature": bool(self.model.temperature),
            "model.seed": self.model.seed is not None,
        }
        given = next((name for name, is_given in of_answers.items() if is_given), None)
        if given is not None:
            raise ValueError(f"{given}: an embedding has no answer in words; take it out, or take embedding out")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> "Pipeline":
        if not NAME.match(self.name):
            raise ValueError(f"name {self.name!r}: use 1-63 of a-z, 0-9 and '-', not at the ends")
        for check in self.checks:
            if len(check) != 1:
                raise ValueError(f"checks: each entry has one rule, not {sorted(check)}")
        return self

    def canonical(self) -> bytes:
        """The frozen form: JSON with sorted keys; its sha256 is the pipeline digest."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def bulk_over_s(self) -> float | None:
        """Bulk while more is left until the deadline than this; None: the lane is fixed."""
        if isinstance(self.lane, BulkOver):
            return self.lane.bulk
        return PROVIDERS_DAY_S if self.lane == BY_DEADLINE else None

    @property
    def prompt_version(self) -> str:
        return digest(self.prompt.encode())

    @property
    def output_schema_version(self) -> str:
        shape = self.output if self.embedding is None else {"embedding": self.embedding.model_dump(mode="json")}
        return digest(canonical_json(shape))

    @property
    def transform_version(self) -> str:
        """Digest of the fields that change answers: checks, repair and input fields; not budget, gates or target."""
        parts = self.model_dump(mode="json", include={"checks", "repair", "input"})
        return digest(canonical_json(parts))

    def model_policy_version(self, models: tuple[str, ...]) -> str:
        """Digest of the models of the pools, in order, and the sampling parameters."""
        sampling = self.model.model_dump(mode="json", exclude={"pools"})
        return digest(canonical_json({"models": list(models), **sampling}))


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted keys; NaN and infinity are refused (ValueError)."""
    return _CANONICAL.encode(value).encode()
