"""What a target is: the place where readers find a dataset's versions.

Two patterns and no more. *Staging*: `stage` and `merge` write content-addressed parts, durably, before the transaction
that names them; parts that nobody names are harmless and are swept by `discard`. *Intent*: `publish` is called after
the intent to switch is committed, may be called again for the same intent after a crash, and then does it once.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.wire.messages import AccountingRow, GoldScore, ItemSettled, OutcomeCounts, Totals
from nightmill.publisher.gates import GateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A part as it lies in the target."""

    digest: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One intended version: what it holds and what its manifest says."""

    dataset_id: str
    version: int  #: the switch number
    job_id: str
    batch_id: str
    generation: int
    state: BatchState
    pipeline: Pipeline
    pipeline_digest: str
    input_manifest: str | None  #: blob: blocks and the rows refused at planning
    planned: int
    refused_rows: int
    counts: OutcomeCounts
    totals: Totals
    gold: GoldScore | None
    gates: tuple[GateResult, ...]
    approved: bool
    accounting: tuple[AccountingRow, ...]  #: of this generation, by chunk
    parts: tuple[str, ...]  #: digests of the batch's staged parts
    published_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Readers see the version (since now, or since an earlier try)."""

    location: str  #: the manifest, relative to the target's root
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """Somebody else switched the dataset with this number or a higher one; decide again above `highest`."""

    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """The version cannot be assembled from what was staged; readers were not switched."""

    reason: str


class Target(Protocol):
    """One dataset's place. Calls may block on disk or network; all raise `Unavailable` when the place is away."""

    def location(self, version: int, batch_id: str, generation: int) -> str:
        """Where the manifest of a version will lie, relative to the root."""

    def stage(self, batch_id: str, settled: Sequence[ItemSettled]) -> StagedPart:
        """Write settled items as a part. Durable on return. Equal items give an equal digest."""

    def merge(self, batch_id: str, names: Sequence[str]) -> StagedPart:
        """Write one part with all rows of the parts of these digests, which stay. Durable on return."""

    def publish(self, publication: Publication) -> Published | Overtaken | Incomplete:
        """Assemble the version and switch readers to it, atomically: they see the old or the new one.

        Of every ordinal the newest row of its accounted outcome is taken: accepted ones are data, the others are
        listed as failures. Repeating a publication that was switched already is a success and changes nothing.
        """

    def read(self, version: int | None = None) -> Iterator[dict[str, Any]]:
        """Accepted rows of a version (None: of the current one), by ordinal. Nothing before the first version."""

    def discard(self, batch_id: str, *, named: Collection[str], before_ms: int) -> int:
        """Remove the batch's parts that are not `named` and older than `before_ms`; returns how many."""
