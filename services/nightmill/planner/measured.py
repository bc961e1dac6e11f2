"""Measures of frozen blocks, kept for a while: expanding a block needs what freezing it found out.

Only to spare rendering and counting every prompt a second time: a block that is not known here, because it was frozen
long ago or by another process, is measured again and gives the same.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from nightmill.planner.meter import Measure

#: a million items or more, in 16 bytes each
_KEPT_BLOCKS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureKey:
    """What measures depend on, but for the settings of this process."""

    block: str  #: digests
    pipeline: str
    tenant: str


class Measured:
    """Measures of the blocks last kept, by row."""

    def __init__(self, kept_blocks: int = _KEPT_BLOCKS) -> None:
        self._kept_blocks = kept_blocks
        self._blocks: OrderedDict[MeasureKey, tuple[array[int], Sequence[str]]] = OrderedDict()

    def keep(self, key: MeasureKey, measures: Sequence[Measure]) -> None:
        """Remember the measures of all rows of a block."""
        tokens = array("q", (measure.input_tokens for measure in measures))
        self._blocks[key] = (tokens, [measure.prefix for measure in measures])
        if len(self._blocks) > self._kept_blocks:
            self._blocks.popitem(last=False)

    def of(self, key: MeasureKey, rows: Sequence[int]) -> list[Measure] | None:
        """Measures of some rows of a block; None when it is not known."""
        found = self._blocks.get(key)
        if found is None:
            return None
        tokens, prefixes = found
        return [Measure(input_tokens=tokens[row], prefix=prefixes[row]) for row in rows]
