"""Gates: figures, limits and what a person is told (Q4)."""

from typing import Any

import pytest

from nightmill.kernel.domain.pipeline import Gates, GoldGate
from nightmill.kernel.wire.messages import GoldScore, OutcomeCounts
from nightmill.publisher.gates import agrees, check, objection


def counts(accepted: int, rejected: int = 0, dead: int = 0, review: int = 0, cancelled: int = 0) -> OutcomeCounts:
    return OutcomeCounts(
        accepted=accepted, rejected=rejected, dead_letter=dead, in_review=review, cancelled=cancelled, reused=0
    )


GOLD = GoldGate(field="label", accuracy=0.5)


@pytest.mark.parametrize(
    ("held", "gates", "gold", "partial", "failed"),
    [
        (counts(100), Gates(), None, False, []),
        # 99 / 100 = 0.99
        (counts(99, dead=1), Gates(completion=0.99), None, False, []),
        (counts(98, dead=2), Gates(completion=0.99), None, False, ["completion"]),
        # rejected items are answered items: completion 1.0; rejects 5 / 100 = 0.05, then 6 / 100
        (counts(95, rejected=5), Gates(rejects=0.05), None, False, []),
        (counts(94, rejected=6), Gates(rejects=0.05), None, False, ["rejects"]),
        # rejects are a share of answers: 1 of 10, although 90 more are dead
        (counts(9, rejected=1, dead=90), Gates(completion=0, rejects=0.05), None, False, ["rejects"]),
        (counts(99, review=1), Gates(completion=0.9), None, False, ["review"]),
        (counts(99, review=1), Gates(completion=0.9), None, True, []),
        (counts(100), Gates(gold=GOLD), GoldScore(compared=4, right=2), False, []),
        (counts(100), Gates(gold=GOLD), GoldScore(compared=5, right=2), False, ["gold"]),
        (counts(100), Gates(gold=GOLD), None, False, ["gold"]),
        (counts(0, dead=100), Gates(), None, False, ["completion"]),
    ],
)
def test_gates(held: OutcomeCounts, gates: Gates, gold: GoldScore | None, partial: bool, failed: list[str]) -> None:
    """Q4: each gate by itself, at its limit and beyond."""
    results = check(held, 100, gold, gates, partial=partial)
    assert [result.gate for result in results if not result.passed] == failed
    assert (objection(results) is None) == (not failed)


def test_an_empty_batch_passes() -> None:
    assert objection(check(counts(0), 0, None, Gates(), partial=False)) is None


APPROVE = "or approve it: what was accepted is published without the rest"
PROMPT = "change the prompt or the checks and run it again"


@pytest.mark.parametrize(
    ("held", "gold", "text"),
    [
        (
            counts(98, dead=2),
            None,
            "completion 0.9800 (at least 0.99): 98 of 100 items have a final answer, 2 could not be answered; "
            f"resume runs again what could not be answered, {APPROVE}",
        ),
        (
            counts(99, review=1),
            None,
            f"review: 1 item waits for a person; {PROMPT}, {APPROVE}",
        ),
        (
            counts(90, review=3, dead=7),
            None,
            "completion 0.9000 (at least 0.99): 90 of 100 items have a final answer, 7 could not be answered, "
            f"3 wait for a person; resume runs again what could not be answered, {PROMPT}, {APPROVE}",
        ),
        (
            counts(80, rejected=10, review=10),
            GoldScore(compared=4, right=1),
            "completion 0.9000 (at least 0.99): 90 of 100 items have a final answer, 10 wait for a person; "
            "rejects 0.1111 (at most 0.05): 10 of 90 answers were rejected; "
            "gold accuracy 0.2500 (at least 0.5): 1 of 4 label right; "
            f"{PROMPT}, change the prompt or the model and run it again, {APPROVE}",
        ),
    ],
)
def test_an_objection_names_each_figure_and_each_remedy_once(
    held: OutcomeCounts, gold: GoldScore | None, text: str
) -> None:
    """Q4: resume is named only where it helps: what waits for a person it leaves as it is."""
    gates = Gates(completion=0.99, gold=None if gold is None else GOLD)
    assert objection(check(held, 100, gold, gates, partial=False)) == text


@pytest.mark.parametrize(
    ("value", "gold", "same"),
    [
        ("MIT", " MIT ", True),
        ("mit", "MIT", False),
        (3, "3", True),
        (True, "true", True),
        (None, "MIT", False),
        ("MIT", None, None),
        ("MIT", "  ", None),
    ],
)
def test_agreement_with_gold(value: Any, gold: Any, same: bool | None) -> None:
    assert agrees(value, gold) is same
