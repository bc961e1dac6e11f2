"""How each guard is switched off: something stands in the place of a production function for a while.

The product has no flag for it. What stands in does what the function does without the guard, and nothing else.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from nightmill.dispatcher import fence, items
from nightmill.dispatcher import service as dispatcher_service
from nightmill.dispatcher.service import Dispatcher
from nightmill.kernel.domain.lifecycle import ControlState, ItemState
from nightmill.kernel.runtime.loop import Loop
from nightmill.kernel.runtime.service import NOTHING, Decision
from nightmill.kernel.wire.values import replace
from nightmill.ledger import columns as ledger_columns
from nightmill.provider_gateway import recovery
from nightmill.provider_gateway import service as gateway_service
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.service import ProviderGateway
from nightmill.provider_gateway.slots import Slots
from nightmill.publisher import accounting, batches
from nightmill.publisher import service as publisher_service
from nightmill.publisher.accounting import Change, Chunk
from nightmill.publisher.desk import Desk
from nightmill.publisher.service import Publisher
from nightmill.publisher.targets.files import FilesTarget
from nightmill.rate_governor import pool as governor_pool
from nightmill.rate_governor import service as governor_service

Off = Callable[[], AbstractContextManager[None]]


@contextmanager
def _swapped(*swaps: tuple[Any, str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in swaps:
            stack.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, value)
        yield


def off(*swaps: tuple[Any, str, Any]) -> Off:
    return lambda: _swapped(*swaps)


# -- runtime


class _WithoutPositions:
    """A session whose transactions carry no positions, so that nothing fences them."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def commit(self, records: Any, positions: Mapping[Any, int]) -> None:
        self._session.commit(records, {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


_commit = Loop._commit


def _ticks_unfenced(self: Any, now_ms: int | None) -> bool:
    if self._open.handled:
        return _commit(self, now_ms)
    session, self._session = self._session, _WithoutPositions(self._session)
    try:
        return _commit(self, now_ms)
    finally:
        self._session = session


fenced_ticks = off((Loop, "_commit", _ticks_unfenced))


# -- dispatcher


def _any_state(row: Any, attempt: Any) -> bool:
    return bool((row.ordinal, row.minted_at_ms) == (attempt.ordinal, attempt.minted_at_ms))


_standing = fence.standing


def _nobody_is_dead(generation: int, control: Any) -> fence.Standing:
    found = _standing(generation, control)
    return fence.Standing.RUNNING if found is fence.Standing.DEAD else found


def _any_generation(generation: int, control: Any) -> fence.Standing:
    if control is not None and control.generation > generation:
        return _standing(control.generation, control)
    return _standing(generation, control)


_on_item_planned = Dispatcher.on_item_planned


def _on_any_word(self: Dispatcher, planned: Any, part: Any) -> Any:
    control = self._control_of(planned.batch_id)
    if control is not None and control.state is ControlState.CANCELLED and control.generation < planned.generation:
        return NOTHING
    return _on_item_planned(self, planned, part)


dedup_of_plans = off((items, "_heard_of", lambda row, batch_id, generation: False))
dedup_of_judgements = off((dispatcher_service, "is_current", _any_state))
current_attempt = off((dispatcher_service, "is_current", lambda row, attempt: row.state is ItemState.DISPATCHED))
dead_waiters = off((fence, "standing", _nobody_is_dead))
generation_of_waiters = off((fence, "standing", _any_generation))
words_not_here_yet = off((Dispatcher, "on_item_planned", _on_any_word))


# -- provider gateway

_on_shard_dispatched = ProviderGateway.on_shard_dispatched


def _calls_before_commit(self: ProviderGateway, message: Any, part: Any) -> Any:
    decision = _on_shard_dispatched(self, message, part)
    if not isinstance(decision, Decision) or not decision.effects:
        return decision
    self.start(decision.effects)
    return dataclasses.replace(decision, effects=())


class _KnowsNoShard:
    """A partition with empty tables."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def table(self, row: Any) -> Any:
        return {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def _every_shard_is_new(self: ProviderGateway, message: Any, part: Any) -> Any:
    return _on_shard_dispatched(self, message, _KnowsNoShard(part))


_what_is_known = recovery.what_is_known


def _all_ran_here(*, landed: bool, under_way: bool, marked: bool, ran_here: bool) -> Any:
    return _what_is_known(landed=landed, under_way=under_way, marked=marked, ran_here=True)


_outbox_write = Outbox.write

row_before_calls = off((ProviderGateway, "on_shard_dispatched", _calls_before_commit))
known_shards = off((ProviderGateway, "on_shard_dispatched", _every_shard_is_new))
shards_of_others = off((gateway_service, "what_is_known", _all_ran_here))
outbox_mark = off((Outbox, "write", lambda self, marks, answers: _outbox_write(self, (), answers)))
outbox_answer = off((Outbox, "write", lambda self, marks, answers: _outbox_write(self, marks, ())))


_let_go = Slots.let_go
_LONG_AGO_MS = -(2**62)

#: nobody looks at the clock between the mark and the send
lease_end_before_send = off((Slots, "let_go", lambda self, now_ms: _let_go(self, _LONG_AGO_MS)))


#: what waits at the HTTP side counts as started, as if it had been sent when it was handed over
held_until_sent = off((Slots, "unsent", lambda self, lane: frozenset()))


# -- rate governor

_Terms = governor_pool.Terms
_terms_of = _Terms.of


def _on_terms(**terms: Any) -> Off:
    return off((_Terms, "of", lambda pool: dataclasses.replace(_terms_of(pool), **terms)))


#: the governor counts a lease as over as soon as it is granted
lease_time_to_live = _on_terms(guard_ms=1 - governor_pool.TTL_MS)
lease_guard_time = _on_terms(guard_ms=0)
slots_until_call_deadline = _on_terms(call_deadline_ms=0)
#: another host's clock is believed
no_time_at_take_over = off((governor_service, "take_over", lambda row, now_ms: row))


# -- planner, publisher, ledger

_publisher_tick = Publisher.on_tick


def _effects_before_commit(self: Any, part: Any) -> Any:
    """What an intent leads to is begun with it, in the same step."""
    decisions = [_publisher_tick(self, part)]
    if self._desks[part.number].fresh_intents:
        self._desks[part.number].fresh_intents.clear()
        decisions.append(_publisher_tick(self, part))
    for decision in decisions:
        self.start(decision.effects)
    return Decision(
        send=[message for decision in decisions for message in decision.send],
        put=[row for decision in decisions for row in decision.put],
        delete=[gone for decision in decisions for gone in decision.delete],
    )


_command = batches.command


def _forgetful_command(row: Any, order: Any, *, switching: bool, now_ms: int) -> Any:
    return _command(None if row is None else replace(row, commands=()), order, switching=switching, now_ms=now_ms)


def _soon_complete(row: Any) -> bool:
    sealed = row.sealed
    return sealed is not None and sealed.refusal is None and accounting.accounted(row.counts) * 2 > sealed.planned


def _agreement(*_: Any) -> None:
    return None


dedup_of_settlements = off(
    (Chunk, "change_by", lambda self, ordinal, outcome_, revision: Change(before=None, after=outcome_))
)
commands_once = off((batches, "command", _forgetful_command))
reconciliation = off((batches, "complete", _soon_complete), (publisher_service, "disagreement", _agreement))
switch_intent = off((Publisher, "on_tick", _effects_before_commit))
_switch = FilesTarget._switch


def _overwrite(self: Any, publication: Any, manifest: Any) -> Any:
    (self._root / f"pointer-{publication.version:010d}.json").unlink(missing_ok=True)
    return _switch(self, publication, manifest)


spend_stop = off((batches, "overspent", lambda row, now_ms: None))
exclusive_pointer = off((FilesTarget, "_switch", _overwrite))
no_cancel_while_switching = off((Desk, "switching", lambda self, batch_id, dataset_id: False))
versions_of_attempts = off((ledger_columns, "attempt_versions", lambda judged: judged["attempt.generation"]))
