"""Joins staged rows with what they refer to: the answer's text, the original row, the versions behind it."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.vectors import decode_vector
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import RowRef
from nightmill.publisher.columns import AcceptedRow
from nightmill.publisher.targets.parts import PartRecord

_SHORT = 12  #: hex digits of a version in a row; the manifest has them whole


class AnswerReader:
    """Reads what staged rows refer to; neighbours of one block are read together."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._blocks = BlockReader(blobs)
        self._pipelines = PipelineReader(blobs)
        self._versions: dict[str, dict[str, str]] = {}

    def joined(self, records: Sequence[PartRecord], pipeline: Pipeline) -> Iterator[AcceptedRow]:
        """Accepted rows of these records. Raises `BlobMissing`, `Unavailable`."""
        wants_original = bool(pipeline.publish.columns)
        read: Callable[[str], Any] = json.loads if pipeline.embedding is None else decode_vector
        for record in records:
            text = record["output"]
            if text is None and record["output_digest"] is not None:
                text = self._blobs.get(record["output_digest"]).decode()
            original = self._blocks.row(RowRef(block=record["block"], row=record["row"])) if wants_original else {}
            record["versions"] = self._versions_of(record["pipeline_digest"])
            answer = None if text is None else read(text)
            yield AcceptedRow(record=record, original=original, answer=answer)

    def _versions_of(self, pipeline_digest: str) -> dict[str, str]:
        versions = self._versions.get(pipeline_digest)
        if versions is None:
            pipeline = self._pipelines.get(pipeline_digest)
            whole = {
                "pipeline": pipeline_digest,
                "prompt": pipeline.prompt_version,
                "output_schema": pipeline.output_schema_version,
                "transform": pipeline.transform_version,
            }
            versions = self._versions[pipeline_digest] = {name: v[:_SHORT] for name, v in whole.items()}
        return versions
