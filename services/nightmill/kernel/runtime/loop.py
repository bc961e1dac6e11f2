"""The loop that runs a service: poll → decode → handle → commit {messages, rows, input positions} → fold → effects.

One transaction is filled for `commit_every_ms` or `commit_messages`, whichever comes first, and commits sooner when
the input is idle (`Pace`): a commit costs the broker 5-13 ms of CPU whatever its size. It always carries the positions
of all owned partitions under the group's generation, ticks included, so that whatever a zombie decides is fenced.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nightmill.kernel.runtime.handling import Handling
from nightmill.kernel.runtime.log import Aborted, Assignment, Log, Outgoing, Place, Record, Unfit
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.outbound import Outbound
from nightmill.kernel.runtime.ownership import OwnedPartition, Ownership
from nightmill.kernel.runtime.rest import Rest
from nightmill.kernel.runtime.service import NOTHING, Decision, Service, Stall, StartOver, Unavailable, Wait
from nightmill.kernel.runtime.stalls import REST_MS, Stalls
from nightmill.kernel.runtime.suspect import Suspect
from nightmill.kernel.runtime.table import Views, viewed_by
from nightmill.kernel.runtime.transaction import Pace, Transaction
from nightmill.kernel.wire.topics import CHANNELS

log = logging.getLogger(__name__)

_OPEN_POLL_S = 0.005  #: while a transaction is open: input that is not there by now makes the loop idle, and it commits


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step did."""

    records: int
    committed: bool


