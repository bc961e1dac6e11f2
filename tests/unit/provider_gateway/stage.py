"""A gateway on a stage: one partition, leases that are granted as asked, and a scripted caller."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.partition import DictView, StagePartition
from nightmill.kernel.domain.failures import FailureClass
from nightmill.kernel.domain.lifecycle import ShardState
from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    BatchControlled,
    LaneChoiceRow,
    LeaseAmounts,
    LeaseGranted,
    LeaseRequested,
    ProviderBatchRow,
    ShardDispatched,
    ShardStateRow,
    WebhookReceived,
)
from nightmill.provider_gateway.bulk.worker import ThreadRunner
from nightmill.provider_gateway.caller import CLOSED, Call, CallResult, Permit
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.groups import ended
from nightmill.provider_gateway.outbox import Landed, Outbox
from nightmill.provider_gateway.pools import PoolAccess
from nightmill.provider_gateway.service import ProviderGateway
from unit.provider_gateway.makers import BATCH, NOW_MS, POOL, make_access, make_control, make_documents, make_shard


@dataclass
class ScriptedCaller:
    """Satisfies `Caller`: calls begin within permits at once and end when the test says so."""

    outbox: Outbox
    clock_ms: Callable[[], int]
    permits: dict[str, Permit] = field(default_factory=dict)
    begun: list[Call] = field(default_factory=list)
    waiting: dict[str, deque[Call]] = field(default_factory=dict)
    _done: list[CallResult] = field(default_factory=list)

    def permit(self, lane: str, permit: Permit) -> None:
        self.permits[lane] = permit
        self._begin()

    def start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.waiting.setdefault(call.lane, deque()).append(call)
        self._begin()

    def withdraw(self, lane: str) -> list[Call]:
        return list(self.waiting.pop(lane, ()))

    def in_flight(self, lane: str) -> int:
        return sum(call.lane == lane for call in self.begun)

    def unsent(self, lane: str) -> frozenset[str]:
        return frozenset(call.order.key for call in self.waiting.get(lane, ()))

    def completed(self) -> list[CallResult]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        self.waiting.clear()

    def answer(self, reply: Response, count: int | None = None) -> None:
        """End the first `count` calls in flight (all of them by default) with this response."""
        count = len(self.begun) if count is None else count
        ending, self.begun = self.begun[:count], self.begun[count:]
        for call in ending:
            now_ms = self.clock_ms()
            result = ended(call, reply, started_at_ms=now_ms, ended_at_ms=now_ms)
            if result.failure and result.failure.failure_class in (FailureClass.CAPACITY, FailureClass.ACCOUNT):
                self.permits[call.lane] = CLOSED
            self.outbox.write([], [Landed(partition=call.order.partition, answered=each) for each in result.answers])
            self._done.append(result)
        self._begin()

    def _begin(self) -> None:
        for lane, calls in self.waiting.items():
            permit = self.permits.get(lane)
            while calls and permit and self.clock_ms() < permit.until_ms and self.in_flight(lane) < permit.slots:
                call = calls.popleft()
                self.outbox.write([(order.key, order.partition) for order in call.orders], [])
                self.begun.append(call)


class Stage:
    """A gateway with one partition, a lease that is granted as asked, and commits when the test says so."""

    def __init__(
        self,
        folder: Path,
        *,
        rows: Sequence[Mapping[str, Any]] = (),
        access: PoolAccess | None = None,
        instance: str = "0",
        slots: int = 4,
        running: Sequence[int] = (),
    ) -> None:
        """`running`: rows of the shard that an earlier life had accepted."""
        self.folder, self.slots = folder, slots
        self.documents = make_documents(folder / "blobs", rows)
        self.access = access or make_access()
        self.controls: DictView = DictView({BATCH: make_control()})
        self.rows: dict[str, Any] = {}
        if running:
            self.rows["s1"] = ShardStateRow(
                shard_id="s1",
                state=ShardState.ACCEPTED,
                shard=make_shard(self.documents, running),
                answered=(),
                owner=instance,
                accepted_at_ms=NOW_MS,
            )
        self.now_ms = NOW_MS
        self.granting = True
        self.start(instance)

    def start(self, instance: str = "0") -> None:
        """A process begins: everything in memory is new, the outbox and the committed rows are not."""
        self.outbox = Outbox(self.folder / f"outbox-{instance}")
        self.caller = ScriptedCaller(self.outbox, lambda: self.now_ms)
        self.gateway = ProviderGateway(
            instance=instance,
            pools={POOL: self.access},
            blobs=self.documents.blobs,
            outbox=self.outbox,
            caller=self.caller,
            runner=ThreadRunner(
                self.folder / f"bulk-{instance}",
                blobs=self.documents.blobs,
                authorizations={},
                clock_ms=lambda: self.now_ms,
                request_s=60.0,
            ),
        )
        views: dict[type[Any], DictView] = {
            BatchControlled: self.controls,
            LaneChoiceRow: DictView(),
            ProviderBatchRow: DictView(),
            WebhookReceived: DictView(),
        }
        self.gateway.attach_views(views)
        self.part = StagePartition(self.gateway, now_ms=self.now_ms)
        self._row_table().rows.update(self.rows)
        self.gateway.on_open(self.part)

    def crash(self, instance: str = "0") -> None:
        """The process ends between two steps, uncommitted work is lost, and another begins."""
        self.outbox.close()
        self.start(instance)

    def dispatch(self, shard: ShardDispatched) -> None:
        decision = self.gateway.on_shard_dispatched(shard, self.part)
        self.part.apply(decision)  # type: ignore[arg-type]
        self.commit()

    def step(self, after_ms: int = 20) -> None:
        """One turn of the loop, without a commit; the governor answers what was asked."""
        self.now_ms += after_ms
        self.part.now_ms = self.now_ms
        decision = self.part.apply(self.gateway.on_tick(self.part))
        for ask in decision.send_now:
            if self.granting and isinstance(ask, LeaseRequested):
                self.gateway.on_lease_granted(granted(ask, self.slots, self.now_ms), self.part)

    def commit(self) -> None:
        self.part.apply(self.gateway.on_flush(self.part))
        effects = list(self.part.effects)
        self.part.effects.clear()
        self.rows = dict(self._row_table().rows)
        self.gateway.start(effects)

    def run(self, reply: Response, *, steps: int = 6) -> list[AttemptAnswered]:
        """Step and commit a while, every call ending with `reply`; returns what was sent."""
        for _ in range(steps):
            self.step()
            self.caller.answer(reply)
            self.step()
            self.commit()
        return self.sent()

    def sent(self) -> list[AttemptAnswered]:
        return list(self.part.sent)

    def row(self, shard_id: str = "s1") -> ShardStateRow:
        row: ShardStateRow = self._row_table().get(shard_id)
        return row

    def close(self) -> None:
        self.gateway.close()

    def _row_table(self) -> Any:
        return self.part.table(ShardStateRow)


def granted(ask: LeaseRequested, slots: int, now_ms: int) -> LeaseGranted:
    """A governor without limits but slots."""
    return LeaseGranted(
        pool=ask.pool,
        holder=ask.holder,
        holder_partition=ask.holder_partition,
        epoch=ask.epoch,
        seq=ask.seq,
        granted=LeaseAmounts(requests=10**6, input_tokens=10**9, output_tokens=10**9),
        slots=slots,
        ttl_ms=4_000,
        granted_at_ms=now_ms,
    )
