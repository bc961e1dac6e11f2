"""The states of batches: every walk ends, ended is ended, and nothing else is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.provider_simulator.bulk.batch import Batch, batch_of_row
from nightmill.provider_simulator.bulk.states import GRAPHS, Status, check_move, terminal
from nightmill.provider_simulator.reply import Side
from nightmill.provider_simulator.stories import BatchStuck, ResultFile

FIRST = {Side.OPENAI: Status.VALIDATING, Side.ANTHROPIC: Status.IN_PROGRESS}


@given(side=st.sampled_from(Side), data=st.data())
def test_every_walk_ends(side: Side, data: st.DataObject) -> None:
    status, seen = FIRST[side], 0
    while not terminal(side, status):
        following = data.draw(st.sampled_from(sorted(GRAPHS[side][status])))
        check_move(side, status, following)
        status, seen = following, seen + 1
        assert seen <= 4
    for other in GRAPHS[side]:
        with pytest.raises(ValueError, match="cannot go from"):
            check_move(side, status, other)


def test_batch_survives_its_row() -> None:
    batch = Batch(
        id="batch_1",
        side=Side.OPENAI,
        status=Status.VALIDATING,
        endpoint="/v1/embeddings",
        input_file_id="file-1",
        created_at_ms=1,
        expires_at_ms=2,
        metadata={"a": "b"},
        stories=[BatchStuck(kind="batch_stuck", keep=0.5), ResultFile(kind="result_file", form="crlf")],
    )
    batch.move(Status.IN_PROGRESS, now_ms=7)
    assert batch_of_row(batch.as_row()) == batch
    found = batch.story(ResultFile)
    assert found is not None
    assert found.form == "crlf"
