"""The benchmark's own arithmetic, without a benchmark: what a figure means, and when a goal is missed."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.batch_script import BATCH_SCRIPT, run_batch_script
from bench.clients import BARE_POOL, SDK
from bench.gateway_alone import GATEWAY
from bench.goals import BUDGET_US, Goal, goals
from bench.instant_gateway import InstantCaller
from bench.line import LINE
from bench.profiling import count_stacks
from bench.report import problems, render
from bench.scenarios import Outcome
from bench.usage import Snapshot, disk_bytes
from bench.workload import Run, workload
from kit.simulator import Simulator
from nightmill.provider_gateway.caller import Call, CallResult, Permit
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.render import Renderer
from unit.provider_gateway.makers import make_access, make_documents, make_order, make_shard

LANE = "sim@0-0"


def make_run(
    subject: str, *, items: int = 1_000, elapsed_s: float = 1.0, us: int = 0, problem: str | None = None
) -> Run:
    """A run of which each budgeted process used `us` µs per item."""
    cpu_s = dict.fromkeys(BUDGET_US, us * items / 1000000.0)
    return Run(subject=subject, items=items, elapsed_s=elapsed_s, cpu_s=cpu_s, load_before=0.0, problem=problem)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("measured", "at_most", "missed_by"),
    [
        (1_000, False, None),
        (900, False, 0.1),  # 100 of 1,000 lacking
        (1_250, True, 0.25),  # 250 of 1,000 too much
        (1_000, True, None),
        (None, True, None),
    ],
)
def test_by_how_much_a_goal_is_missed(measured: float | None, at_most: bool, missed_by: float | None) -> None:
    goal = Goal(text="", unit="", wanted=1_000, measured=measured, at_most=at_most)
    assert goal.missed_by == (None if missed_by is None else pytest.approx(missed_by))


def test_repetitions_count_by_their_median() -> None:
    """Q5: one slow repetition of three does not decide."""
    runs = [make_run(LINE, elapsed_s=seconds) for seconds in (0.5, 0.4, 9.0)]
    found = goals([Outcome(scenario="instant", runs=(run,)) for run in runs])
    assert found[0].measured == 2_000  # 1,000 items in 0.5 s


def test_a_ratio_needs_both_sides_whole() -> None:
    runs = (make_run(BARE_POOL, elapsed_s=1.0), make_run(LINE, elapsed_s=2.0))
    assert [goal.measured for goal in goals([Outcome(scenario="realtime-200", runs=runs)])] == [0.5]
    broken = (make_run(SDK, problem="a call failed"), make_run(LINE))
    assert [goal.measured for goal in goals([Outcome(scenario="realtime-0", runs=broken)])] == [1_000, None]


def test_growth_is_told_against_the_smallest_run() -> None:
    runs = (make_run(LINE, items=100, us=100), make_run(LINE, items=1_000, us=120))
    (goal,) = goals([Outcome(scenario="growth", runs=runs)])
    assert goal.measured == pytest.approx(1.2)
    assert goal.missed_by == pytest.approx(0.05 / 1.15)


def test_memory_is_told_for_each_size() -> None:
    """E6: the most that any repetition held; 300 MB are 286 MiB."""
    runs = [replace(make_run(GATEWAY, items=100), peak_rss_mib={"provider_gateway": mib}) for mib in (200.0, 286.0)]
    more = replace(make_run(GATEWAY, items=1_000), peak_rss_mib={"provider_gateway": 300.3})
    found = goals([Outcome(scenario="bulk-memory", runs=(run, more)) for run in runs])
    assert [(goal.measured, goal.missed_by) for goal in found] == [(286.0, None), (300.3, pytest.approx(0.05))]


def test_the_simulator_is_told_by_what_it_uses_for_one_client() -> None:
    """E12: 40 µs a line are 25,000 a second of a core, however long the client took."""
    script = replace(make_run(BATCH_SCRIPT, items=100, elapsed_s=9.0), cpu_s={"client": 1.0, "simulator": 0.004})
    told = goals([Outcome(scenario="bulk", runs=(script, make_run(LINE)))])[-1]
    assert told.measured == pytest.approx(25_000)
    assert told.missed_by is None


def test_the_script_reads_every_answer(tmp_path: Path) -> None:
    """Q5: what the bulk lane is compared with does all that a script has to do, and is billed once for each text."""
    with Simulator() as simulator:
        run = run_batch_script(workload("script", 30), folder=tmp_path, simulator=simulator)
        assert (run.problem, simulator.ledger()["delivered"]["calls"]) == (None, 30)
        simulator.set_scenario({"faults": [{"kind": "batch_expires", "keep": 0.5, "first": 2}]})
        broken = run_batch_script(workload("script", 30), folder=tmp_path, simulator=simulator)
    assert "expired" in (broken.problem or "")


def test_the_report_marks_what_is_missed_and_what_is_not_whole() -> None:
    outcomes = [
        Outcome(scenario="instant", runs=(make_run(LINE, us=100, elapsed_s=1.0),), busy_cores_before=1.5),
        Outcome(scenario="again", runs=(make_run(LINE, problem="published: 1 of 1000 items are missing"),)),
    ]
    report = render(outcomes, ["rest: no broker"])
    assert "**1,000, missed by 50%**" in report
    assert "cores busy with other work before: 1.5: the figures suffer" in report
    assert problems(outcomes) == [f"again: {LINE}, 1,000 items: published: 1 of 1000 items are missing"]
    assert "- rest: no broker" in report


def test_stacks_add_up_to_shares() -> None:
    profile = count_stacks(
        [
            "main;main (nightmill/cli/main.py:1);step (nightmill/loop.py:1);dumps (json.py:9) 3",
            "main;main (nightmill/cli/main.py:1);step (nightmill/loop.py:1);step (nightmill/loop.py:1) 1",
            "starting 5",
        ],
        {"python": 1.0},
    )
    assert profile is not None
    assert profile.samples == 4
    assert profile.self_share == {"dumps (json.py:9)": 0.75, "step (nightmill/loop.py:1)": 0.25}
    assert profile.inclusive_share == {"step (nightmill/loop.py:1)": 1.0}
    assert count_stacks(["starting 5"], {}) is None


def test_a_process_that_was_started_again_has_no_figure() -> None:
    before = Snapshot(cpu_s={"planner": (10, 1.0), "ledger": (11, 1.0)})
    after = Snapshot(cpu_s={"planner": (10, 1.5), "ledger": (12, 0.2)})
    assert after.since(before) == {"planner": 0.5, "ledger": None}


def test_holes_in_files_take_no_disk(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "whole").write_bytes(os.urandom(65_536))
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(1 << 30)
    assert 65_536 <= disk_bytes(tmp_path) < 1 << 20


def test_the_instant_caller_keeps_permits_and_leaves_answers_in_the_outbox(tmp_path: Path) -> None:
    """M4: what it stands in for, the line may rely on: no call without a permit, no answer that is not durable."""
    documents, outbox = make_documents(tmp_path / "blobs"), Outbox(tmp_path / "outbox")
    shard, renderer = make_shard(documents, range(5)), Renderer(documents.blobs)
    access = make_access("http://127.0.0.1:1/v1")
    rendered = [renderer.call(make_order(shard, index), access, LANE) for index in range(5)]
    calls = [call for call in rendered if isinstance(call, Call)]
    caller = InstantCaller(outbox)
    caller.start(calls)
    assert len(caller.withdraw(LANE)) == 5  # nothing began without a permit
    caller.permit(LANE, Permit(slots=2, until_ms=now_ms() + 60_000))
    caller.start(calls)
    results: list[CallResult] = []
    while len(results) < 5:
        results += caller.completed()
    assert {result.answered.output for result in results} <= {'{"label": "a"}', '{"label": "b"}', '{"label": "c"}'}
    assert len(outbox.answers()) == 5
    assert outbox.marks() == {}
    assert caller.in_flight(LANE) == 0
    caller.close()
    outbox.close()
