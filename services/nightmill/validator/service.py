"""Judges answers: attempt-answered in, attempt-judged out. Keeps nothing."""

from functools import lru_cache, partial

from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.kernel.runtime.service import ContractViolation, Decision, Partition, Service
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import AttemptAnswered, AttemptJudged, Verdict
from nightmill.validator.gate import Gate, compile_gate

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
            try:
                verdict, accepted = self._judge(message)
            except BlobMissing as error:
                raise ContractViolation(str(error)) from error
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

    def _judge(self, message: AttemptAnswered) -> tuple[Verdict, bytes | None]:
        text = message.output
        if text is None:
            text = "" if message.output_digest is None else self._blobs.get(message.output_digest).decode()
        gate = self._gate(message.pipeline_digest)
        verdict, value = gate.judge(text, message.finish_reason, partial(self._rows.row, message.row))
        return verdict, None if value is None else canonical_json(value)

    def _compile(self, pipeline_digest: str) -> Gate:
        return compile_gate(self._pipelines.get(pipeline_digest))
