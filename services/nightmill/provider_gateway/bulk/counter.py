"""The bulk side of one partition's desk: its queues and its submissions."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.runtime.service import Stall, View
from nightmill.kernel.wire.messages import ProviderBatchRow, WebhookReceived
from nightmill.provider_gateway.bulk.effect import Effect, withdraw
from nightmill.provider_gateway.bulk.limits import Enqueued
from nightmill.provider_gateway.bulk.queue import BulkQueue
from nightmill.provider_gateway.bulk.submission import ENQUEUED, Submission
from nightmill.provider_gateway.bulk.wanted import Wanted
from nightmill.provider_gateway.desk import Desk
from nightmill.provider_gateway.orders import not_sent
from nightmill.provider_gateway.pools import PoolAccess

_NOT_CREATED = frozenset({ProviderBatchState.INTENT, ProviderBatchState.ARMED})


@dataclass(slots=True)
class Counter:
    """In memory; it can be built again from rows."""

    desk: Desk
    queues: dict[str, BulkQueue] = field(default_factory=dict)  #: by pool
    submissions: dict[str, Submission] = field(default_factory=dict)
    put: dict[str, ProviderBatchRow] = field(default_factory=dict)  #: rows that changed in this tick
    looked_ms: int = 0
    swept_ms: int = 0

    def queue(self, access: PoolAccess) -> BulkQueue:
        found = self.queues.get(access.name)
        if found is None:
            found = self.queues[access.name] = BulkQueue(access)
        return found

    def apply(self, submission: Submission, effect: Effect, *, wait_until_ms: int) -> None:
        """Carry over what was decided about a submission."""
        self.put.update({row.submission_id: row for row in effect.put})
        self.desk.ready.extend(effect.answers)
        if effect.again:
            queue = self.queue(submission.access)
            queue.put_back(effect.again)
            queue.due_at_ms = max(queue.due_at_ms, wait_until_ms)

    def withdraw(self, submission: Submission, now_ms: int) -> None:
        """Take a submission back that was surely not made."""
        effect = Effect()
        withdraw(submission, effect, now_ms)
        self.apply(submission, effect, wait_until_ms=now_ms)

    def call_off(self, wanted: Wanted, now_ms: int) -> None:
        """Let go of what is cancelled or goes on in realtime: what was not created is not sent.

        A submission that was made is cancelled when nobody waits for any of it.
        """
        for submission in self.submissions.values():
            unmade = submission.state in _NOT_CREATED and not submission.doubt
            if unmade and wanted.unwanted(submission.orders):
                if not submission.busy and not submission.uncommitted:
                    self.withdraw(submission, now_ms)
            elif submission.state is ProviderBatchState.SUBMITTED and submission.orders:
                submission.called_off = wanted.none_awaited(submission.orders)
        for queue in self.queues.values():
            gone = queue.called_off(wanted, now_ms)
            self.desk.ready.extend(not_sent(order, now_ms=now_ms) for order in gone)

    def heed(self, hints: View[WebhookReceived], now_ms: int) -> None:
        """Look now at batches of which their provider says that they have ended; that it is so, only the look shows."""
        for submission in self.submissions.values():
            batch_id = submission.row.provider_batch_id
            if submission.state is not ProviderBatchState.SUBMITTED or batch_id is None or submission.busy:
                continue
            hint = hints.get(batch_id)
            if hint is not None and hint.received_at_ms > submission.heeded_ms:
                submission.heeded_ms, submission.due_at_ms = hint.received_at_ms, now_ms

    def stalls(self) -> Iterator[Stall]:
        for submission in self.submissions.values():
            if submission.doubt:
                yield _doubt(submission)
            elif submission.gone_since_ms is not None:
                yield _gone(submission)
        for pool, queue in self.queues.items():
            if queue.blocked is not None:
                yield Stall(subject=f"bulk input for {pool}", pool=pool, reason=queue.blocked)


def enqueued_tokens(
    pool: str, counters: Collection[Counter], everyones: View[ProviderBatchRow], *, partitions: int
) -> Enqueued:
    """What the provider counts as enqueued of a pool, or may count: of `counters`, and of other processes."""
    mine = {each.row.submission_id: each.row for counter in counters for each in counter.submissions.values()}
    others = (row for row in everyones.values() if row.submission_id not in mine)
    here, elsewhere = (
        sum(row.input_tokens for row in rows if row.pool == pool and row.state in ENQUEUED)
        for rows in (mine.values(), others)
    )
    return Enqueued(here=here, elsewhere=elsewhere, owned=len(counters), partitions=partitions)


def _gone(submission: Submission) -> Stall:
    row = submission.row
    return Stall(
        subject=f"submission {row.submission_id}",
        pool=row.pool,
        reason=f"pool {row.pool}: the provider says that it has not {_what(submission)}; "
        "they are looked for, and nothing of it is sent again",
        until_ms=submission.due_at_ms,
    )


def _what(submission: Submission) -> str:
    batch = f"batch {submission.row.provider_batch_id}"
    if not submission.lacks:
        return f"{batch}, or not its results"
    return f"the results of {batch} in its {' and '.join(submission.lacks)} file"


def _mute(submission: Submission) -> str:
    if not submission.mute:
        return ""
    return (
        f". It may be batch {submission.mute[0]}, which has ended with results that do not tell: after days its items "
        "are dead letters; delete that batch at the provider to send them again now, which may pay twice"
    )


def _doubt(submission: Submission) -> Stall:
    row = submission.row
    return Stall(
        subject=f"submission {row.submission_id}",
        pool=row.pool,
        reason=f"pool {row.pool}: a submission of {row.requests} requests may have reached the provider; it is looked "
        f"for, and not made again before the provider has said that it is not there{_mute(submission)}",
        until_ms=submission.due_at_ms,
    )
