"""Submissions that the provider may have and we do not know of: found, made again, or left to a person."""

import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.bulk import (
    PRICES,
    billed_lines,
    dead_letters,
    documents,
    listed,
    make_config,
    open_submissions,
    pipeline,
    published,
)
from kit.line import QUICK, Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.runtime.memory import MemoryBroker


@pytest.mark.parametrize(
    "faults",
    [
        [{"kind": "reset_after_billing", "on": ["batch_create"], "first": 2}],
        [{"kind": "hang", "on": ["batch_create"], "first": 2}],
        [
            {"kind": "reset_after_billing", "on": ["batch_create"], "first": 2},
            {"kind": "server_error", "on": ["batch_list"], "first": 4},
        ],
        [{"kind": "server_error", "on": ["batch_create"], "first": 2}],
        [{"kind": "reset_before_billing", "on": ["batch_create"], "first": 2}],
    ],
    ids=["reset after", "hang", "reset after, and lists fail", "500", "reset before"],
)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_create_of_unknown_outcome_is_looked_for_first(
    line: Line, simulator: Simulator, faults: list[dict[str, object]]
) -> None:
    """E6: found where it was carried out, made again only when the provider has said that it is not there."""
    simulator.set_scenario({"prices": PRICES, "faults": faults})
    notice = line.finish(line.submit(pipeline(), documents(40)))
    assert notice.state is BatchState.PUBLISHED
    assert len(billed_lines(simulator)) == 40
    assert notice.totals.unknown_attempts == 0


NO_ROWS = {"kind": "row", "form": "missing", "occurrences": [1]}
#: nobody sees the answer of the first create
ORPHAN = {"kind": "reset_after_billing", "on": ["batch_create"], "first": 1}


@pytest.fixture
def orphaned(simulator: Simulator, tmp_path: Path) -> Iterator[Callable[..., Line]]:
    """A line to Anthropic whose first submission is an orphan, with what befalls its batch."""
    lines: list[Line] = []

    def start(*faults: dict[str, object], lost_ms: int = 600_000) -> Line:
        simulator.set_scenario({"prices": PRICES, "faults": [ORPHAN, *faults]})
        config, timing = make_config(simulator.base_url, "anthropic"), replace(QUICK, lost=lost_ms, longest_retry=200)
        lines.append(Line(tmp_path, config, broker=MemoryBroker(partitions=1), bulk_timing=timing))
        return lines[-1]

    yield start
    for line in lines:
        line.close()


def may_be(line: Line) -> bool:
    return any("may pay twice" in stall.reason for stall in line.gateway.stalls())


def test_an_orphan_of_which_nothing_ran_is_made_again(orphaned: Callable[..., Line], simulator: Simulator) -> None:
    """E6: it has ended, its results are empty, and nothing of it was billed, whosever it is."""
    line = orphaned({"kind": "batch_expires", "keep": 0, "results": "none", "first": 1})
    notice = line.finish(line.submit(pipeline(), documents(20)))
    assert (notice.state, notice.totals.unknown_attempts) == (BatchState.PUBLISHED, 0)
    line.run_until(lambda: not open_submissions(line))
    (orphan,) = listed(simulator, "messages/batches")  # the other one was removed when it was harvested
    assert orphan["request_counts"]["expired"] == 20
    assert len(billed_lines(simulator)) == 20


def test_an_orphan_that_does_not_tell_is_not_paid_twice(orphaned: Callable[..., Line], simulator: Simulator) -> None:
    """E6: it was billed and its results are empty. Told while it is looked at; then a person decides."""
    line = orphaned(NO_ROWS, lost_ms=600)
    job = line.submit(pipeline(publish={"partial": True}, gates={"completion": 0}), documents(20))
    line.run_until(lambda: may_be(line))
    notice = line.finish(job)
    assert notice.counts.dead_letter == notice.totals.unknown_attempts == 20
    assert all(item.failure is not None and "may pay twice" in item.failure.message for item in dead_letters(line))
    assert len(billed_lines(simulator)) == 20


def test_who_removes_what_does_not_tell_has_decided_to_pay_again(
    orphaned: Callable[..., Line], simulator: Simulator
) -> None:
    """E6: as `status` says."""
    line = orphaned(NO_ROWS)
    job = line.submit(pipeline(), documents(20))
    line.run_until(lambda: may_be(line))
    (mute,) = listed(simulator, "messages/batches")
    url, version = f"{simulator.base_url}/messages/batches/{mute['id']}", {"anthropic-version": "2026-10-21"}
    urllib.request.urlopen(urllib.request.Request(url, headers=version, method="DELETE")).close()
    notice = line.finish(job)
    assert notice.state is BatchState.PUBLISHED
    assert published(line) == Counter(f"d{i}" for i in range(20))
    assert len(billed_lines(simulator)) == 40
