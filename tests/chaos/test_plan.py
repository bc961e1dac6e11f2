"""Plans: the seed decides them, and enough runs meet every kind."""

from collections import Counter

from chaos.plan import BROKER, CYCLE, SERVICES, SHORT_CYCLE, Kind, plans


def test_number_and_seed_decide_a_plan() -> None:
    """A run that failed is found again, whatever runs beside it."""
    assert list(plans(40, 7))[:12] == list(plans(12, 7))
    assert [plan.moment for plan in plans(18, 7)] != [plan.moment for plan in plans(18, 8)]


def test_forty_runs_meet_every_kind_twice_at_different_moments() -> None:
    wanted = list(plans(40, 1))
    counts = Counter(plan.fault.group for plan in wanted)
    assert min(counts.values()) >= 2
    assert {f"kill {name}" for name in (*SERVICES, BROKER)} <= set(counts)
    assert {plan.fault.kind for plan in wanted} == set(Kind)
    assert len({plan.moment for plan in wanted}) == len(wanted)


def test_two_at_once_are_two() -> None:
    pairs = [plan.fault.victims for plan in plans(len(CYCLE), 3) if len(plan.fault.victims) == 2]
    assert len(pairs) == 2
    assert all(first != second for first, second in pairs)


def test_the_short_form_has_a_run_of_each_of_its_faults() -> None:
    groups = [plan.fault.group for plan in plans(len(SHORT_CYCLE), 1, SHORT_CYCLE)]
    assert len(set(groups)) == len(SHORT_CYCLE)
