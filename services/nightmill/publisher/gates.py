"""What must hold before readers see a batch (Q4): completion, rejects, review and agreement with gold values.

Each gate says its figure, its limit and what stands behind them, passed or not: the figures go into the manifest, and
a person who approves a held batch has seen them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from nightmill.kernel.domain.pipeline import Gates, GoldGate
from nightmill.kernel.wire.messages import GoldScore, OutcomeCounts

_ANOTHER_PROMPT = "change the prompt or the checks and run it again"
_APPROVE = "or approve it: what was accepted is published without the rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One gate's word."""

    gate: str
    passed: bool
    figure: float | None  #: None: there was nothing to measure
    limit: float
    text: str  #: the figures in words
    remedies: tuple[str, ...] = ()  #: what helps when it did not pass, beside an approval


def check(
    counts: OutcomeCounts, planned: int, gold: GoldScore | None, gates: Gates, *, partial: bool
) -> tuple[GateResult, ...]:
    """Results of all gates of a batch whose items are all accounted for."""
    results = [_completion(counts, planned, gates.completion), _rejects(counts, gates.rejects)]
    results.append(_review(counts, partial))
    if gates.gold is not None:
        results.append(_gold(gold, gates.gold))
    return tuple(replace(result, remedies=()) if result.passed else result for result in results)


def objection(results: Iterable[GateResult]) -> str | None:
    """Why the batch is held, or None when every gate passed: each figure once, then what helps, each remedy once."""
    failed = {result.gate: result for result in results if not result.passed}
    if not failed:
        return None
    if "completion" in failed:
        failed.pop("review", None)  # what is in review is among what completion misses, and said there
    remedies = dict.fromkeys(remedy for result in failed.values() for remedy in result.remedies)
    return "; ".join([*(result.text for result in failed.values()), ", ".join([*remedies, _APPROVE])])


def agrees(value: Any, gold: Any) -> bool | None:
    """Whether an answer equals its gold value: as text, without outer whitespace, case-sensitive.

    None when the row has no gold value.
    """
    known = _comparable(gold)
    return None if known == "" else _comparable(value) == known


def _completion(counts: OutcomeCounts, planned: int, limit: float) -> GateResult:
    ended = counts.accepted + counts.rejected
    figure = ended / planned if planned else 1.0
    again = counts.dead_letter + counts.cancelled
    missing = [f"{again} could not be answered"] if again else []
    missing += [f"{counts.in_review} {_wait(counts.in_review)} for a person"] if counts.in_review else []
    remedies = ["resume runs again what could not be answered"] if again else []
    remedies += [_ANOTHER_PROMPT] if counts.in_review else []
    has = f"completion {figure:.4f} (at least {limit}): {ended} of {planned} items have a final answer"
    return GateResult(
        gate="completion",
        passed=figure >= limit,
        figure=figure,
        limit=limit,
        text=", ".join([has, *missing]),
        remedies=tuple(remedies),
    )


def _rejects(counts: OutcomeCounts, limit: float) -> GateResult:
    ended = counts.accepted + counts.rejected
    figure = counts.rejected / ended if ended else 0.0
    return GateResult(
        gate="rejects",
        passed=figure <= limit,
        figure=figure,
        limit=limit,
        text=f"rejects {figure:.4f} (at most {limit}): {counts.rejected} of {ended} answers were rejected",
        remedies=(_ANOTHER_PROMPT,),
    )


def _review(counts: OutcomeCounts, partial: bool) -> GateResult:
    return GateResult(
        gate="review",
        passed=partial or counts.in_review == 0,
        figure=float(counts.in_review),
        limit=0.0,
        text=f"review: {_items(counts.in_review)} {_wait(counts.in_review)} for a person",
        remedies=(_ANOTHER_PROMPT,),
    )


def _gold(gold: GoldScore | None, gate: GoldGate) -> GateResult:
    if gold is None or gold.compared == 0:
        return GateResult(
            gate="gold",
            passed=False,
            figure=None,
            limit=gate.accuracy,
            text=f"gold: no accepted row has a value in column {gate.gold_column}",
            remedies=("name the right column in gates.gold and run it again",),
        )
    figure = gold.right / gold.compared
    return GateResult(
        gate="gold",
        passed=figure >= gate.accuracy,
        figure=figure,
        limit=gate.accuracy,
        text=f"gold accuracy {figure:.4f} (at least {gate.accuracy}): "
        f"{gold.right} of {gold.compared} {gate.field} right",
        remedies=("change the prompt or the model and run it again",),
    )


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _comparable(value: Any) -> str:
    """Text to compare; JSON's own words for booleans, nothing for null."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value).strip()
