"""The poll thread's side of the bulk lane: which submissions there are, and what is to be done with each (E6).

Every step that costs money or can not be taken back stands in a committed row before it is made: a submission whose row
is not committed stands still until then. Answers go the way of all answers, through the desk's `ready`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import ProviderBatchEvent, ProviderBatchState
from nightmill.kernel.runtime.service import Decision, Delete, Partition, Stall, View
from nightmill.kernel.wire.messages import BatchControlled, LaneChoiceRow, ProviderBatchRow, WebhookReceived
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.counter import Counter, enqueued_tokens
from nightmill.provider_gateway.bulk.limits import Size, room
from nightmill.provider_gateway.bulk.outcomes import Outcomes
from nightmill.provider_gateway.bulk.queue import BulkQueue
from nightmill.provider_gateway.bulk.standing import Standing
from nightmill.provider_gateway.bulk.steps import Step, Timing, backoff_ms, doubt_ends_at_ms, next_step
from nightmill.provider_gateway.bulk.submission import Submission, intent, sort_out
from nightmill.provider_gateway.bulk.sweeping import needed, old_rows
from nightmill.provider_gateway.bulk.todo import errand_of
from nightmill.provider_gateway.bulk.wanted import Wanted
from nightmill.provider_gateway.desk import Desk
from nightmill.provider_gateway.orders import Order, refused
from nightmill.provider_gateway.pools import PoolAccess

_LOOK_EVERY_MS = 1_000
#: results that are on their way to publication at a time, and answers that are ready before more are read
_MOST_HARVESTS = 2
_MOST_READY = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCommitted:
    """Effect: the submission's row is committed, and it may go on."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class _Of:
    """What an errand is for, when it is not a queue's input: a step of a submission, or a look at several."""

    step: Step
    submissions: tuple[Submission, ...]


_Purpose = BulkQueue | _Of


