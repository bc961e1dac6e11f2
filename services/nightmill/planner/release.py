"""Which blocks go out next: fairly over batches, and only while the dispatcher keeps up.

A batch's share is the number of items that went out for it since it joined; the batch with the smallest share is next,
and one that joins starts at the smallest share present, so it neither waits behind a big batch nor starves it. Shares
are advice held in memory: forgetting them costs a little fairness and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: items that may wait in front of the dispatcher
LAG_MARK_ITEMS = 20_000
#: blocks released in one tick
MAX_RELEASES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A batch with blocks to release."""

    batch_id: str
    blocks: tuple[int, ...]  #: items of its next blocks, in order (at most `MAX_RELEASES` are looked at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What goes out: how many of each batch's next blocks, how many items that is, and the shares afterwards."""

    blocks: Mapping[str, int]
    items: int
    shares: Mapping[str, int]


def choose(waiting: Sequence[Waiting], shares: Mapping[str, int], *, lag_items: int, mark: int) -> Release:
    """Blocks to release now. The last one may pass the mark, so a block larger than the mark goes out too."""
    least = min((shares[batch.batch_id] for batch in waiting if batch.batch_id in shares), default=0)
    now = {batch.batch_id: shares.get(batch.batch_id, least) for batch in waiting}
    sizes = {batch.batch_id: batch.blocks for batch in waiting}
    taken = dict.fromkeys(now, 0)
    items = 0
    for _ in range(MAX_RELEASES):
        open_ = [batch for batch in now if taken[batch] < len(sizes[batch])]
        if not open_ or lag_items + items >= mark:
            break
        batch = min(open_, key=lambda name: (now[name], name))
        size = sizes[batch][taken[batch]]
        taken[batch] += 1
        now[batch] += size
        items += size
    return Release(blocks={batch: count for batch, count in taken.items() if count}, items=items, shares=now)
