"""Which waiters of an item still count, and for which of them a call may start (E11).

The publisher's last word on a batch (`batch-controlled`) fences waiters, never attempts: an answer that was paid for is
kept, but only live waiters are told. Nothing here is remembered; the word is asked for again at each decision.
"""

from collections.abc import Callable
from enum import IntEnum

from nightmill.kernel.domain.lifecycle import ControlState
from nightmill.kernel.wire.messages import BatchControlled, Waiter

#: The publisher's last word on a batch, None while it is not known here.
ControlOf = Callable[[str], BatchControlled | None]


class Standing(IntEnum):
    """What the publisher's word means for one waiter; in the order in which waiters go first."""

    RUNNING = 0  #: a call may start for it
    HELD = 1  #: alive, but nothing starts for it; so is one whose word has not arrived yet
    DEAD = 2  #: its batch was cancelled, or goes on under a newer generation


def standing(generation: int, control: BatchControlled | None) -> Standing:
    """Standing of a waiter of this generation under its batch's word."""
    if control is None or control.generation < generation:
        return Standing.HELD
    if control.generation > generation or control.state is ControlState.CANCELLED:
        return Standing.DEAD
    return Standing.RUNNING if control.state is ControlState.RUNNING else Standing.HELD


def rank(waiters: tuple[Waiter, ...], control_of: ControlOf) -> tuple[Waiter, ...]:
    """The live waiters, those for which a call may start first, otherwise in their order.

    The first of them leads: its batch's queue is where the item waits.
    """
    if len(waiters) == 1:
        only = waiters[0]
        return () if standing(only.generation, control_of(only.batch_id)) is Standing.DEAD else waiters
    ranked = [(standing(waiter.generation, control_of(waiter.batch_id)), waiter) for waiter in waiters]
    live = sorted((pair for pair in ranked if pair[0] is not Standing.DEAD), key=lambda pair: pair[0])
    return tuple(waiter for _, waiter in live)


def may_start(waiter: Waiter, control_of: ControlOf) -> bool:
    """Whether a call may start for this waiter."""
    return standing(waiter.generation, control_of(waiter.batch_id)) is Standing.RUNNING


def payer_of(waiters: tuple[Waiter, ...], payer: Waiter | None, control_of: ControlOf) -> Waiter:
    """Who pays the next call: the present payer's batch while calls may start for it, else the first waiter.

    `waiters` are ranked and the first may start.
    """
    if payer is not None and len(waiters) > 1:
        for waiter in waiters:
            if waiter.batch_id == payer.batch_id and may_start(waiter, control_of):
                return waiter
    return waiters[0]
