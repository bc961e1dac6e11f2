"""Everything the gateway holds in memory for one owned partition; it can be built again from rows and the outbox."""

from dataclasses import dataclass, field

from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.book import Book
from nightmill.provider_gateway.lanes import Lane
from nightmill.provider_gateway.leases import LeaseHolder
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess


@dataclass(slots=True)
class Desk:
    """One partition's work."""

    number: int
    opened_at_ms: int
    book: Book
    lanes: dict[str, Lane] = field(default_factory=dict)  #: by pool
    ready: list[AttemptAnswered] = field(default_factory=list)  #: to be published at the next tick
    elsewhere: list[tuple[int, Order]] = field(default_factory=list)  #: given up at this time unless answered
    swept_at_ms: int = 0
    limited: bool = False  #: there are orders that nobody has looked at, or that could have started
    short: bool = False  #: at the last look a lane had fewer calls than may end before the next commit

    def lane(self, access: PoolAccess, instance: str) -> Lane:
        """The lane of a pool; its lease begins with the first order."""
        lane = self.lanes.get(access.name)
        if lane is None:
            holder = LeaseHolder(
                pool=access.name,
                pool_slots=access.pool.limits.slots,
                instance=instance,
                partition=self.number,
                epoch=self.opened_at_ms,
            )
            lane = self.lanes[access.name] = Lane(access, holder)
        return lane
