"""Judges answers: attempt-answered in, attempt-judged out. Keeps nothing."""

import logging
from collections.abc import Mapping
from functools import lru_cache, partial

from nightmill.kernel.domain.lifecycle import AttemptState, VerdictKind
from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Decision, Partition, Service
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import AttemptAnswered, AttemptJudged, Verdict
from nightmill.validator.gate import Gate, gate_of
from nightmill.validator.quarantine import unreadable
from nightmill.validator.vectors import VectorGate

log = logging.getLogger(__name__)

_INLINE_BYTES = 8 << 10


class Validator(Service):
    """The gate between model and store, for every pipeline."""

    name = "validator"

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._rows = BlockReader(blobs)
        self._pipelines = PipelineReader(blobs)
        self._gate = lru_cache(maxsize=64)(self._compile)

    def on_attempt_answered(self, message: AttemptAnswered, part: Partition) -> Decision:
        """One judgement per attempt; a failed one is passed on without a verdict."""
        verdict: Verdict | None = None
        accepted: bytes | None = None
        if message.state is AttemptState.ANSWERED:
            verdict, accepted = self._judge(message)
        long = accepted is not None and len(accepted) > _INLINE_BYTES
        judged = AttemptJudged(
            item_key=message.item_key,
            attempt=message,
            verdict=verdict,
            output=accepted.decode() if accepted is not None and not long else None,
            output_digest=self._blobs.put(accepted) if accepted is not None and long else None,
            judged_at_ms=part.now_ms,
        )
        return Decision(send=(judged,))

    def on_quarantined(self, topic: str, headers: Mapping[str, str], reason: str, part: Partition) -> Decision:
        """An answer that cannot be read is judged all the same: its item must not wait for it."""
        answered = unreadable(headers, part.now_ms)
        if answered is None:
            log.error(
                "quarantined answer names no attempt",
                extra={"action": "quarantine_unsettled", "topic": topic, "item": headers.get("item")},
            )
            return NOTHING
        judged = AttemptJudged(item_key=answered.item_key, attempt=answered, verdict=None, judged_at_ms=part.now_ms)
        return Decision(send=(judged,))

    def _judge(self, message: AttemptAnswered) -> tuple[Verdict, bytes | None]:
        """The verdict, and the accepted value as it is kept. Raises `ContractViolation`, `Unavailable`."""
        try:
            text = message.output
            if text is None:
                text = "" if message.output_digest is None else self._blobs.get(message.output_digest).decode()
            gate = self._gate(message.pipeline_digest)
            verdict, value = gate.judge(text, message.finish_reason, partial(self._rows.row, message.row))
        except (BlobMissing, ValueError, LookupError) as error:
            # what the record names is absent, is no text, no pipeline, no schema, or has no such row
            raise ContractViolation(f"{type(error).__name__}: {error}") from error
        return verdict, gate.stored(value) if verdict.kind is VerdictKind.ACCEPTED else None

    def _compile(self, pipeline_digest: str) -> Gate | VectorGate:
        return gate_of(self._pipelines.get(pipeline_digest))