class Loop:
    """Runs `service` as the member `instance` of its group. One thread; `step` is all there is."""

    def __init__(
        self,
        service: Service,
        log_: Log,
        *,
        instance: str,
        state_dir: Path,
        clock_s: Callable[[], float],
        pace: Pace | None = None,
    ) -> None:
        self._service = service
        self._clock_s = clock_s
        self._pace = pace or Pace()
        inputs = [c for c in CHANNELS if service.name in c.consumers]
        self._outbound = Outbound(service.name, log_.partitions)
        with ExitStack() as opened:
            self._suspect = Suspect(state_dir / "handling")
            opened.callback(self._suspect.close)
            self._handling = Handling(service, inputs, self._suspect)
            self._views = Views(log_, viewed_by(service.name), clock_s)
            service.attach_views(self._views.by_message)
            self._session = log_.session(service.name, instance, [c.name for c in inputs])
            opened.pop_all()  # a broker that is away at the start leaves no file open
        self._owned = Ownership(service, log_, inputs, state_dir, clock_s)
        self._open = Transaction()
        self._committed_ms = 0
        self._rest = Rest(self._session, self._owned)
        self._stalls = Stalls(service.name, instance)

    @property
    def partitions(self) -> list[int]:
        """Numbers of the owned partitions."""
        return sorted(self._owned.parts)

    def owned(self) -> list[OwnedPartition]:
        """The owned partitions."""
        return list(self._owned.parts.values())

    def step(self, now_ms: int, timeout_s: float = 0.0) -> Step:
        """One turn. Blocks at most `timeout_s` for input (and for as long as a commit or a restore takes).

        Raises `LogUnavailable`, `Fenced`, `OutcomeUnknown`, `OffsetHole`, `Unfit` (of a tick), and whatever a
        handler raises: the process ends then, and its restart goes on from the last commit.
        """
        limit = 1 if self._suspect.searching else self._pace.poll_records
        polled = self._session.poll(self._patience_s(now_ms, timeout_s), limit)
        self._assign(polled.assignment, now_ms)
        self._views.refresh()
        self._owned.at(now_ms)
        try:
            resting = self._rest.lasts(now_ms, nothing_open=self._open.is_empty)
            self._work(polled.records)
            idle = not polled.records and not self._service.busy()
            due = self._open.is_due(now_ms, self._pace, idle=idle, committed_ms=self._committed_ms)
            committed = due and not resting and self._commit(now_ms)
        except (Aborted, StartOver) as error:
            self._undo(error)
            self._rest.after_abort(now_ms)
            committed = False
        except Unfit as error:
            self._blame(error)
            committed = False
        except Unavailable as error:
            # of a tick, which may have done half its work in memory: begin again from the last commit
            self._undo(error)
            self._stalls.note(Stall(subject="tick", reason=str(error)), now_ms)
            self._rest.begin(now_ms, REST_MS)
            committed = False
        self._tell_stalls(now_ms)
        return Step(records=len(polled.records), committed=committed)

    def close(self) -> None:
        """Orderly stop: the open transaction is committed, local copies know how far they are."""
        try:
            self._commit(None)
            self._owned.note_ends()
        except (Aborted, StartOver, Unfit):
            self._owned.discard()
        self._owned.release()
        self._session.close()
        self._views.close()
        self._suspect.close()
        self._service.close()

    def abandon(self) -> None:
        """Let go of local files without committing, as after a crash."""
        self._owned.abandon()
        self._suspect.close()

    def _patience_s(self, now_ms: int, timeout_s: float) -> float:
        """How long to wait for input: while a transaction is open, until an idle loop may commit it."""
        if self._open.is_empty:
            return timeout_s
        gap_s = (self._committed_ms + self._pace.commit_gap_ms - now_ms) / 1000
        return min(timeout_s, max(_OPEN_POLL_S, gap_s))

    def _undo(self, error: Exception) -> None:
        """Nothing of the open transaction happened."""
        log.warning("transaction aborted", extra={"action": "transaction_aborted", "reason": str(error)})
        metrics.count("transactions", outcome="aborted")
        self._open = Transaction()
        self._owned.rewind(self._session)
        self._rest.rewound()

    def _blame(self, error: Unfit) -> None:
        """Find the record of the open transaction whose outcome the log can not take; a tick's own ends the process."""
        if not self._open.handled:
            raise error
        self._suspect.search(self._open.handled, str(error))
        self._undo(error)

    def _tell_stalls(self, now_ms: int) -> None:
        reports = self._stalls.due(self._service.stalls(), now_ms)
        if reports:
            self._session.send_now(self._outbound.records(reports))

    def _assign(self, change: Assignment, now_ms: int) -> None:
        if not change.lost and not change.gained:
            return
        if change.lost:
            self._open = Transaction()
            self._owned.discard()
        for number in change.lost:
            self._owned.close(number)
        if change.gained:  # what their last owners, and we, wrote elsewhere is seen before anything is decided
            self._views.catch_up(self._clock_s)
        for number in change.gained:
            self._owned.open(number, change.starts, now_ms)
        metrics.gauge("partitions_open", len(self.partitions))
        log.info("partitions assigned", extra={"action": "partitions_assigned", "partitions": self.partitions})

    def _work(self, records: Sequence[Record]) -> None:
        parts = self._owned.parts
        if self._rest.stalled:
            for record in records:
                self._hold(parts[record.place.partition], record)
            return
        for part in parts.values():
            for topic in list(part.held):
                self._release(part, topic)
        for record in records:
            part = parts[record.place.partition]
            queue = part.held.get(record.place.topic)
            if queue is not None:
                queue.append(record)
            else:
                self._take(part, record)
        for part in parts.values():
            self._apply(part, self._service.on_tick(part))

    # -- records

    def _release(self, part: OwnedPartition, topic: str) -> None:
        queue = part.held.pop(topic)
        while queue:
            record = queue.popleft()
            self._take(part, record)
            if topic in part.held:
                part.held[topic].extend(queue)
                return
        self._session.resume(Place(topic, part.number))

    def _take(self, part: OwnedPartition, record: Record) -> None:
        apart = self._suspect.apart(record)
        if apart:
            self._commit(part.now_ms)
        outcome = self._handling.outcome(part, record, self._open.outgoing)
        if isinstance(outcome, Wait):
            self._suspect.handled()
            self._stalls.note(Stall(subject=record.place.topic, reason=outcome.reason), part.now_ms)
            self._hold(part, record)
            return
        self._apply(part, outcome)
        self._suspect.handled()
        self._owned.positions[record.place] = record.offset + 1
        self._open.handled.append(record)
        if apart or self._open.size >= self._pace.commit_messages:
            self._commit(part.now_ms)

    def _hold(self, part: OwnedPartition, record: Record) -> None:
        metrics.count("records_waited", topic=record.place.topic)
        if record.place.topic not in part.held:
            self._session.pause(record.place)
            part.held[record.place.topic] = deque()
        part.held[record.place.topic].append(record)

    # -- decisions

    def _apply(self, part: OwnedPartition, decision: Decision) -> None:
        if decision is NOTHING:
            return
        for row in decision.put:
            table = part.store.tables[type(row)]
            table.stage(getattr(row, table.spec.key), row)
        for gone in decision.delete:
            part.store.tables[gone.row].stage(gone.key, None)
        if decision.send_now:
            self._session.send_now(self._outbound.records(decision.send_now))
        rows = len(decision.put) + len(decision.delete)
        self._open.add(self._outbound.records(decision.send), decision.effects, rows)

    # -- transactions

    def _commit(self, now_ms: int | None) -> bool:
        """Commit the open transaction; False when staging found its store away and everything waits."""
        if self._open.is_empty:
            return True
        if not self._flush(now_ms):
            return False
        records = [*self._open.outgoing, *self._owned.changelog()]
        self._session.commit(records, self._owned.positions)
        self._owned.fold(now_ms)
        self._rest.committed()
        self._committed_ms = now_ms or 0
        done, self._open = self._open, Transaction()
        _count(done.handled, records)
        for record in done.handled:
            self._suspect.passed(record)
        if done.effects:
            self._service.start(done.effects)
        return True

    def _flush(self, now_ms: int | None) -> bool:
        try:
            for part in self._owned.parts.values():
                self._apply(part, self._service.on_flush(part))
        except Unavailable as error:
            log.warning("staging waits", extra={"action": "staging_waits", "reason": str(error)})
            if now_ms is not None:
                self._stalls.note(Stall(subject="staging", reason=str(error)), now_ms)
            self._rest.begin(now_ms, REST_MS)
            return False
        self._rest.stall(stalled=False)
        return True


def _count(handled: Sequence[Record], written: Sequence[Outgoing]) -> None:
    metrics.count("transactions", outcome="committed")
    for topic, number in Counter(record.place.topic for record in handled).items():
        metrics.count("records_handled", number, topic=topic)
    for topic, number in Counter(record.topic for record in written).items():
        metrics.count("messages_sent", number, topic=topic)
