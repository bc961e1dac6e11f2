"""Compares accepted answers with the known values in their own rows."""

import json
import logging

from nightmill.kernel.domain.pipeline import GoldGate
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader
from nightmill.kernel.wire.messages import ItemSettled
from nightmill.publisher.gates import agrees

log = logging.getLogger(__name__)


class Grader:
    """Reads the rows behind settled items."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._blocks = BlockReader(blobs)

    def grade(self, item: ItemSettled, gate: GoldGate) -> bool | None:
        """Whether an accepted answer agrees with its row's gold value; None when the row has none.

        A row that is lost counts as one without gold: with nothing to compare, the gate holds the batch.
        Raises `Unavailable`.
        """
        try:
            gold = self._blocks.row(item.row).get(gate.gold_column)
            if gold is None:
                return None
            text = item.output
            if text is None and item.output_digest is not None:
                text = self._blobs.get(item.output_digest).decode()
        except BlobMissing as error:
            log.error(
                "gold value lost",
                extra={"action": "gold_lost", "batch_id": item.batch_id, "item": item.item_key, "reason": str(error)},
            )
            return None
        answer = None if text is None else json.loads(text)
        return agrees(answer.get(gate.field) if isinstance(answer, dict) else answer, gold)
