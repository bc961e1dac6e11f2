"""Words and figures for people."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.api.models import Counts, Gold, JobStatus, Spent
from nightmill.cli.text import (
    EXIT_CODES,
    calls,
    cost,
    duration,
    next_commands,
    printable,
    progress_line,
    summary,
    table,
    usd,
)
from nightmill.client.progress import STOPPED, Progress
from nightmill.kernel.domain.lifecycle import BatchState

JOB = "default.label.20260101-000000-aa"


def status(state: BatchState = BatchState.PUBLISHED, **fields: object) -> JobStatus:
    base = JobStatus(
        job_id=JOB, dataset_id="default.label", tenant="default", pipeline="label", state=state, reason=None,
        generation=1, input_name="x", read_rows=1_200, planned=100, refused_rows=0, settled=99,
        counts=Counts(accepted=90, rejected=4, dead_letter=3, in_review=2, reused=10),
        spent=Spent(attempts=120, retries=7, repairs=5, input_tokens=12_345, cached_tokens=345, output_tokens=678,
                    cost_nano_usd=12_300_000, unknown_attempts=2),
        expected_cost_nano_usd=None, worst_cost_nano_usd=None, budget_nano_usd=1_000_000_000,
        budget_left_nano_usd=987_700_000, gold=Gold(compared=80, right=60), version=3, location="/home/x/results/v3",
        priority=0, tags={}, submitted_at_ms=1_000, deadline_at_ms=None, ended_at_ms=76_000, updated_at_ms=76_000,
    )  # fmt: skip
    return base.model_copy(update=fields)


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0.00 USD"),
        (1, "0.000000001 USD"),
        (1_500_000_000, "1.50 USD"),
        (12_300_000, "0.0123 USD"),
        (1_234_567_000_000_000, "1,234,567.00 USD"),
        (-5_000_000, "-0.005 USD"),
    ],
)
def test_money(nano: int, text: str) -> None:
    assert usd(nano) == text


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_money_is_exact(nano: int) -> None:
    """P4: what is printed reads back as the same integer."""
    whole, _, part = usd(nano).removesuffix(" USD").replace(",", "").replace("-", "").partition(".")
    assert int(whole + part.ljust(9, "0")) == abs(nano)


@pytest.mark.parametrize(
    ("known", "unknown", "text"),
    [
        (0, 0, "0.00 USD"),
        (None, 0, "unknown"),
        (0, 1, "unknown (1 attempt)"),
        (None, 3, "unknown (3 attempts)"),
        (5_000_000, 2, "0.005 USD + unknown (2 attempts)"),
    ],
)
def test_an_unknown_cost_is_never_zero(known: int | None, unknown: int, text: str) -> None:
    """P4"""
    assert cost(known, unknown) == text


def test_what_is_unknown_has_an_upper_bound() -> None:
    """P4"""
    assert cost(5_000_000, 2, 300_000) == "0.005 USD + unknown (2 attempts, at most 0.0003 USD)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (3_725, "1 h 2 min"), (90_000, "1 d 1 h"), (-3, "0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_progress_line() -> None:
    """90 + 4 + 3 + 2 = 99 settled."""
    line = progress_line(Progress(status=status(BatchState.RUNNING), items_per_s=12.34, left_s=65.0))
    assert line == (
        "running  99/100 items  12.3/s  spent 0.0123 USD + unknown (2 attempts)  left 0.9877 USD  about 1 min 5 s to go"
    )
    planning = Progress(status=status(BatchState.PLANNING, planned=None), items_per_s=None, left_s=None)
    assert progress_line(planning) == "planning  1,200 rows read"


@given(st.text())
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    """P6: all of Unicode's Cc but newline and tab; what has none stays as it is."""
    shown = printable(text)
    assert not [each for each in shown if unicodedata.category(each) == "Cc" and each not in "\n\t"]
    assert (shown == text) == (not [each for each in text if unicodedata.category(each) == "Cc" and each not in "\n\t"])


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[2J\x07\x9b\x7f\r\n\tü") == "a\\x1b[2J\\x07\\x9b\\x7f\\x0d\n\tü"
    assert table(("\x1bN",), [("\x07",)]) == "\\x1bN\n\\x07"
    assert "\\x1b[31m" in summary(status(BatchState.HELD, reason="\x1b[31mred"), 10**12)


def test_a_held_job_says_which_version_readers_have() -> None:
    """Q6"""
    assert "results   /home/x/results/v3 (version 3, published before)" in summary(status(BatchState.HELD), 10**12)
    assert "before" not in summary(status(BatchState.PARTIAL_FAILED), 10**12)


def test_a_summary_has_every_figure() -> None:
    text = summary(status(), 10**12)
    for part in (
        "published as version 3 of default.label",
        "90 accepted, 4 rejected, 3 dead letters, 2 in review, 0 cancelled; 10 reused",
        "0.750 against gold: 60 of 80 right",
        "120, of these 7 retries, 5 repairs",
        "12,345 in (345 cached), 678 out",
        "0.0123 USD + unknown (2 attempts) of 1.00 USD, left 0.9877 USD",
        "1 min 15 s",
        "/home/x/results/v3",
    ):
        assert part in text


def test_a_refused_job_says_why_and_nothing_more() -> None:
    refused = status(BatchState.REFUSED, reason="budget: too small", location=None, gold=None, version=None)
    text = summary(refused, 10**12)
    assert "refused, nothing was started" in text
    assert "budget: too small" in text
    assert "cost" not in text


@pytest.mark.parametrize(
    ("state", "code", "command"),
    [
        (BatchState.PUBLISHED, 0, f"nightmill results {JOB} --format csv"),
        (BatchState.PARTIAL_FAILED, 0, f"nightmill resume {JOB}"),
        (BatchState.HELD, 3, f"nightmill approve {JOB}"),
        (BatchState.CANCELLED, 4, f"nightmill resume {JOB}"),
    ],
)
def test_ends(state: BatchState, code: int, command: str) -> None:
    """E11: the exit code of each end, and what to type next."""
    assert EXIT_CODES[state] == code
    assert command in next_commands(status(state, settled=100))


@pytest.mark.parametrize(
    ("counts", "verbs"),
    [
        # all that is missing waits for a person: a resume would leave it as it is
        (Counts(accepted=98, in_review=2), ["results", "approve", "cancel"]),
        (Counts(accepted=97, dead_letter=1, in_review=2), ["results", "approve", "resume", "cancel"]),
        # held by its budget before the end: there is nothing to approve
        (Counts(accepted=50), ["results", "resume", "cancel"]),
    ],
)
def test_a_held_job_is_offered_what_helps(counts: Counts, verbs: list[str]) -> None:
    """Q4, E10"""
    held = status(BatchState.HELD, counts=counts, settled=counts.settled)
    assert [command.split()[1] for command in next_commands(held)] == verbs


@pytest.mark.parametrize(
    ("state", "ended_at_ms", "time"),
    [
        (BatchState.PUBLISHED, 76_000, "1 min 15 s"),
        (BatchState.RUNNING, None, "2 min 0 s"),
        (BatchState.QUEUED, None, "2 min 0 s"),
        (BatchState.HELD, None, "1 min 30 s"),
    ],
)
def test_the_time_of_a_job(state: BatchState, ended_at_ms: int | None, time: str) -> None:
    """From its submission at second 1 to its end, to second 91 where it was held, or to second 121, which is now."""
    text = summary(status(state, ended_at_ms=ended_at_ms, updated_at_ms=91_000), 121_000)
    assert f"  time      {time}\n" in text


def test_one_is_not_many() -> None:
    assert calls(1, 1, 0) == "1, of these 1 retry, 0 repairs"
    assert calls(1_000, 2, 1) == "1,000, of these 2 retries, 1 repair"


def test_every_stop_has_an_exit_code() -> None:
    assert EXIT_CODES.keys() == STOPPED
    assert EXIT_CODES[BatchState.REFUSED] == 2


def test_a_table_is_aligned() -> None:
    text = table(("NAME", "N"), [("a", 1), ("long name", 1_000), (None, 5)])
    assert text.splitlines() == ["NAME          N", "a             1", "long name  1000", "              5"]
    assert table(("NAME",), []) == "NAME"
