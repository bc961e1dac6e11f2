"""Whether orders are still wanted in the bulk lane, by the publisher's word and the dispatcher's choice of lanes.

All orders of a shard come from one partition of the dispatcher, and its choice is the one that counts.
"""

from collections.abc import Iterable

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.runtime.log import partition_of
from nightmill.kernel.runtime.service import View
from nightmill.kernel.wire.messages import BatchControlled, LaneChoiceRow
from nightmill.provider_gateway.calls import called_off
from nightmill.provider_gateway.orders import Order

#: shard, batch, generation: what is wanted is the same for all orders of a kind
_Kind = tuple[str, str, int]


class Wanted:
    """One look at what is wanted; answers are kept for the time of the look."""

    def __init__(self, controls: View[BatchControlled], choices: View[LaneChoiceRow], partitions: int) -> None:
        self._controls, self._choices_of, self._partitions = controls, choices, partitions
        self._choices: dict[str, LaneChoiceRow | None] = {}  #: by shard

    def unwanted(self, orders: Iterable[Order]) -> list[Order]:
        """Those that may not be part of a new submission, in their order."""
        kinds: dict[_Kind, bool] = {}
        gone = []
        for order in orders:
            attempt = order.attempt
            kind = (order.shard.shard_id, attempt.batch_id, attempt.generation)
            out = kinds.get(kind)
            if out is None:
                out = kinds[kind] = self._is_moved(order) or self._is_called_off(order)
            if out:
                gone.append(order)
        return gone

    def none_awaited(self, orders: Iterable[Order]) -> bool:
        """Whether nobody waits for a submission of these any more: each is cancelled, or called back."""
        return all(self._is_called_back(order) or self._is_called_off(order) for order in orders)

    def _is_moved(self, order: Order) -> bool:
        choice = self._choice(order)
        return choice is not None and choice.lane is Lane.REALTIME

    def _is_called_back(self, order: Order) -> bool:
        choice = self._choice(order)
        return choice is not None and choice.recalled_at_ms is not None

    def _is_called_off(self, order: Order) -> bool:
        return called_off(order.attempt, self._controls.get(order.attempt.batch_id))

    def _choice(self, order: Order) -> LaneChoiceRow | None:
        shard = order.shard.shard_id
        if shard not in self._choices:
            partition = partition_of(order.attempt.item_key.encode(), self._partitions)
            self._choices[shard] = self._choices_of.get(f"{order.attempt.batch_id}/{partition}")
        return self._choices[shard]
