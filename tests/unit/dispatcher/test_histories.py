"""Any history of plans, answers, ticks, repeats, rewinds, holds, cancels and resumes, then the end of it.

What holds at each moment: nobody is told twice, nobody is told what the publisher fenced off, no call is charged twice,
an ended item absorbs every judgement, the retry budget bounds calls, and what the process keeps in memory says what the
rows say. What holds in the end: every live plan is settled.
"""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nightmill.dispatcher.backlog import Backlog
from nightmill.kernel.domain.failures import Billed, FailureClass
from nightmill.kernel.domain.lifecycle import ENDED_ITEM, AttemptState, ControlState, ItemOutcome, ItemState, Reuse
from nightmill.kernel.domain.lifecycle import VerdictKind as V
from nightmill.kernel.wire.messages import AttemptJudged, ItemPlanned, ItemStateRow, ShardAttempt, Verdict
from unit.dispatcher.stage import A, B, C, Stage, failed, failure, judged, pool, verdict
from unit.dispatcher.stage import config as make_config

BATCHES = st.sampled_from([A, B, C])
KEYS = [f"item-{n}" for n in range(4)]
RUNNING, HELD, CANCELLED = ControlState.RUNNING, ControlState.HELD, ControlState.CANCELLED
ATTEMPTS = 3  # of the stage's pipeline

VERDICTS = [verdict(V.ACCEPTED), verdict(V.REPAIRABLE), verdict(V.REVIEW), verdict(V.REJECTED)]
FAILURES = [
    (failure(FailureClass.TRANSIENT, billed=Billed.UNKNOWN), AttemptState.FAILED),
    (failure(FailureClass.CAPACITY), AttemptState.FAILED),
    (failure(FailureClass.ACCOUNT), AttemptState.NOT_SENT),
    (failure(FailureClass.BAD_INPUT), AttemptState.FAILED),
    (failure(FailureClass.POLICY, billed=Billed.YES), AttemptState.FAILED),
    (None, AttemptState.NOT_SENT),
    (None, AttemptState.UNKNOWN),
]


def identity(attempt: ShardAttempt) -> tuple[str, int]:
    return attempt.item_key, attempt.ordinal


