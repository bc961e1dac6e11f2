"""Downloads go when nobody needs them any more (E6, M4)."""

import os
from pathlib import Path

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.sweeping import needed, tidy
from unit.provider_gateway.bulk.makers import make_row

P = ProviderBatchState
DECIDED_MS = 1_796_000_000_000


@pytest.mark.parametrize(
    ("state", "is_needed"),
    [
        (P.INTENT, True),
        (P.ARMED, True),
        (P.SUBMITTED, True),
        (P.ENDED, True),
        (P.HARVESTED, False),
        (P.WITHDRAWN, False),
    ],
)
def test_who_needs_results(state: P, is_needed: bool) -> None:
    assert needed([make_row(state)]) == (frozenset({"s1-b1"}) if is_needed else frozenset())


@pytest.mark.parametrize(
    ("name", "written_ms", "stays"),
    [
        ("s-1-b10-output.results", DECIDED_MS - 1, True),  # needed
        ("s-1-b10-error.results", DECIDED_MS - 1, True),
        ("s-1-b1-output.results", DECIDED_MS - 1, False),  # another one, though its name begins so
        ("s-2-b7-error.results", DECIDED_MS - 1, False),
        ("s-2-b7-error.results", DECIDED_MS, True),  # whoever wrote it was not known when this was decided
        ("s-2-b7.jsonl", DECIDED_MS - 1, True),  # an input that is being written is in no row
        ("strange/s-2-b7.jsonl", DECIDED_MS - 1, True),  # for people
    ],
)
def test_what_goes(tmp_path: Path, name: str, written_ms: int, stays: bool) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{}")
    os.utime(path, ns=(written_ms * 1_000_000,) * 2)
    assert tidy(tmp_path, e.Tidy(needed=frozenset({"s-1-b10"}), before_ms=DECIDED_MS)) == e.Done()
    assert path.exists() is stays
