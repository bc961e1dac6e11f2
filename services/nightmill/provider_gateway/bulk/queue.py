"""Orders of one pool and partition that wait to be sent together."""

from collections import deque
from collections.abc import Sequence

from nightmill.provider_gateway.bulk.steps import Timing
from nightmill.provider_gateway.bulk.wanted import Wanted
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess

#: nothing came for so long: what is expected together has come
_QUIET_SHARE = 5
_SWEEP_EVERY_MS = 1_000


class BulkQueue:
    """First come, first sent."""

    def __init__(self, access: PoolAccess) -> None:
        self.access = access
        self.building: Sequence[Order] = ()  #: taken out, an input is being written of them
        self.due_at_ms = 0  #: nothing is taken out before
        self.blocked: str | None = None  #: what of this machine is in the way
        self._orders: deque[Order] = deque()
        self.tokens = 0  #: of all that wait
        self._first_ms = self._last_ms = self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def next_tokens(self) -> int:
        """Of the first one, which goes whatever its size."""
        return self._orders[0].attempt.input_tokens

    def add(self, order: Order, now_ms: int) -> None:
        if not self._orders:
            self._first_ms = now_ms
        self._last_ms = now_ms
        self._orders.append(order)
        self.tokens += order.attempt.input_tokens

    def put_back(self, orders: Sequence[Order]) -> None:
        """Orders that were taken out, first in the queue again."""
        self._orders.extendleft(reversed(orders))
        self.tokens += sum(order.attempt.input_tokens for order in orders)

    def take(self, most: int) -> tuple[Order, ...]:
        """Take the first ones out, to be written."""
        taken = tuple(self._orders.popleft() for _ in range(min(most, len(self._orders))))
        self.tokens -= sum(order.attempt.input_tokens for order in taken)
        self.building = taken
        return taken

    def is_ripe(self, most: int, now_ms: int, timing: Timing) -> bool:
        """Whether to write an input now: it is full, or no more company is to be expected soon."""
        if not self._orders or self.building or now_ms < self.due_at_ms:
            return False
        quiet = now_ms - self._last_ms >= timing.gather // _QUIET_SHARE
        return len(self._orders) >= most or (quiet and now_ms - self._first_ms >= timing.gather)

    def called_off(self, wanted: Wanted, now_ms: int) -> list[Order]:
        """Take out the orders whose batch is cancelled, or goes on in realtime."""
        if not self._orders or now_ms - self._swept_ms < _SWEEP_EVERY_MS:
            return []
        self._swept_ms = now_ms
        gone = wanted.unwanted(self._orders)
        if gone:
            keys = {order.key for order in gone}
            self._orders = deque(order for order in self._orders if order.key not in keys)
            self.tokens -= sum(order.attempt.input_tokens for order in gone)
        return gone