class Histories(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.stage = Stage(Path(self.folder.name), settings=make_config(small=pool()))
        self.plans: list[ItemPlanned] = []
        self.attempts: dict[tuple[str, int], ShardAttempt] = {}
        self.answers: dict[tuple[str, int], AttemptJudged] = {}
        self.seen = 0
        self.told: Counter[tuple[str, str, int, int]] = Counter()
        for batch in (A, B, C):
            self.stage.say(batch)

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self.finish()
            self.folder.cleanup()

    # what happens

    @rule(batch=BATCHES, key=st.sampled_from(KEYS), reuse=st.sampled_from(list(Reuse)))
    def plan(self, batch: str, key: str, reuse: Reuse) -> None:
        word = self.stage.view.rows[batch]
        fields: dict[str, Any] = {"generation": word.generation, "reuse": reuse, "ordinal": KEYS.index(key)}
        message = self.stage.planned(batch, key, **fields)
        if word.state is not CANCELLED and not any(self.same_plan(message, each) for each in self.plans):
            self.plans.append(message)
            self.take(message)

    def same_plan(self, one: ItemPlanned, other: ItemPlanned) -> bool:
        return (one.batch_id, one.generation, one.item_key) == (other.batch_id, other.generation, other.item_key)

    @precondition(lambda self: self.plans)
    @rule(data=st.data())
    def plan_again(self, data: st.DataObject) -> None:
        self.take(data.draw(st.sampled_from(self.plans)))

    def take(self, message: ItemPlanned) -> None:
        before = len(self.stage.settled())
        self.stage.take_plan(message)
        assert len(self.stage.settled()) - before <= 1

    @precondition(lambda self: self.attempts.keys() - self.answers.keys())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.attempts.keys() - self.answers.keys())))
        attempt = self.attempts[key]
        said = data.draw(st.one_of(st.sampled_from(VERDICTS), st.sampled_from(FAILURES)))
        message = judged(attempt, said) if isinstance(said, Verdict) else failed(attempt, *said)
        self.answers[key] = message
        self.judge(message)

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), late=st.booleans())
    def answer_again(self, data: st.DataObject, late: bool) -> None:
        """The same judgement again; or, of a call whose outcome was not known, the answer."""
        key = data.draw(st.sampled_from(sorted(self.answers)))
        message = self.answers[key]
        if late and message.attempt.state is AttemptState.UNKNOWN:
            message = judged(self.attempts[key], VERDICTS[0], late=True)
            self.answers[key] = message
        self.judge(message)

    def judge(self, message: AttemptJudged) -> None:
        rows = self.stage.part.table(ItemStateRow).rows
        before = rows[message.item_key]
        self.stage.judge(message)
        if before.state in ENDED_ITEM:
            assert rows[message.item_key] == before

    @rule(later_s=st.sampled_from([0.05, 2, 200]))
    def tick(self, later_s: float) -> None:
        for attempt in self.stage.tick(later_s):
            known = self.attempts.setdefault(identity(attempt), attempt)
            assert known.minted_at_ms == attempt.minted_at_ms
            assert identity(attempt) not in self.answers, "an answered attempt is never sent again"

    @rule(batch=BATCHES, state=st.sampled_from([RUNNING, HELD, CANCELLED]))
    def control(self, batch: str, state: ControlState) -> None:
        word = self.stage.view.rows[batch]
        resumed = word.state is CANCELLED
        if resumed and state is not RUNNING:
            return
        self.stage.say(batch, state, word.generation + resumed)

    @rule()
    def restart(self) -> None:
        self.stage.start()

    # what holds always

    @invariant()
    def nobody_is_told_wrongly(self) -> None:
        settled = self.stage.settled()
        for each in settled[self.seen :]:
            place = (each.item_key, each.batch_id, each.generation)
            word = self.stage.view.rows[each.batch_id]
            assert any(place == (plan.item_key, plan.batch_id, plan.generation) for plan in self.plans)
            assert (each.generation, word.state is CANCELLED) == (word.generation, False)
            assert each.ordinal == KEYS.index(each.item_key)
            self.told[(*place, each.revision)] += 1
            assert self.told[(*place, each.revision)] == 1
            assert each.revision == 1 or (self.was_in_review(place) and each.outcome is not ItemOutcome.IN_REVIEW)
        self.seen = len(settled)

    def was_in_review(self, place: tuple[str, str, int]) -> bool:
        return any(
            (each.item_key, each.batch_id, each.generation) == place
            and (each.revision, each.outcome) == (1, ItemOutcome.IN_REVIEW)
            for each in self.stage.settled()
        )

    @invariant()
    def no_call_is_charged_twice(self) -> None:
        charged: Counter[str] = Counter()
        paid: Counter[str] = Counter()
        for each in self.stage.settled():
            charged[each.batch_id] += each.totals.attempts
            paid[each.batch_id] += each.totals.cost_nano_usd
            assert not each.reused or each.totals.attempts == 0
        for batch in charged:
            caused = [key for key, attempt in self.attempts.items() if attempt.batch_id == batch]
            costs = [self.answers[key].attempt.cost_nano_usd or 0 for key in caused if key in self.answers]
            assert charged[batch] <= len(caused)
            assert paid[batch] <= sum(costs)

    @invariant()
    def rows_are_whole(self) -> None:
        for row in self.stage.part.table(ItemStateRow).rows.values():
            waits = row.state in (ItemState.READY, ItemState.REPAIR)
            dispatched = row.state is ItemState.DISPATCHED
            assert not waits or (row.pool and row.waiters)
            assert (row.shard_id is not None) is dispatched
            assert (row.due_at_ms is not None) is (dispatched or row.state is ItemState.RETRY_WAIT)
            assert len({waiter.batch_id for waiter in row.waiters}) == len(row.waiters)
            assert row.tries < ATTEMPTS

    @invariant()
    def memory_says_what_rows_say(self) -> None:
        kept = self.stage.service._backlogs[0]
        truth = Backlog(self.stage.part.table(ItemStateRow))
        assert +kept.outstanding == +truth.outstanding
        assert (kept.ready, kept.in_bulk, +kept.tokens) == (truth.ready, truth.in_bulk, +truth.tokens)
        assert kept.queues.keys() >= truth.queues.keys()
        rows = self.stage.part.table(ItemStateRow).rows.values()
        assert kept.next_due_ms <= min((row.due_at_ms for row in rows if row.due_at_ms is not None), default=2**62)

    # and in the end

    def finish(self) -> None:
        """Holds are lifted and everything is answered well: every plan of a live generation is settled."""
        for batch in (A, B, C):
            word = self.stage.view.rows[batch]
            if word.state is HELD:
                self.stage.say(batch, RUNNING, word.generation)
        for _ in range(60):
            for key in sorted(self.attempts.keys() - self.answers.keys()):
                self.answers[key] = judged(self.attempts[key], VERDICTS[0])
                self.judge(self.answers[key])
            self.tick(200)
            self.nobody_is_told_wrongly()
            self.memory_says_what_rows_say()
        for plan in self.plans:
            word = self.stage.view.rows[plan.batch_id]
            if word.generation == plan.generation and word.state is RUNNING:
                assert self.told[(plan.item_key, plan.batch_id, plan.generation, 1)] == 1


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase
