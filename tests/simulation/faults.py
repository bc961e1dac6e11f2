"""What the scheduler does to the world: one look a turn at each fault of the seed's mix."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nightmill.kernel.runtime.log import Outgoing, Place
from nightmill.kernel.runtime.table import viewed_by
from nightmill.kernel.wire.topics import BATCH_CONTROLLED, CHANNELS
from simulation.process import Process

if TYPE_CHECKING:
    from simulation.world import World

_INPUTS = {channel.name: channel for channel in CHANNELS if channel.consumers}
#: a word of the publisher that comes a second time much later would be a new word; it is repeated at once or not at all
_REPEATED = frozenset(_INPUTS) - {BATCH_CONTROLLED.name}


class Faults:
    """Does harm, and makes it good again after a while."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._mends: list[tuple[int, Callable[[], None]]] = []
        self._repeatable: list[Outgoing] = []
        self._moves = 0
        self._kinds: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "power_cut": self._cut_power,
            "restart": self._restart,
            "pause": self._pause,
            "move": self._move,
            "rewind": self._rewind,
            "broker_away": self.lose_broker,
            "late_view": self._blind,
            "backlog": self._lengthen_backlog,
            "stuck": self._stick,
            "state_disk_full": self._fill_disk,
            "staging_away": self._lose_staging,
            "clickhouse_away": self._lose_clickhouse,
        }
        self._active = [kind for kind in self._kinds if getattr(world.mix, kind) > 0]

    def turn(self) -> None:
        """One look at each fault."""
        now_ms = self._world.now_ms
        if self._mends:
            due = [mend for at_ms, mend in self._mends if at_ms <= now_ms]
            self._mends = [(at_ms, mend) for at_ms, mend in self._mends if at_ms > now_ms]
            for mend in due:
                mend()
        for kind in self._active:
            if self._world.happens(kind):
                self._kinds[kind]()

    def end(self) -> None:
        """Everything is made good, and whoever was moved away is gone for good."""
        for _, mend in self._mends:
            mend()
        self._mends = []
        for process in self._world.processes:
            process.paused_until_ms = process.stuck_until_ms = process.blind_until_ms = 0
            process.up_at_ms = min(process.up_at_ms, self._world.now_ms)

    def remember(self, records: Sequence[Outgoing]) -> None:
        """Committed records, some of which stand in the log a second time, now or later."""
        world = self._world
        if world.mix.repeat_record == 0 or world.calm or world.broker.down:
            return
        for record in records:
            if record.topic in _REPEATED and world.happens("repeat_record"):
                self._repeatable.append(record)
        if self._repeatable and world.random.random() < 0.3:
            chosen = self._repeatable.pop(world.random.randrange(len(self._repeatable)))
            world.note("log", f"a record of {chosen.topic} stands there twice")
            world.broker.append(chosen, None)

    # -- processes

    def _anybody(self) -> Process | None:
        alive = [process for process in self._world.processes if process.alive and not process.busy]
        return self._world.random.choice(alive) if alive else None

    def _crash(self) -> None:
        process = self._anybody()
        if process is not None:
            process.die("killed between two events")

    def _cut_power(self) -> None:
        world = self._world
        world.note("world", "power cut")
        for process in world.processes:
            if process.alive:
                process.die("power cut")
        for path in sorted(world.disks.folders):
            world.disks.folders[path].cut_power(world.random)

    def _restart(self) -> None:
        process = self._anybody()
        if process is not None and process.runs:
            process.stop()

    def _pause(self) -> None:
        process = self._anybody()
        if process is not None:
            process.paused_until_ms = self._world.now_ms + self._world.random.choice((500, 4_000, 9_000, 40_000))
            self._world.note(process.name, f"is stopped for {process.paused_until_ms - self._world.now_ms} ms")

    def _stick(self) -> None:
        threaded = [process for process in self._world.processes if process.has_threads]
        if threaded:
            process = self._world.random.choice(threaded)
            process.stuck_until_ms = self._world.now_ms + self._world.random.choice((3_000, 12_000))
            self._world.note(
                process.name, f"has a loop that stands still for {process.stuck_until_ms - self._world.now_ms} ms"
            )

    def _move(self) -> None:
        """A new instance on an empty host; the old one is dead, or sleeps and comes back before it is told to go."""
        world = self._world
        movable = [p for p in world.processes if p.alive and not p.busy and p.service in world.shape.movable]
        if not movable:
            return
        service = world.random.choice(sorted({process.service for process in movable}))
        old = world.random.choice([process for process in movable if process.service == service])
        self._moves += 1
        world.note(old.name, f"moves to {old.service}-m{self._moves}")
        world.processes.append(Process(world, old.service, f"m{self._moves}", up_at_ms=world.now_ms))
        if world.random.random() < 0.5:
            self._retire(old)
            return
        old.paused_until_ms = world.now_ms + world.random.choice((0, 3_000, 12_000, 45_000))
        self._mends.append((old.paused_until_ms + world.random.choice((500, 5_000, 40_000)), lambda: self._retire(old)))

    def _retire(self, process: Process) -> None:
        process.retired = True
        if process.alive:
            process.die("its host is gone")
        self._world.disks.wipe(str(process.home))

    # -- the log

    def lose_broker(self) -> None:
        """The broker answers nobody for a while."""
        broker = self._world.broker
        broker.down = True
        self._world.note("broker", "is away")

        def mend() -> None:
            broker.down = False
            self._world.note("broker", "is back")

        self._for_a_while(mend)

    def _blind(self) -> None:
        viewers = [process for process in self._world.processes if process.alive and viewed_by(process.service)]
        if viewers:
            process = self._world.random.choice(viewers)
            process.blind_until_ms = self._world.now_ms + self._world.random.choice((1_000, 5_000, 20_000, 60_000))
            self._world.note(process.name, f"sees nothing new for {process.blind_until_ms - self._world.now_ms} ms")

    def _lengthen_backlog(self) -> None:
        self._world.backlog = True
        self._world.note("planner", "waits for the dispatcher")

        def mend() -> None:
            self._world.backlog = False

        self._for_a_while(mend)

    def _rewind(self) -> None:
        world = self._world
        if world.broker.down:
            return
        channel = world.random.choice(list(_INPUTS.values()))
        group = world.random.choice(channel.consumers)
        place = Place(channel.name, world.random.randrange(world.broker.partitions))
        at = world.broker.group(group).committed.get(place, 0)
        if at:
            back = max(0, at - world.random.randint(1, 12))
            world.note("log", f"{group} goes back from {at} to {back} in {place.topic}[{place.partition}]")
            world.broker.log().rewind(group, place, back)

    # -- surroundings

    def _for_a_while(self, mend: Callable[[], None]) -> None:
        self._mends.append((self._world.now_ms + self._world.random.choice((500, 3_000, 10_000)), mend))

    def _fill_disk(self) -> None:
        process = self._world.random.choice(self._world.processes)
        prefix = str(process.home / self._world.random.choice(("state", "outbox")))
        full = self._world.disks.full
        full.add(prefix)
        self._world.note(process.name, "disk is full")
        self._for_a_while(lambda: full.discard(prefix))

    def _lose_staging(self) -> None:
        self._world.staging_away = True
        self._world.note("world", "staging has no space")

        def mend() -> None:
            self._world.staging_away = False

        self._for_a_while(mend)

    def _lose_clickhouse(self) -> None:
        store = self._world.clickhouse
        store.away = True
        self._world.note("world", "ClickHouse is away")

        def mend() -> None:
            store.away = False

        self._for_a_while(mend)
