"""Reads an admitted block and expands it: rows from the blob store, measures from memory where they are known."""

from collections.abc import Sequence

from nightmill.kernel.domain.bitmap import Bitmap
from nightmill.kernel.runtime.service import ContractViolation
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import BlockReader
from nightmill.kernel.wire.messages import BlockAdmitted, ItemPlanned
from nightmill.planner.expand import expand, selected
from nightmill.planner.measured import Measured, MeasureKey
from nightmill.planner.meter import Measure
from nightmill.planner.transforms import Transform


class Expander:
    """Items of blocks. Its answer depends on its arguments and the blobs alone."""

    def __init__(self, blobs: BlobStore, measured: Measured) -> None:
        self._blocks = BlockReader(blobs, cached_blocks=4)
        self._measured = measured

    def items(self, block: BlockAdmitted, selection: Bitmap | None, transform: Transform) -> Sequence[ItemPlanned]:
        """One item for each selected row. Raises `ContractViolation`, `BlobMissing`, `Unavailable`."""
        wanted = selected(block, selection)
        if not wanted:
            return ()
        rows = self._blocks.rows(block.block.digest)
        fields = {index: rows[index] for index in wanted}
        key = MeasureKey(block=block.block.digest, pipeline=block.pipeline_digest, tenant=block.tenant)
        measures = self._measured.of(key, wanted)
        if measures is None:
            found = transform.meter.measure(list(fields.values()))
            faults = [measure for measure in found if isinstance(measure, str)]
            if faults:
                raise ContractViolation(f"block {block.block_id}: {faults[0]}, though it could when it was planned")
            measures = [measure for measure in found if isinstance(measure, Measure)]
        return expand(block, transform.pipeline, transform.models, fields, measures)
