"""What must hold whatever dies and whenever: looked at with every commit and every moment, and as a whole at the end.

The checker believes what is committed, the provider's bill and the files that readers see; it asks no service.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nightmill.kernel.domain.lifecycle import (
    ENDED_BATCH,
    ENDED_ITEM,
    BatchState,
    ControlState,
    ItemState,
    ShardState,
)
from nightmill.kernel.runtime.log import Outgoing
from nightmill.kernel.wire.channel import Table, Topic
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    BatchControlled,
    BatchPublished,
    BatchSealed,
    ItemPlanned,
    ItemSettled,
    ItemStateRow,
    PublicationRow,
    ShardDispatched,
    ShardStateRow,
)
from nightmill.kernel.wire.topics import CHANNELS, TABLES
from nightmill.rate_governor.levels import BURST_MS
from simulation.provider import MARKER

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.world import World

_PLAIN = frozenset(vars(logging.makeLogRecord({})))
_OPEN_ITEM = frozenset({ItemState.READY, ItemState.DISPATCHED, ItemState.RETRY_WAIT, ItemState.REPAIR})
_WRITTEN: tuple[Topic | Table, ...] = (*CHANNELS, *TABLES)
_CODECS = {channel.name: codecs()[channel.message] for channel in _WRITTEN}
_CONSUMED = [(service, channel.name) for channel in CHANNELS for service in channel.consumers]


_LOOKS_UNTIL_SEEN = 25


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str, item: str | None = None) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant, self.item = invariant, item


class Checker:
    """Follows one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.items: dict[str, ItemStateRow] = {}
        self.shards: dict[str, ShardStateRow] = {}
        self.publications: dict[str, PublicationRow] = {}
        self.sealed: dict[str, BatchSealed] = {}
        self.planned: dict[tuple[str, int], dict[int, ItemPlanned]] = defaultdict(dict)
        self.settled: dict[tuple[str, int, int, int], ItemSettled] = {}
        self.published: list[BatchPublished] = []
        self.words: dict[str, BatchControlled] = {}
        self.minted: dict[tuple[str, int], int] = {}
        self.answered: list[AttemptAnswered] = []
        self._levels: dict[str, tuple[float, int]] = {}
        self._arrivals = 0
        self._actor = ""  #: whose commit is looked at
        self._steps: dict[str, dict[str, int]] = {}  #: of each process when a batch's word was committed

    # -- all the time

    def committed(self, actor: str, records: Sequence[Outgoing]) -> None:
        """A process's transaction is committed."""
        self._actor = actor
        for record in records:
            codec = _CODECS.get(record.topic)
            if codec is None:
                raise Violation("no record is quarantined", f"{record.topic} from {actor}: {dict(record.headers)}")
            message = None if record.value is None else codec.decode(record.value)
            self._world.trace.message(self._world.now_ms, actor, record, message)
            look = _LOOKS.get(type(message))
            if look is not None:
                look(self, message)

    def heard(self, record: logging.LogRecord) -> None:
        """No log line holds document text."""
        extra = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        line = f"{record.getMessage()} {extra}"
        if MARKER in line:
            raise Violation("no log line holds document text", line.replace(MARKER, "…")[:300])

    def calls_in_flight(self) -> None:
        """Leases never let more in flight, or start more in any window, than the pool takes."""
        provider = self._world.provider
        while self._arrivals < len(provider.arrivals):
            pool, at_ms, running = provider.arrivals[self._arrivals]
            self._arrivals += 1
            limits = self._world.config.pools[pool].limits
            if running > limits.slots:
                raise Violation(
                    "leases never above capacity", f"{running} calls in flight, pool {pool}: {limits.slots}"
                )
            if limits.requests_per_minute is not None:
                self._start_counts(pool, at_ms, limits.requests_per_minute / 60_000)

    def _start_counts(self, pool: str, at_ms: int, per_ms: float) -> None:
        """Calls started in any window are at most burst + rate x window: a bucket that leaks at the rate holds them."""
        level, since_ms = self._levels.get(pool, (0.0, at_ms))
        level = max(0.0, level - (at_ms - since_ms) * per_ms) + 1
        self._levels[pool] = (level, at_ms)
        most = max(1.0, per_ms * BURST_MS)
        if level > most + 1:
            raise Violation("leases never above capacity", f"{level:.1f} requests at once, pool {pool}: {most:.1f}")

    # -- single messages

    def _item_row(self, row: ItemStateRow) -> None:
        before = self.items.get(row.item_key)
        self.items[row.item_key] = row
        if before is None:
            return
        if row.ordinal < before.ordinal:
            raise Violation("states go forward", f"ordinal {before.ordinal} -> {row.ordinal}", row.item_key)
        # an ended item starts again only when it is planned again
        if before.state in ENDED_ITEM and row.state is not before.state and row.planned_at_ms == before.planned_at_ms:
            raise Violation("terminal states absorb", f"item {before.state} -> {row.state}", row.item_key)

    def _shard_row(self, row: ShardStateRow) -> None:
        before = self.shards.get(row.shard_id)
        self.shards[row.shard_id] = row
        if before is None:
            return
        if before.state is ShardState.DONE and row.state is not ShardState.DONE:
            raise Violation("terminal states absorb", f"shard {row.shard_id}: done -> {row.state}")
        if row.state is not ShardState.DONE and not set(before.answered) <= set(row.answered):
            raise Violation("states go forward", f"shard {row.shard_id}: {before.answered} -> {row.answered}")

    def _publication_row(self, row: PublicationRow) -> None:
        before = self.publications.get(row.batch_id)
        self.publications[row.batch_id] = row
        if before is not None:
            moved = before.state in ENDED_BATCH and row.state is not before.state
            # a cancel that came before the plan can be taken back without a new generation
            again = row.generation > before.generation or before.sealed is None
            if row.generation < before.generation or (moved and not again):
                text = f"batch {before.state} g{before.generation} -> {row.state} g{row.generation}"
                raise Violation("terminal states absorb", f"{row.batch_id}: {text}")
        if row.reason is not None and row.reason.startswith(("accounting:", "staged parts", "a stored piece")):
            raise Violation("the publisher's books agree", f"{row.batch_id}: {row.reason}")
        goes_on = before is not None and before.generation == row.generation and _overspends(before)
        grew = before is not None and row.totals.cost_nano_usd > before.totals.cost_nano_usd
        if goes_on and grew and _overspends(row):
            raise Violation("spend never above budget", f"{row.batch_id} goes on with {row.totals.cost_nano_usd}")

    def _control(self, word: BatchControlled) -> None:
        self._steps[word.batch_id] = {process.name: process.steps for process in self._world.processes}
        self.words[word.batch_id] = word

    def _sealed(self, message: BatchSealed) -> None:
        if message.batch_id in self.sealed:
            raise Violation("a batch is sealed once", message.batch_id)
        self.sealed[message.batch_id] = message

    def _planned(self, message: ItemPlanned) -> None:
        known = self.planned[(message.batch_id, message.generation)].setdefault(message.ordinal, message)
        if known.item_key != message.item_key:
            raise Violation("a plan is frozen", f"{message.batch_id} ordinal {message.ordinal}", message.item_key)

    def _dispatched(self, shard: ShardDispatched) -> None:
        for attempt in shard.attempts:
            key = (attempt.item_key, attempt.ordinal)
            again = key in self.minted
            minted = self.minted.setdefault(key, attempt.minted_at_ms)
            if minted != attempt.minted_at_ms:
                raise Violation("an attempt is minted once", f"ordinal {attempt.ordinal}", attempt.item_key)
            word = self.words.get(attempt.batch_id)
            stands = word is not None and word.state is not ControlState.RUNNING and not again
            if word is not None and stands and attempt.minted_at_ms > word.controlled_at_ms and self._has_seen(word):
                text = (
                    f"{attempt.batch_id} is {word.state} since {word.controlled_at_ms}, minted {attempt.minted_at_ms}"
                )
                raise Violation("nothing starts for a batch that stands still", text, attempt.item_key)

    def _has_seen(self, word: BatchControlled) -> bool:
        """Whether the acting process has looked so often since a word that it must know it: views may show late."""
        steps = self._steps[word.batch_id].get(self._actor, 0)
        return self._world.steps_of(self._actor) - steps > _LOOKS_UNTIL_SEEN

    def _settled(self, message: ItemSettled) -> None:
        key = (message.batch_id, message.generation, message.ordinal, message.revision)
        if key in self.settled:
            raise Violation("each waiter is settled once", f"{key}", message.item_key)
        self.settled[key] = message

    def _answered(self, message: AttemptAnswered) -> None:
        self.answered.append(message)

    def _published(self, message: BatchPublished) -> None:
        self.published.append(message)

    # -- the end

    def is_drained(self) -> bool:
        return self._left() is None

    def not_drained(self) -> None:
        left = self._left() or "a job that has not ended"
        states = {batch: f"{row.state} ({row.reason})" for batch, row in self.publications.items()}
        raise Violation("every queue drains", f"{left}; {states}")

    def _left(self) -> str | None:
        """What is still to be done."""
        world = self._world
        for service, topic in _CONSUMED:
            lag = world.lag(service, topic)
            if lag:
                return f"{service} is {lag} behind in {topic}"
        for row in self.items.values():
            if row.state in _OPEN_ITEM:
                return f"item {row.item_key} is {row.state}"
        for shard in self.shards.values():
            if shard.state is not ShardState.DONE:
                return f"shard {shard.shard_id} is {shard.state}"
        if world.provider.running:
            return "a call is in flight"
        return next((left for left in map(self._left_with, world.processes) if left), None)

    def _left_with(self, process: "Process") -> str | None:
        if process.caller is not None and not process.caller.idle:
            return f"calls of {process.name}"
        entries = self._world.disks.folder(process.outbox_path).entries
        if not process.retired and any(key.startswith(b"n/") for key in entries):
            return f"answers in the outbox of {process.name}"
        if process.turns is not None and process.turns.waiting:
            return f"effects of {process.name}"
        return None

    def at_end(self) -> None:
        """Everything together."""
        from simulation.final import check_all

        check_all(self._world)


def _overspends(row: PublicationRow) -> bool:
    """It goes on although its budget is spent."""
    budget = None if row.sealed is None else row.sealed.budget_nano_usd
    goes_on = row.state in (BatchState.QUEUED, BatchState.RUNNING)
    return goes_on and budget is not None and row.totals.cost_nano_usd > budget


_LOOKS: dict[type[Any], Any] = {
    ItemStateRow: Checker._item_row,
    ShardStateRow: Checker._shard_row,
    PublicationRow: Checker._publication_row,
    BatchControlled: Checker._control,
    BatchSealed: Checker._sealed,
    ItemPlanned: Checker._planned,
    ShardDispatched: Checker._dispatched,
    ItemSettled: Checker._settled,
    AttemptAnswered: Checker._answered,
    BatchPublished: Checker._published,
}