class Office:
    """Submissions of all open partitions."""

    def __init__(
        self,
        runner: e.Runner,
        *,
        instance: str,
        partitions: int,
        pools: Mapping[str, PoolAccess],
        timing: Timing | None = None,
    ) -> None:
        self._runner, self._instance, self._pools, self._partitions = runner, instance, pools, partitions
        self._everyones: View[ProviderBatchRow]
        self._hints: View[WebhookReceived]
        self._choices: View[LaneChoiceRow]
        self._timing = timing or Timing()
        self._outcomes = Outcomes(self._timing)
        self._counters: dict[int, Counter] = {}
        self._tidied_ms: int | None = None
        self._under_way: dict[int, tuple[Counter, _Purpose]] = {}  #: by the errand's number
        self._ended: list[tuple[Counter, _Purpose, e.Ended]] = []
        self._standings = {
            name: Standing(name, access.pool.bulk) for name, access in pools.items() if access.pool.bulk is not None
        }

    def takes(self, pool: str) -> bool:
        """Whether the pool has a Batch API that can be used."""
        access = self._pools.get(pool)
        return access is not None and access.dialect is not None and pool in self._standings

    def attach(
        self, everyones: View[ProviderBatchRow], hints: View[WebhookReceived], choices: View[LaneChoiceRow]
    ) -> None:
        """See submissions of all processes (one limit is theirs), what providers told, which batches left the lane."""
        self._everyones, self._hints, self._choices = everyones, hints, choices

    # -- partitions

    def open(self, desk: Desk, part: Partition, orders: Sequence[Order]) -> None:
        """Take a partition up: its open bulk orders, in their order, and its submissions."""
        counter = self._counters[desk.number] = Counter(desk)
        rows = [row for row in list(part.table(ProviderBatchRow).index("batch_open")) if self.takes(row.pool)]
        found = sort_out(orders, [row for row in rows if row.closed_at_ms is None])
        for row in rows:
            sent = found.sent.get(row.submission_id, [])
            submission = Submission(row=row, access=self._pools[row.pool], orders=sent, due_at_ms=part.now_ms)
            counter.submissions[row.submission_id] = submission
            if row.state is ProviderBatchState.ARMED:
                submission.doubt = True
                submission.due_at_ms = doubt_ends_at_ms(submission, self._timing)
        for order in found.free:
            self.add(desk, order, part.now_ms)

    def close_partition(self, number: int) -> None:
        gone = self._counters.pop(number, None)
        self._ended = [each for each in self._ended if each[0] is not gone]

    def add(self, desk: Desk, order: Order, now_ms: int) -> None:
        """An order of a pool that the office takes."""
        self._counters[desk.number].queue(self._pools[order.shard.pool]).add(order, now_ms)

    # -- ticks

    def tick(self, desk: Desk, part: Partition, controls: View[BatchControlled]) -> Decision:
        """Everything that can be done now, before the desk's answers are taken."""
        counter, now_ms = self._counters[desk.number], part.now_ms
        self._collect()
        mine = [each for each in self._ended if each[0] is counter]
        if mine:
            self._ended = [each for each in self._ended if each[0] is not counter]
            for _, purpose, ended in mine:
                self._take_in(counter, purpose, ended, now_ms)
        self._tidy(counter, now_ms)
        if not counter.submissions and not counter.queues:
            return Decision()
        if now_ms - counter.looked_ms >= _LOOK_EVERY_MS:
            counter.looked_ms = now_ms
            counter.call_off(Wanted(controls, self._choices, part.partitions), now_ms)
            counter.heed(self._hints, now_ms)
        self._advance(counter, now_ms)
        for queue in counter.queues.values():
            self._build(counter, queue, now_ms)
        return self._decision(counter, old_rows(counter, part))

    def finish(self, desk: Desk, now_ms: int) -> Decision:
        """Submissions whose last answer goes out in this transaction; called when the desk's answers were taken."""
        counter = self._counters[desk.number]
        for submission in counter.submissions.values():
            if not desk.ready and submission.is_given and not _is_open(desk, submission):
                row = submission.move(ProviderBatchEvent.HARVEST, closed_at_ms=now_ms)
                counter.put[submission.id] = row
                submission.orders, submission.harvest, submission.due_at_ms = [], None, now_ms
        return self._decision(counter, ())

    def committed(self, effect: RowCommitted) -> None:
        submission = effect.submission
        submission.uncommitted = False

    def stalls(self) -> Iterator[Stall]:
        for standing in self._standings.values():
            stall = standing.stall()
            if stall is not None:
                yield stall
        for counter in self._counters.values():
            yield from counter.stalls()

    def busy(self) -> bool:
        return bool(self._under_way or self._ended)

    def close(self) -> None:
        self._runner.close()

    # -- what goes out

    def _advance(self, counter: Counter, now_ms: int) -> None:
        polls: dict[str, list[Submission]] = defaultdict(list)
        for submission in list(counter.submissions.values()):
            step = next_step(submission, now_ms=now_ms, timing=self._timing)
            if step is Step.WAIT or self._standings[submission.row.pool].is_paused(now_ms):
                continue
            match step:
                case Step.ARM:
                    row = submission.move(ProviderBatchEvent.ARM, armed_at_ms=now_ms)
                    counter.put[submission.id] = row
                case Step.POLL:
                    polls[submission.row.pool].append(submission)
                case Step.UPLOAD if submission.built is None:
                    # an earlier life's: nothing was created, and its input is not here
                    counter.withdraw(submission, now_ms)
                case _ if self._has_room(counter, step, submission):
                    submission.busy = True
                    errand = errand_of(step, submission, self._timing, self._known_batches())
                    self._start(counter, errand, _Of(step, (submission,)))
        for group in polls.values():
            for submission in group:
                submission.busy = True
            ids = tuple(submission.row.provider_batch_id or "" for submission in group)
            self._start(counter, e.Poll(access=group[0].access, batch_ids=ids), _Of(Step.POLL, tuple(group)))

    def _known_batches(self) -> frozenset[str]:
        everyone = (each.row for counter in self._counters.values() for each in counter.submissions.values())
        return frozenset(row.provider_batch_id for row in everyone if row.provider_batch_id is not None)

    def _has_room(self, counter: Counter, step: Step, submission: Submission) -> bool:
        """Whether what is on its way to publication leaves room for this step."""
        if step is Step.READ:
            return len(counter.desk.ready) < _MOST_READY and submission.given < len(submission.orders)
        if step is not Step.FETCH:
            return True
        everyone = (each for other in self._counters.values() for each in other.submissions.values())
        return sum(each.is_at_harvest for each in everyone) < _MOST_HARVESTS

    def _build(self, counter: Counter, queue: BulkQueue, now_ms: int) -> None:
        pool = queue.access.name
        standing = self._standings[pool]
        waits = standing.is_paused(now_ms) or standing.is_stopped(now_ms)
        if waits or not queue.is_ripe(standing.most.requests, now_ms, self._timing):
            return
        most = self._room(queue, standing)
        if most is None or any(each.queues[pool].building for each in self._counters.values() if pool in each.queues):
            return
        orders = queue.take(most.requests)
        name = f"{orders[0].shard.shard_id}-b{now_ms}"
        self._start(counter, e.Build(access=queue.access, orders=orders, most=most, name=name), queue)

    def _room(self, queue: BulkQueue, standing: Standing) -> Size | None:
        if standing.most.tokens is None:
            return standing.most
        everybody = self._counters.values()
        enqueued = enqueued_tokens(queue.access.name, everybody, self._everyones, partitions=self._partitions)
        return room(standing.most, enqueued, next_tokens=queue.next_tokens, wanted_tokens=queue.tokens)

    def _start(self, counter: Counter, errand: e.Errand, purpose: _Purpose) -> None:
        self._under_way[self._runner.start(errand)] = (counter, purpose)

    # -- what comes back

    def _collect(self) -> None:
        for ended in self._runner.completed():
            counter, purpose = self._under_way.pop(ended.number)
            if self._counters.get(counter.desk.number) is counter:
                self._ended.append((counter, purpose, ended))

    def _take_in(self, counter: Counter, purpose: _Purpose, ended: e.Ended, now_ms: int) -> None:
        if isinstance(purpose, BulkQueue):
            self._built(counter, purpose, ended.outcome, now_ms)
            return
        for submission in purpose.submissions:
            submission.busy = False
            standing = self._standings[submission.row.pool]
            if isinstance(ended.outcome, tuple):
                self._outcomes.answered(submission, standing, ended.outcome, now_ms)
                counter.desk.ready.extend(ended.outcome)
                continue
            if purpose.step is not Step.REMOVE:  # what is done is done, whether or not its files can be removed
                standing.learn_from(ended, now_ms)
            effect = self._outcomes.of(purpose.step, submission, standing, ended.outcome, now_ms)
            wait_ms = backoff_ms(standing.refusals, self._timing) if standing.refusals else 0
            counter.apply(submission, effect, wait_until_ms=now_ms + wait_ms)

    def _built(self, counter: Counter, queue: BulkQueue, outcome: e.Outcome, now_ms: int) -> None:
        taken, queue.building = queue.building, ()
        if not isinstance(outcome, e.Built):
            queue.put_back(taken)
            queue.due_at_ms = now_ms + self._timing.retry
            queue.blocked = outcome.reason if isinstance(outcome, e.Blocked) else None
            return
        queue.blocked = None
        queue.put_back(outcome.left)
        counter.desk.ready.extend(refused(order, why, now_ms=now_ms) for order, why in outcome.refused)
        if outcome.orders:
            row = intent(outcome, queue.access, owner=self._instance, now_ms=now_ms)
            submission = Submission(
                row=row, access=queue.access, orders=list(outcome.orders), due_at_ms=now_ms, built=outcome
            )
            submission.uncommitted = True
            counter.submissions[submission.id] = submission
            counter.put[submission.id] = row

    # -- rows

    def _decision(self, counter: Counter, deletes: Sequence[Delete]) -> Decision:
        rows, counter.put = tuple(counter.put.values()), {}
        effects = tuple(RowCommitted(submission=counter.submissions[row.submission_id]) for row in rows)
        for row in rows:
            if row.removed_at_ms is not None:
                del counter.submissions[row.submission_id]
        return Decision(put=rows, delete=deletes, effects=effects)

    def _tidy(self, counter: Counter, now_ms: int) -> None:
        """Now and then, for all partitions together."""
        if self._tidied_ms is None:
            self._tidied_ms = now_ms
        if not self._standings or now_ms - self._tidied_ms < self._timing.tidy:
            return
        self._tidied_ms = now_ms
        mine = (each.row for other in self._counters.values() for each in other.submissions.values())
        errand = e.Tidy(needed=needed((*mine, *self._everyones.values())), before_ms=now_ms)
        self._start(counter, errand, _Of(Step.REMOVE, ()))


def _is_open(desk: Desk, submission: Submission) -> bool:
    return any(desk.book.is_open(order.shard.shard_id, order.attempt) for order in submission.orders)
