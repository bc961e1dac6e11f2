"""The validator's handlers: one judgement per attempt, long answers by reference, quarantine."""

from pathlib import Path
from typing import Any

import pytest

from kit.partition import StagePartition
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import AttemptState, VerdictKind
from nightmill.kernel.domain.pipeline import Pipeline, canonical_json
from nightmill.kernel.runtime.service import NOTHING, ContractViolation
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_block
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import AttemptAnswered, AttemptJudged, Failure, RowRef
from nightmill.kernel.wire.values import replace
from nightmill.validator.service import Validator
from unit.validator.makers import answered, pipeline

EVIDENCE = {"evidence": {"quote": "quote", "in": ["body"]}}
GOOD = '{"quote": "he said",  "label": "a"}'


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path))


def judge(blobs: BlobStore, message: AttemptAnswered) -> AttemptJudged:
    """The one judgement that follows, as it is after a way over the wire."""
    validator = Validator(blobs)
    part = StagePartition(validator)
    part.apply(validator.on_attempt_answered(message, part))
    (sent,) = part.sent
    codec = codecs()[AttemptJudged]
    judged: AttemptJudged = codec.decode(codec.encode(sent))
    assert judged == sent
    assert judged.judged_at_ms == part.now_ms
    return judged


def in_block(blobs: BlobStore, frozen: Pipeline, output: str, *rows: dict[str, Any], row: int = 0) -> AttemptAnswered:
    block = write_block(blobs, rows)
    return answered(blobs, frozen, output, row=RowRef(block=block.digest, row=row))


def test_an_accepted_answer_leaves_as_canonical_json(blobs: BlobStore) -> None:
    """Q1, Q3."""
    message = answered(blobs, pipeline(), GOOD)
    judged = judge(blobs, message)
    assert judged.verdict is not None
    assert judged.verdict.kind is VerdictKind.ACCEPTED
    assert judged.output == '{"label":"a","quote":"he said"}'
    assert judged.output_digest is None
    assert (judged.item_key, judged.attempt) == (message.item_key, message)


def test_a_refused_answer_leaves_without_output(blobs: BlobStore) -> None:
    """Q2: a failing output never slips on."""
    judged = judge(blobs, answered(blobs, pipeline(), '{"label": 1}'))
    assert judged.verdict is not None
    assert (judged.verdict.kind, judged.verdict.rule, judged.verdict.field) == (
        VerdictKind.REPAIRABLE,
        "schema",
        "label",
    )
    assert (judged.output, judged.output_digest) == (None, None)


@pytest.mark.parametrize("state", [s for s in AttemptState if s is not AttemptState.ANSWERED])
def test_an_attempt_without_an_answer_is_passed_on_without_a_verdict(blobs: BlobStore, state: AttemptState) -> None:
    judged = judge(blobs, answered(blobs, pipeline(), GOOD, state=state))
    assert (judged.verdict, judged.output, judged.attempt.state) == (None, None, state)


def test_an_empty_answer_is_repairable(blobs: BlobStore) -> None:
    judged = judge(blobs, answered(blobs, pipeline(), None))
    assert judged.verdict is not None
    assert (judged.verdict.kind, judged.verdict.rule) == (VerdictKind.REPAIRABLE, "json")


