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
    Waiter,
)
from nightmill.kernel.wire.topics import CHANNELS, TABLES
from simulation.capacity import Capacity
from simulation.looks import has_seen, looks_of_all
from simulation.provider import MARKER
from simulation.spending import Spending
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.world import World

_PLAIN = frozenset(vars(logging.makeLogRecord({})))
_OPEN_ITEM = frozenset({ItemState.READY, ItemState.DISPATCHED, ItemState.RETRY_WAIT, ItemState.REPAIR})
_WRITTEN: tuple[Topic | Table, ...] = (*CHANNELS, *TABLES)
_CODECS = {channel.name: codecs()[channel.message] for channel in _WRITTEN}
_CONSUMED = [(service, channel.name) for channel in CHANNELS for service in channel.consumers]


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
        self.words: dict[tuple[str, int], BatchControlled] = {}  #: the last one to each generation of a batch
        self.minted: dict[tuple[str, int], int] = {}
        self.answered: list[AttemptAnswered] = []
        self.spending = Spending(world)
        self._capacity = Capacity(world)
        self._actor = ""  #: whose commit is looked at
        self._looks: dict[tuple[str, int], dict[str, int]] = {}  #: of each process when such a word was committed

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
            if self._world.bulk is not None:
                self._world.bulk.checks.committed(actor, record, message)
            look = _LOOKS.get(type(message))
            if look is not None:
                look(self, message)
        if self._world.bulk is not None:
            self._world.bulk.checks.whole()

    def heard(self, record: logging.LogRecord) -> None:
        """No log line holds document text."""
        if self._world.bulk is not None:
            self._world.bulk.checks.heard(record)
        extra = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        line = f"{record.getMessage()} {extra}"
        if MARKER in line:
            raise Violation("no log line holds document text", line.replace(MARKER, "…")[:300])

    def calls_in_flight(self) -> None:
        """What arrived at the provider since the last time."""
        self._capacity.look()

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
        if row.state is ItemState.CANCELLED and before.state is not ItemState.CANCELLED:
            for waiter in before.waiters:
                self._forgotten(waiter, row)

    def _forgotten(self, waiter: Waiter, row: ItemStateRow) -> None:
        """A row was cancelled under a waiter: its batch must have been cancelled, or go on in a newer generation."""
        batch, generation = waiter.batch_id, waiter.generation
        word = self.words.get((batch, generation))
        cancelled = word is not None and word.state is ControlState.CANCELLED
        if not cancelled and (batch, generation + 1) not in self.words:
            raise Violation(
                "no live waiter is forgotten", f"{batch} g{generation}: {word and word.state}", row.item_key
            )

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
        self.spending.accounted(row)

    def _control(self, word: BatchControlled) -> None:
        self._looks[word.batch_id, word.generation] = looks_of_all(self._world)
        self.words[word.batch_id, word.generation] = word

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
            if not again:
                self.spending.minted(self._actor, attempt)
            minted = self.minted.setdefault(key, attempt.minted_at_ms)
            if minted != attempt.minted_at_ms:
                raise Violation("an attempt is minted once", f"ordinal {attempt.ordinal}", attempt.item_key)
            word = self.words.get((attempt.batch_id, attempt.generation))
            stands = word is not None and word.state is not ControlState.RUNNING and not again
            if word is not None and stands and attempt.minted_at_ms > word.controlled_at_ms and self._has_seen(word):
                text = (
                    f"{attempt.batch_id} g{word.generation} is {word.state} since {word.controlled_at_ms}, "
                    f"minted {attempt.minted_at_ms}"
                )
                raise Violation("nothing starts for a batch that stands still", text, attempt.item_key)

    def _has_seen(self, word: BatchControlled) -> bool:
        """Whether the acting process has looked so often since a word that it must know it: views may show late."""
        return has_seen(self._world, self._actor, self._looks[word.batch_id, word.generation])

    def _settled(self, message: ItemSettled) -> None:
        key = (message.batch_id, message.generation, message.ordinal, message.revision)
        if key in self.settled:
            raise Violation("each waiter is settled once", f"{key}", message.item_key)
        self.settled[key] = message
        word = self.words.get((message.batch_id, message.generation + 1))
        if word is not None and self._has_seen(word):
            text = f"{message.batch_id} g{message.generation} goes on as g{word.generation}"
            raise Violation("an older generation is told nothing", text, message.item_key)

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
        bulk = None if world.bulk is None else world.bulk.checks.left()
        return bulk or next((left for left in map(self._left_with, world.processes) if left), None)

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
