"""Transactions that have been open for longer than any of ours can be, on whatever cluster; read-only.

Readers of committed records stop where one begins. Its coordinator ends it at its timeout, unless it has closed it
already: then it hangs (`hanging`). Every broker is asked for what it leads and coordinates.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from nightmill.kernel.runtime.kafka.hanging import COORDINATOR_LOG, OLD_MS, committed, hanging_among, notes_of
from nightmill.kernel.runtime.kafka.requests import Cluster, CoordinatedTransaction, Node, OpenTransaction, Refused
from nightmill.kernel.runtime.log import LogUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """One that is open in a partition."""

    topic: str
    partition: int
    first_offset: int
    age_ms: int  #: since it began, as its coordinator knows; where it does not, since its last record there
    hangs: bool  #: no coordinator will end it
    commit: bool | None = None  #: how a coordinator had decided of one that hangs; None: nobody can say


def lasting(bootstrap: str, now_ms: int, *, older_ms: int = OLD_MS) -> list[Lasting]:
    """Those of the cluster that are at least so old, in the order of their places. Changes nothing.

    Blocks for some seconds at most for each broker. Raises `OSError` when a broker is away, `Refused` when it does not
    answer as one.
    """
    with ExitStack() as stack:
        first = stack.enter_context(_first(bootstrap))
        cluster = first.cluster()
        # a broker alone may be reached by another name than it tells
        alone = len(cluster.brokers) == 1
        nodes = {
            number: first if alone else stack.enter_context(Node(place)) for number, place in cluster.brokers.items()
        }
        open_ = [each for number, node in nodes.items() for each in node.open_transactions(led_by(number, cluster))]
        if not open_:
            return []
        known = _coordinated(nodes.values(), open_)
        old = [each for each in open_ if _age_ms(each, known, now_ms) >= older_ms]
        decided = _decided(bootstrap, hanging_among(old, known), cluster)
        # a coordinator that had not begun to read its log when it was asked said nothing; by now it has, or refuses
        hanging = set(hanging_among(decided, _coordinated(nodes.values(), decided))) if decided else set()
    found = [
        Lasting(
            topic=each.topic,
            partition=each.partition,
            first_offset=each.first_offset,
            age_ms=_age_ms(each, known, now_ms),
            hangs=each in hanging,
            commit=decided.get(each) if each in hanging else None,
        )
        for each in old
    ]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.first_offset))


def _first(bootstrap: str) -> Node:
    """The first of several brokers that answers."""
    places = [place.strip() for place in bootstrap.split(",")]
    for place in places[:-1]:
        try:
            return Node(place)
        except OSError:
            continue
    return Node(places[-1])


def _coordinated(nodes: Iterable[Node], of: Iterable[OpenTransaction]) -> dict[int, CoordinatedTransaction]:
    producers = {each.producer_id for each in of}
    return {ident: each for node in nodes for ident, each in node.coordinated(producers).items()}


def led_by(broker: int, cluster: Cluster) -> Mapping[str, list[int]]:
    """The partitions by topic that a broker leads. Pure."""
    led: dict[str, list[int]] = defaultdict(list)
    for topic, leaders in cluster.leaders.items():
        for number, leader in leaders.items():
            if leader == broker:
                led[topic].append(number)
    return led


def _age_ms(each: OpenTransaction, known: Mapping[int, CoordinatedTransaction], now_ms: int) -> int:
    coordinated = known.get(each.producer_id)
    since_ms = each.last_at_ms
    if coordinated is not None and (each.topic, each.partition) in coordinated.places and coordinated.began_at_ms > 0:
        since_ms = coordinated.began_at_ms
    return max(0, now_ms - since_ms)


def _decided(
    bootstrap: str, hanging: Iterable[OpenTransaction], cluster: Cluster
) -> Mapping[OpenTransaction, bool | None]:
    """How the coordinators had decided, by their own log, if it can be read."""
    undecided: dict[OpenTransaction, bool | None] = dict.fromkeys(hanging)
    if not undecided:
        return undecided
    try:
        numbers = cluster.leaders.get(COORDINATOR_LOG, {})
        notes = notes_of(bootstrap, numbers, {each.producer_id for each in undecided})
    except (LogUnavailable, Refused):
        return undecided
    return {each: committed(each, notes) for each in undecided}
