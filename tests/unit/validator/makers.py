"""Pipelines and answers for the validator's tests."""

from typing import Any

from kit.ledger_events import judged
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.kernel.wire.values import replace

SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "confidence": {"type": "number"},
        "quote": {"type": "string"},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    },
    "required": ["label"],
    "additionalProperties": False,
}


def pipeline(*checks: dict[str, Any], output: dict[str, Any] | None = None) -> Pipeline:
    """A pipeline with these checks over `SCHEMA`, or over another schema."""
    return Pipeline.model_validate(
        {
            "name": "tickets",
            "input": {"id": "id", "fields": ["body"]},
            "prompt": "user:\n{{ body }}",
            "output": SCHEMA if output is None else output,
            "checks": checks,
            "model": {"pools": ["local"], "max_output_tokens": 64},
        }
    )


def answered(blobs: BlobStore, frozen: Pipeline, output: str | None, **fields: Any) -> AttemptAnswered:
    """An answered attempt of a pipeline that lies in the blob store."""
    digest = blobs.put(frozen.canonical())
    return replace(judged("t-1").attempt, pipeline_digest=digest, output=output, **fields)