@pytest.mark.parametrize(("letters", "inline"), [(8_192, True), (8_193, False)])
def test_an_accepted_value_over_8_kib_goes_to_a_blob(blobs: BlobStore, letters: int, inline: bool) -> None:
    """The canonical form is measured, in bytes: {"label":""} is 12 of them."""
    value = {"label": "é" * ((letters - 12) // 2) + "x" * (letters % 2)}
    raw = canonical_json(value)
    assert len(raw) == letters
    judged = judge(blobs, answered(blobs, pipeline(), raw.decode()))
    if inline:
        assert (judged.output, judged.output_digest) == (raw.decode(), None)
    else:
        assert judged.output is None
        assert judged.output_digest is not None
        assert blobs.get(judged.output_digest) == raw


def test_a_long_answer_is_read_from_its_blob(blobs: BlobStore) -> None:
    text = '{"label": "' + "x" * 20_000 + '"}'
    message = answered(blobs, pipeline(), None, output_digest=blobs.put(text.encode()))
    judged = judge(blobs, message)
    assert judged.output_digest == blobs.put(canonical_json({"label": "x" * 20_000}))


def test_evidence_is_looked_for_in_the_row_that_the_attempt_names(blobs: BlobStore) -> None:
    """Q1."""
    rows: tuple[dict[str, Any], ...] = ({"body": "she wrote"}, {"body": "so he\nsaid"})
    for row, kind in ((0, VerdictKind.REPAIRABLE), (1, VerdictKind.ACCEPTED)):
        judged = judge(blobs, in_block(blobs, pipeline(EVIDENCE), GOOD, *rows, row=row))
        assert judged.verdict is not None
        assert judged.verdict.kind is kind


def test_no_block_is_read_unless_a_rule_needs_the_row(blobs: BlobStore) -> None:
    """The block that this attempt names does not exist, and nobody finds out."""
    judged = judge(blobs, answered(blobs, pipeline({"enum": {"field": "label", "values": ["a"]}}), GOOD))
    assert judged.verdict is not None
    assert judged.verdict.kind is VerdictKind.ACCEPTED


def test_what_the_record_names_and_is_not_there_is_a_breach_of_contract(blobs: BlobStore) -> None:
    no_text = blobs.put(b"\xff\xfe")
    block = write_block(blobs, [{"body": "x"}])
    for message in (
        answered(blobs, pipeline(EVIDENCE), GOOD),
        answered(blobs, pipeline(EVIDENCE), GOOD, row=RowRef(block=block.digest, row=1)),
        answered(blobs, pipeline(), None, output_digest="0" * 64),
        answered(blobs, pipeline(), None, output_digest=no_text),
        answered(blobs, pipeline(output={"type": "nope"}), GOOD),
        answered(blobs, pipeline({"regex": {}}), GOOD),
        replace(answered(blobs, pipeline(), GOOD), pipeline_digest="0" * 64),
        replace(answered(blobs, pipeline(), GOOD), pipeline_digest=blobs.put(b'{"name": "x"}')),
    ):
        validator = Validator(blobs)
        with pytest.raises(ContractViolation):
            validator.on_attempt_answered(message, StagePartition(validator))


def test_a_quarantined_answer_is_judged_as_an_internal_failure_of_unknown_cost(blobs: BlobStore) -> None:
    """E1: nobody waits for an answer that cannot be read; the identity of its attempt comes from the headers."""
    message = answered(blobs, pipeline(), GOOD)
    headers = {name: value.decode() for name, value in codecs()[AttemptAnswered].headers(message)}
    validator = Validator(blobs)
    part = StagePartition(validator)
    part.apply(validator.on_quarantined("attempt-answered", headers, "broken", part))
    (judged,) = part.sent
    attempt = judged.attempt
    assert judged.verdict is None
    assert (attempt.item_key, attempt.ordinal, attempt.minted_at_ms) == (
        message.item_key,
        message.ordinal,
        message.minted_at_ms,
    )
    assert (attempt.batch_id, attempt.job_id, attempt.generation) == (message.batch_id, message.job_id, 1)
    assert (attempt.state, attempt.cost_nano_usd, attempt.usage) == (AttemptState.FAILED, None, None)
    assert isinstance(attempt.failure, Failure)
    assert (attempt.failure.failure_class, attempt.failure.billed) == (FailureClass.INTERNAL, Billed.UNKNOWN)
    assert codecs()[AttemptJudged].encode(judged)


@pytest.mark.parametrize("headers", [{}, {"item": "k"}, {"item": "k", "ordinal": "one"}])
def test_a_quarantined_record_of_nobody_sends_nothing(blobs: BlobStore, headers: dict[str, str]) -> None:
    validator = Validator(blobs)
    assert validator.on_quarantined("attempt-answered", headers, "broken", StagePartition(validator)) == NOTHING
