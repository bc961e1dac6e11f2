"""Slow work of the publisher: assembling a version, merging parts, sweeping. Runs beside the loop, decides nothing.

Each effect may be done twice and in two processes at once; a target promises that this changes nothing.
"""

from dataclasses import dataclass

from nightmill.kernel.wire.messages import PartRow
from nightmill.publisher.targets.port import Incomplete, Overtaken, Publication, Published, StagedPart, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchVersion:
    """Do a committed intent: assemble the version and switch readers."""

    key: str
    partition: int
    target: Target
    publication: Publication

    def run(self) -> Published | Overtaken | Incomplete:
        return self.target.publish(self.publication)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsMerged:
    """A merged part and the rows it replaces."""

    part: StagedPart
    replaced: tuple[PartRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeParts:
    """Write one part with the rows of many."""

    key: str
    partition: int
    target: Target
    batch_id: str
    rows: tuple[PartRow, ...]

    def run(self) -> PartsMerged:
        merged = self.target.merge(self.batch_id, [row.digest for row in self.rows])
        return PartsMerged(part=merged, replaced=self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How many files of a batch nobody named."""

    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepParts:
    """Remove old files of a batch that nobody names."""

    key: str
    partition: int
    target: Target
    batch_id: str
    named: frozenset[str]
    before_ms: int

    def run(self) -> Swept:
        return Swept(files=self.target.discard(self.batch_id, named=self.named, before_ms=self.before_ms))


Effect = SwitchVersion | MergeParts | SweepParts
Result = Published | Overtaken | Incomplete | PartsMerged | Swept
