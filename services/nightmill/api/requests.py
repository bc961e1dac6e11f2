"""What the api takes: unknown fields are refused, so a misspelt one is never silently without effect."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nightmill.kernel.domain.lifecycle import InputFormat
from nightmill.kernel.domain.pipeline import Duration, Pipeline

BLOB_PATTERN = r"^[0-9a-f]{64}$"
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
Tag = Annotated[str, StringConstraints(max_length=200)]


class Request(BaseModel):
    """Base of what is taken: unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class UploadedInput(Request):
    """An input that was uploaded before."""

    format: InputFormat
    blob: str = Field(pattern=BLOB_PATTERN)
    bytes: int = Field(ge=0, le=2**53)
    name: str = Field(min_length=1, max_length=500)
    limit: int | None = Field(default=None, gt=0, le=2**53, description="only the first so many rows")
    skip_bad_rows: bool = Field(default=False, description="record broken rows as rejected instead of refusing the job")


class JobRequest(Request):
    """A job to run or to estimate."""

    pipeline: Pipeline
    input: UploadedInput
    budget_usd: Decimal | None = Field(default=None, ge=0, le=10**9, decimal_places=9)
    deadline: Duration | None = Field(default=None, description="from submission: seconds, or 90s, 15m, 6h, 2d")
    priority: int = Field(default=0, ge=-1000, le=1000)
    tenant: Name = "default"
    tags: dict[Tag, Tag] = Field(default_factory=dict, max_length=50)

    @property
    def budget_nano_usd(self) -> int | None:
        return None if self.budget_usd is None else int(self.budget_usd * 10**9)


class CommandRequest(Request):
    """Why a person commands something."""

    reason: str | None = Field(default=None, max_length=500)
    actor: str = Field(default="api", min_length=1, max_length=100)


class SqlRequest(Request):
    """A read-only question to the ledger."""

    sql: str = Field(min_length=1)
    max_rows: int = Field(default=1_000, ge=1, le=100_000)
    max_seconds: int = Field(default=10, ge=1, le=60)
