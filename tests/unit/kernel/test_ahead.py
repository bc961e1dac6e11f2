"""Records that were fetched and not handed out: order within a place, turns between topics, nothing lost."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.runtime.kafka.ahead import MOST_BYTES, ReadAhead
from nightmill.kernel.runtime.log import Place, Record

PLANS, JUDGEMENTS = Place("item-planned", 0), Place("attempt-judged", 0)


def record(place: Place, offset: int, value: bytes = b"x") -> Record:
    return Record(place, offset, b"k", value, (), 0)


def ahead(*places: Place) -> ReadAhead:
    found = ReadAhead()
    counts: Counter[Place] = Counter()
    for place in places:
        found.add(record(place, counts[place]))
        counts[place] += 1
    return found


def test_a_flood_of_one_topic_does_not_keep_another_waiting() -> None:
    """P3: ten thousand plans stand in front of three judgements, and the judgements are in the next hundred."""
    waiting = ahead(*[PLANS] * 10_000, *[JUDGEMENTS] * 3)
    taken = waiting.take(100)
    assert Counter(r.place for r in taken) == {PLANS: 97, JUDGEMENTS: 3}


def test_one_by_one_every_place_has_its_turn() -> None:
    """P3, E9: while the loop looks for the record whose outcome the log refused, one place may never run dry."""
    waiting = ahead(*[PLANS] * 5, *[Place("item-planned", 1)] * 9, JUDGEMENTS)
    seen: Counter[Place] = Counter()
    for offset in range(1, 7):
        seen.update(record.place for record in waiting.take(1))
        waiting.add(record(JUDGEMENTS, offset))
    assert seen == {PLANS: 2, Place("item-planned", 1): 2, JUDGEMENTS: 2}


@given(
    st.lists(st.sampled_from([Place(t, n) for t in "abc" for n in (0, 1)]), max_size=60),
    st.lists(st.integers(1, 9), min_size=60, max_size=60),
)
def test_every_record_once_and_in_order(places: list[Place], limits: list[int]) -> None:
    waiting = ahead(*places)
    seen: list[Record] = []
    for limit in limits:
        taken = waiting.take(limit)
        assert len(taken) == min(limit, len(places) - len(seen))
        seen += taken
    assert not waiting.has_some
    for place in set(places):
        assert [r.offset for r in seen if r.place == place] == list(range(places.count(place)))


def test_a_paused_place_keeps_what_waits_and_does_not_fill_the_buffer() -> None:
    waiting = ReadAhead()
    waiting.add(record(PLANS, 0, b"x" * MOST_BYTES))
    assert waiting.is_full
    waiting.pause(PLANS)
    assert not waiting.is_full
    assert not waiting.has_some
    waiting.add(record(JUDGEMENTS, 0))
    assert [r.place for r in waiting.take(10)] == [JUDGEMENTS]
    waiting.resume(PLANS)
    assert [r.place for r in waiting.take(10)] == [PLANS]
    assert not waiting.is_full


def test_what_is_read_anew_is_forgotten() -> None:
    """After a seek, and for places that were lost."""
    waiting = ahead(PLANS, PLANS, JUDGEMENTS)
    waiting.forget(PLANS)
    assert [r.place for r in waiting.take(10)] == [JUDGEMENTS]
    waiting = ahead(PLANS, JUDGEMENTS)
    waiting.pause(PLANS)
    waiting.keep(lambda place: place == PLANS)
    assert waiting.take(10) == []
    waiting.clear()
    waiting.add(record(PLANS, 7))
    assert [r.offset for r in waiting.take(10)] == [7]
