"""One submission: its row, the orders it is made of, and what this process remembers of it beside the row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nightmill.kernel.domain.lifecycle import ProviderBatchEvent, ProviderBatchState, advance_provider_batch
from nightmill.kernel.wire.messages import ProviderBatchRow, ShardSpan
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.bulk.dialect import BatchSeen
from nightmill.provider_gateway.bulk.errands import Built, Harvest
from nightmill.provider_gateway.bulk.results import Places, ResultFile
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess

_CLOSED = frozenset({ProviderBatchState.HARVESTED, ProviderBatchState.WITHDRAWN})
#: the provider counts its tokens as enqueued, or may
ENQUEUED = frozenset({ProviderBatchState.INTENT, ProviderBatchState.ARMED, ProviderBatchState.SUBMITTED})


@dataclass(slots=True)
class Submission:
    """In memory, of one open partition."""

    row: ProviderBatchRow
    access: PoolAccess
    orders: list[Order]  #: open ones, in the order in which they were sent
    due_at_ms: int  #: nothing is done before
    built: Built | None = None  #: the input, where this process made it
    doubt: bool = False  #: a create may have been carried out that nobody saw the answer of
    mute: tuple[str, ...] = ()  #: batches that may be it, and do not tell although they have ended
    absent: bool = False  #: a look for it found nothing
    fenced: bool = False  #: the input file is gone: no create of it can be carried out any more
    tries: int = 0  #: failures of the present step in a row
    heeded_ms: int = 0  #: when the last notice of the provider came that made us look
    looks: int = 0  #: at a batch that has not ended
    uncommitted: bool = False
    busy: bool = False  #: an errand is under way
    called_off: bool = False  #: nobody wants any of it any more
    harvest: Harvest | None = None
    ran: int | None = None  #: requests that ran, as the provider counts; not known after a restart
    refetched: bool = False
    misfits: int = 0  #: downloads in a row that were not as long as they should be
    gone_since_ms: int | None = None  #: the provider says that it has not the batch, or not its results
    lacks: tuple[ResultFile, ...] = ()  #: the result files that it says it has not
    read: Places | None = None  #: lines that were read while others are waited for
    strays: bool = False  #: an upload broke off that may have arrived
    crowded: bool = False  #: some of its requests were refused for their number
    given: int = 0  #: orders whose answers were handed on

    @property
    def id(self) -> str:
        return self.row.submission_id

    @property
    def state(self) -> ProviderBatchState:
        return self.row.state

    @property
    def is_closed(self) -> bool:
        return self.row.state in _CLOSED

    @property
    def is_at_harvest(self) -> bool:
        """Its results are on their way to publication."""
        return self.state is ProviderBatchState.ENDED and (self.busy or self.harvest is not None)

    @property
    def is_given(self) -> bool:
        """Every answer was handed on to the desk."""
        has_all = self.harvest is not None and self.given >= len(self.orders)
        return self.state is ProviderBatchState.ENDED and has_all and not self.busy and not self.uncommitted

    def move(self, event: ProviderBatchEvent, **changes: Any) -> ProviderBatchRow:
        """The row after `event`, to be put; nothing further happens until it is committed."""
        state = advance_provider_batch(self.row.state, event)
        self.row = replace(self.row, state=state, **changes)
        self.tries, self.uncommitted = 0, True
        return self.row

    def note(self, **changes: Any) -> ProviderBatchRow:
        """The row with other facts in the same state, to be put."""
        self.row = replace(self.row, **changes)
        self.uncommitted = True
        return self.row


def intent(built: Built, access: PoolAccess, *, owner: str, now_ms: int) -> ProviderBatchRow:
    """The first row of a submission."""
    return ProviderBatchRow(
        submission_id=built.name,
        anchor=built.orders[0].shard.shard_id,
        pool=access.name,
        state=ProviderBatchState.INTENT,
        spans=tuple(spans(built.orders)),
        requests=len(built.orders),
        bytes=built.bytes,
        input_tokens=built.tokens,
        fingerprint=built.fingerprint,
        owner=owner,
        intent_at_ms=now_ms,
        absent_not_run=False,
    )


def ended(seen: BatchSeen, now_ms: int) -> Mapping[str, Any]:
    """What a row learns when its batch has ended."""
    return {
        "ended_at_ms": now_ms,
        "output_id": seen.output_id,
        "error_id": seen.error_id,
        "absent_not_run": seen.absent_not_run,
    }


def spans(orders: Sequence[Order]) -> Iterator[ShardSpan]:
    """The attempts of `orders` as runs of neighbours."""
    start = 0
    for position in range(1, len(orders) + 1):
        if position == len(orders) or not _follows(orders[position - 1], orders[position]):
            first = orders[start]
            yield ShardSpan(shard_id=first.shard.shard_id, first=first.index, count=position - start)
            start = position


def _follows(before: Order, after: Order) -> bool:
    return before.shard.shard_id == after.shard.shard_id and after.index == before.index + 1


@dataclass(slots=True)
class Sorted:
    """Open orders by what has become of them: in a submission, or in none."""

    sent: dict[str, list[Order]] = field(default_factory=dict)  #: by submission, in the order sent
    free: list[Order] = field(default_factory=list)


def sort_out(orders: Sequence[Order], rows: Sequence[ProviderBatchRow]) -> Sorted:
    """Which open orders belong to which of these (not closed) submissions."""
    by_place = {(order.shard.shard_id, order.index): order for order in orders}
    sorted_ = Sorted()
    for row in rows:
        places = [(s.shard_id, index) for s in row.spans for index in range(s.first, s.first + s.count)]
        found = [by_place.pop(place, None) for place in places]
        sorted_.sent[row.submission_id] = [order for order in found if order is not None]
    sorted_.free = [order for order in orders if (order.shard.shard_id, order.index) in by_place]
    return sorted_
