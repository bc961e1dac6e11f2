"""What must hold before readers see a batch (Q4): completion, rejects, review and agreement with gold values.

Each gate says its figure, its limit and what stands behind them, passed or not: the figures go into the manifest, and
a person who approves a held batch has seen them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.pipeline import Gates, GoldGate
from nightmill.kernel.wire.messages import GoldScore, OutcomeCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One gate's word."""

    gate: str
    passed: bool
    figure: float | None  #: None: there was nothing to measure
    limit: float
    text: str  #: the figures in words, with the remedy when it did not pass


def check(
    counts: OutcomeCounts, planned: int, gold: GoldScore | None, gates: Gates, *, partial: bool
) -> tuple[GateResult, ...]:
    """Results of all gates of a batch whose items are all accounted for."""
    results = [_completion(counts, planned, gates.completion), _rejects(counts, gates.rejects)]
    results.append(_review(counts, partial))
    if gates.gold is not None:
        results.append(_gold(gold, gates.gold))
    return tuple(results)


def objection(results: Iterable[GateResult]) -> str | None:
    """Why the batch is held, or None when every gate passed."""
    failed = [result.text for result in results if not result.passed]
    return "; ".join(failed) if failed else None


def agrees(value: Any, gold: Any) -> bool | None:
    """Whether an answer equals its gold value: as text, without outer whitespace, case-sensitive.

    None when the row has no gold value.
    """
    known = _comparable(gold)
    return None if known == "" else _comparable(value) == known


def _completion(counts: OutcomeCounts, planned: int, limit: float) -> GateResult:
    ended = counts.accepted + counts.rejected
    figure = ended / planned if planned else 1.0
    passed = figure >= limit
    text = f"completion {figure:.4f} (at least {limit}): {ended} of {planned} items have a final answer"
    return GateResult(
        gate="completion",
        passed=passed,
        figure=figure,
        limit=limit,
        text=text if passed else f"{text}; resume runs the others again, approve publishes without them",
    )


def _rejects(counts: OutcomeCounts, limit: float) -> GateResult:
    ended = counts.accepted + counts.rejected
    figure = counts.rejected / ended if ended else 0.0
    passed = figure <= limit
    text = f"rejects {figure:.4f} (at most {limit}): {counts.rejected} of {ended} answers were rejected"
    return GateResult(
        gate="rejects",
        passed=passed,
        figure=figure,
        limit=limit,
        text=text if passed else f"{text}; mend the prompt or the checks, or approve",
    )


def _review(counts: OutcomeCounts, partial: bool) -> GateResult:
    passed = partial or counts.in_review == 0
    text = f"review: {counts.in_review} items wait for a person"
    return GateResult(
        gate="review",
        passed=passed,
        figure=float(counts.in_review),
        limit=0.0,
        text=text if passed else f"{text}; approve publishes without them, so does publish.partial: true",
    )


def _gold(gold: GoldScore | None, gate: GoldGate) -> GateResult:
    if gold is None or gold.compared == 0:
        return GateResult(
            gate="gold",
            passed=False,
            figure=None,
            limit=gate.accuracy,
            text=f"gold: no accepted row has a value in column {gate.gold_column}; name the right column, or approve",
        )
    figure = gold.right / gold.compared
    passed = figure >= gate.accuracy
    text = f"gold accuracy {figure:.4f} (at least {gate.accuracy}): {gold.right} of {gold.compared} {gate.field} right"
    return GateResult(
        gate="gold",
        passed=passed,
        figure=figure,
        limit=gate.accuracy,
        text=text if passed else f"{text}; mend the prompt or the model, or approve",
    )


def _comparable(value: Any) -> str:
    """Text to compare; JSON's own words for booleans, nothing for null."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value).strip()
