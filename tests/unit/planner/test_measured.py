"""What is remembered of frozen blocks: every row's measure, of the blocks that came last."""

from nightmill.planner.measured import Measured, MeasureKey
from nightmill.planner.meter import Measure


def key(block: str, tenant: str = "acme") -> MeasureKey:
    return MeasureKey(block=block, pipeline="p", tenant=tenant)


def measures(*tokens: int) -> list[Measure]:
    return [Measure(input_tokens=each, prefix=f"prefix {each % 2}") for each in tokens]


def test_rows_are_remembered_by_their_place() -> None:
    measured = Measured()
    measured.keep(key("a"), measures(5, 6, 7))
    assert measured.of(key("a"), [2, 0]) == measures(7, 5)
    assert measured.of(key("a"), []) == []


def test_another_block_pipeline_or_tenant_is_not_known() -> None:
    measured = Measured()
    measured.keep(key("a"), measures(5))
    assert measured.of(key("b"), [0]) is None
    assert measured.of(key("a", tenant="other"), [0]) is None


def test_the_oldest_block_is_forgotten_first() -> None:
    measured = Measured(kept_blocks=2)
    for name in "abca":
        measured.keep(key(name), measures(1))
    assert [measured.of(key(name), [0]) is None for name in "abc"] == [False, True, False]
