"""Which attempts a submission is made of, and what is left of it after a restart (E6)."""

from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.wire.messages import ShardSpan
from nightmill.provider_gateway.bulk.submission import sort_out, spans
from unit.provider_gateway.bulk.makers import make_order, make_row


def test_neighbours_are_one_span() -> None:
    orders = [make_order(n) for n in (0, 1, 2, 5, 6)] + [make_order(7, "s2", index=0)]
    assert list(spans(orders)) == [
        ShardSpan(shard_id="s1", first=0, count=3),
        ShardSpan(shard_id="s1", first=5, count=2),
        ShardSpan(shard_id="s2", first=0, count=1),
    ]


@given(
    st.lists(st.tuples(st.sampled_from(["s1", "s2"]), st.integers(0, 12)), unique=True, max_size=16),
    st.integers(0, 16),
    st.sets(st.integers(0, 15)),
)
def test_every_open_order_is_in_its_submission_or_free(
    places: list[tuple[str, int]], sent: int, answered: set[int]
) -> None:
    """Rows and shards alone tell who is where; nothing is in two places."""
    orders = [make_order(number, shard, index=index) for number, (shard, index) in enumerate(places)]
    row = make_row(spans=tuple(spans(orders[:sent])))
    still_open = [order for number, order in enumerate(orders) if number not in answered]
    found = sort_out(still_open, [row])
    assert found.sent[row.submission_id] == [o for o in orders[:sent] if o in still_open]
    assert found.free == [o for o in orders[sent:] if o in still_open]
