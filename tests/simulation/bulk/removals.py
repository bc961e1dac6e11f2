"""How each guard of the bulk lane is switched off, as in `simulation.removals`."""

import dataclasses
from typing import Any

from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.table import Views
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.book import Book
from nightmill.provider_gateway.bulk import answers, fetching, office, outcomes, results, steps, todo
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.effect import withdraw
from nightmill.provider_gateway.bulk.outcomes import Outcomes
from nightmill.provider_gateway.bulk.requests import Requests
from nightmill.provider_gateway.bulk.steps import Step
from simulation.removals import off

_next_step = steps.next_step


def _without_its_commit(submission: Any, **situation: Any) -> Step:
    submission.uncommitted = False
    return _next_step(submission, **situation)


#: every step is made as soon as it is decided
intent_before_create = off((office, "next_step", _without_its_commit))


#: what may have been created counts as absent without a look
orphan_look_up = off((Requests, "_look_up", lambda self, errand, dialect: e.Absent()))


def _at_once(submission: Any, timing: Any) -> int:
    return int(submission.row.armed_at_ms)


#: a look is made while a create may still be under way
orphan_wait = off((office, "doubt_ends_at_ms", _at_once), (outcomes, "doubt_ends_at_ms", _at_once))


def _not_fenced(self: Outcomes, submission: Any, effect: Any, now_ms: int) -> None:
    """The second look comes as late as with the guard; the input stays."""
    if submission.absent:
        withdraw(submission, effect, now_ms)
        return
    submission.absent = submission.fenced = True
    submission.due_at_ms = now_ms + self._timing.list_lag


input_fence = off((Outcomes, "_absent", _not_fenced))


_went_well = Outcomes._went_well


def _withdrawn_with_its_input(
    self: Outcomes, step: Step, submission: Any, outcome: Any, effect: Any, now_ms: int
) -> None:
    if step is Step.FENCE:
        withdraw(submission, effect, now_ms)
    else:
        _went_well(self, step, submission, outcome, effect, now_ms)


second_look = off((Outcomes, "_went_well", _withdrawn_with_its_input))


_errand_of = todo.errand_of


def _whenever(step: Step, submission: Any, *rest: Any) -> e.Errand:
    errand = _errand_of(step, submission, *rest)
    return dataclasses.replace(errand, before_ms=2**62) if isinstance(errand, e.Create) else errand


create_in_time = off((office, "errand_of", _whenever))


def _by_number(self: Requests, candidates: Any, errand: e.LookUp, dialect: Any) -> Any:
    return candidates[0] if candidates else e.Absent()


#: a batch of as many requests is taken for ours
orphan_by_ids = off((Requests, "_recognised", _by_number))


_assign = Loop._assign


def _without_catching_up(loop: Any, *change: Any) -> None:
    with off((Views, "catch_up", lambda *_: None))():
        _assign(loop, *change)


views_at_take_over = off((Loop, "_assign", _without_catching_up))

enqueued_room = off((office, "room", lambda most, *_, **__: most))


_answer = answers.answer


def _not_run(order: Any, line: Any, row: Any, adapter: Any, gone: Any) -> Any:
    return _answer(order, line, replace(row, absent_not_run=True), adapter, gone)


#: what no line tells of has not run
missing_is_unknown = off((fetching, "answer", _not_run))


_sort_lines = results.sort_lines


def _last_line_counts(paths: Any, positions: Any, read: Any, set_aside: Any) -> Any:
    found = _sort_lines(paths, positions, read, set_aside)
    for number, path in enumerate(paths):
        with path.open("rb") as file:
            for offset, raw in results.lines_of(file):
                position = positions.get(read(raw).custom_id)
                if position is not None:
                    found.places.put(position, number, offset, len(raw))
    return found


first_valid_line = off((fetching, "sort_lines", _last_line_counts))


_enter = Book.enter

#: every attempt of a shard that is taken up is open again
closed_attempts = off(
    (Book, "enter", lambda self, row: _enter(self, row if row.shard is None else replace(row, answered=())))
)
