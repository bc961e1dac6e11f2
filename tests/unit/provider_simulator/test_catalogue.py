"""The ways in which providers are known to lie, fail and differ: a scenario has a switch for each form of each, and
every switch that it has is in the catalogue, whose effects `conformance/faults` shows."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin

import pytest

from conformance.faults.catalogue import CATALOGUE
from nightmill.provider_simulator.call_faults import CallFault
from nightmill.provider_simulator.rules import AnswerForm, Model, UsageForm, VectorForm
from nightmill.provider_simulator.scenario import parse_scenario
from nightmill.provider_simulator.stories import BatchStory, FileStory, LineStory, WebhookFault


def kind_of(model: type[Model]) -> str:
    return str(get_args(model.model_fields["kind"].annotation)[0])


def choices(model: type[Model]) -> Iterator[tuple[str, set[Any]]]:
    """The fields that take one of a few values, and these."""
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if get_origin(kind) is Literal:
                yield name, set(get_args(kind))
            elif isinstance(kind, type) and issubclass(kind, StrEnum):
                yield name, set(kind)


LISTED = [scenario for scenarios in CATALOGUE.values() for scenario in scenarios]
FAULTS = [fault for scenario in LISTED for fault in scenario.get("faults", [])]
RULES = [rule for scenario in LISTED for rule in scenario.get("answers", [])]
UNIONS = (CallFault, BatchStory, LineStory, FileStory)
MODELS = {kind_of(model): model for union in UNIONS for model in (*get_args(union), WebhookFault)}
ORDINARY = {"slow", "redirect", "context_length_exceeded"}  # no lies


def test_there_are_45() -> None:
    assert [name[:2] for name in CATALOGUE] == [f"{n:02}" for n in range(1, 46)]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_switch_is_there(name: str) -> None:
    for scenario in CATALOGUE[name]:
        parse_scenario(scenario, where=name)


def test_no_kind_of_fault_is_forgotten() -> None:
    assert MODELS.keys() - {fault["kind"] for fault in FAULTS} == ORDINARY


@pytest.mark.parametrize("kind", sorted(MODELS.keys() - ORDINARY))
def test_no_form_of_a_fault_is_forgotten(kind: str) -> None:
    """Every value of a field that has a few; a default counts where a scenario leaves it at that. How a failure says
    when to come back is the same in all of them, so it is enough to have it once."""
    model = MODELS[kind]
    for name, values in choices(model):
        stated = [fault for fault in FAULTS if fault["kind"] == kind or name == "retry_after"]
        assert values <= {fault.get(name, model.model_fields[name].default) for fault in stated}, name


def test_no_form_of_an_answer_is_forgotten() -> None:
    assert {rule.get("form", "plain") for rule in RULES} == set(AnswerForm)
    assert {rule.get("vectors", "plain") for rule in RULES} == set(VectorForm)
    assert {rule.get("usage", {}).get("report", "full") for rule in RULES} == set(UsageForm)
