"""Does a rule select this call? A pure function of seed, body, occurrence, arrival number and time since the start."""

from __future__ import annotations

from email.utils import formatdate
from typing import NamedTuple

from nightmill.provider_simulator.call_faults import CallFault, RetryAfterForm
from nightmill.provider_simulator.draw import fraction
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.rules import AnswerRule, Selector
from nightmill.provider_simulator.scenario import Scenario, Story
from nightmill.provider_simulator.stories import LineStory


class Occasion(NamedTuple):
    """One arrival of one body."""

    digest: bytes
    occurrence: int  # 1 = this body was not seen before
    arrival: int  # 1 = the first call since the scenario was set
    elapsed_ms: int  # since the scenario was set
    prompt: str
    operation: Operation = Operation.CHAT
    model: str = ""  # where one is asked for


def decide(scenario: Scenario, occasion: Occasion) -> CallFault | LineStory | None:
    """The fault that befalls this call or line. The rate is drawn for each occurrence, so a retry may succeed."""
    for position, rule in scenario.faults_by_operation[occasion.operation]:
        if _stated(rule, occasion) and _hit(scenario, position, rule, occasion):
            return rule
    return None


def slams_door(scenario: Scenario, occasion: Occasion) -> bool:
    """Whether the connection is reset before the body is read; `occasion` knows no body yet."""
    return any(
        occasion.operation in rule.operations and _stated(rule, occasion) and _hit(scenario, position, rule, occasion)
        for position, rule in scenario.early_resets
    )


def stories(scenario: Scenario, occasion: Occasion) -> list[Story]:
    """Every story that selects this occasion: a batch may take several odd turns."""
    return [
        rule
        for position, rule in scenario.stories_by_operation[occasion.operation]
        if _stated(rule, occasion) and _hit(scenario, position, rule, occasion)
    ]


def answer_rule(scenario: Scenario, occasion: Occasion) -> AnswerRule | None:
    """The content rule for this call. The rate is drawn for the body alone: the same question, the same answer."""
    for position, rule in scenario.answers_by_operation[occasion.operation]:
        drawn_for = (scenario.seed, f"answer {position}", occasion.digest, 0)
        if _stated(rule, occasion) and _drawn(rule, *drawn_for):
            return rule
    return None


def _hit(scenario: Scenario, position: int, rule: Selector, occasion: Occasion) -> bool:
    return _drawn(rule, scenario.seed, f"fault {position}", occasion.digest, occasion.occurrence)


def retry_after_header(form: RetryAfterForm, seconds: int, *, now_ms: int) -> dict[str, str]:
    """The header that says when to come back, in the form asked for; empty if it is to be missing."""
    match form:
        case RetryAfterForm.SECONDS:
            return {"Retry-After": str(seconds)}
        case RetryAfterForm.MILLISECONDS:
            return {"retry-after-ms": str(seconds * 1000)}
        case RetryAfterForm.HTTP_DATE:
            return {"Retry-After": formatdate(now_ms // 1000 + seconds, usegmt=True)}
        case RetryAfterForm.GARBAGE:
            return {"Retry-After": "soon"}
        case RetryAfterForm.MISSING:
            return {}


def _stated(rule: Selector, occasion: Occasion) -> bool:
    """Whether every condition holds that needs no draw."""
    if rule.first is not None and occasion.arrival > rule.first:
        return False
    if rule.occurrences and occasion.occurrence not in rule.occurrences:
        return False
    if occasion.elapsed_ms < rule.from_ms or (rule.until_ms is not None and occasion.elapsed_ms >= rule.until_ms):
        return False
    if rule.model is not None and rule.model != occasion.model:
        return False
    if rule.match is not None and rule.match not in occasion.prompt:
        return False
    return rule.regex is None or rule.regex.search(occasion.prompt) is not None


def _drawn(rule: Selector, seed: int, purpose: str, digest: bytes, occurrence: int) -> bool:
    return rule.rate >= 1 or (rule.rate > 0 and fraction(seed, purpose, digest, occurrence) < rule.rate)
