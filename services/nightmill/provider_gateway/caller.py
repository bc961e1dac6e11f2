"""The port behind which calls are made: `http.py` in earnest, a script in tests and simulations.

The poll thread decides which calls may be made and hands over a little more than fits; the other side makes them as
slots come free, so that a slot never waits for a poll or a commit. It stays within the permit of each lane, and asks
its clock again right before each send.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nightmill.kernel.wire.messages import AttemptAnswered, Failure
from nightmill.provider_gateway.exchange import Adapter, Embedder, Request
from nightmill.provider_gateway.orders import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Orders that are rendered and may be sent: one, or of embeddings many of one shard."""

    orders: tuple[Order, ...]
    lane: str  #: the lease holder under whose permit it starts
    adapter: Adapter
    request: Request
    deadline_s: float  #: from the send to the last byte of the answer
    embedder: Embedder | None = None  #: of a call for embeddings

    @property
    def order(self) -> Order:
        """The first."""
        return self.orders[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """What a lane may do: so many calls in flight, none started after `until_ms`."""

    slots: int
    until_ms: int


CLOSED = Permit(slots=0, until_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """A call that ended, whatever its end; its answers are in the outbox."""

    call: Call
    answers: tuple[AttemptAnswered, ...]  #: in the order of the call's orders, but for those of `again`
    again: tuple[tuple[Order, ...], ...] = ()  #: refused for the sake of another: to be called again, so grouped
    served_model: str | None = None

    @property
    def answered(self) -> AttemptAnswered:
        """The answer of a call of one order."""
        return self.answers[0]

    @property
    def failure(self) -> Failure | None:
        """What kept the call from being answered; None of a refusal that nobody is named by."""
        return self.answers[0].failure if self.answers else None


class Caller(Protocol):
    """Makes calls. Its threads take no decisions; no method blocks but `close`."""

    def permit(self, lane: str, permit: Permit) -> None:
        """Replace the permit of a lane, which starts as `CLOSED`. No call beyond it takes a slot from now on.

        A lane closes itself when a call of it fails for capacity or the account's sake, until the next permit.
        """

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, each lane's in order, as its permit allows: a `sending` mark is durable before each."""

    def withdraw(self, lane: str) -> list[Call]:
        """Take back the calls of a lane that have no slot: they are surely not sent, though some may be marked."""

    def in_flight(self, lane: str) -> int:
        """Calls of a lane that have a slot now."""

    def unsent(self, lane: str) -> frozenset[str]:
        """Attempt keys of a lane's calls that were handed over and did not leave yet, with a slot or without."""

    def completed(self) -> list[CallResult]:
        """Calls that ended since the last time, durable in the outbox. Raises if the caller's thread has died."""

    def close(self) -> None:
        """Begin no further call, wait up to two seconds for those in flight, and let go of the rest."""
