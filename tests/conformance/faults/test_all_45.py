"""Each of the 45 ways in which providers are known to lie, fail and differ, in every form, over HTTP on one simulator.

`catalogue` has the forms, and the table here who shows that what arrives is what the row says, and that the books say
the same. A form of which nobody knows the effect fails.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.faults import answers, batches, calls, connection, manners, notices, results
from conformance.faults.catalogue import CATALOGUE, label
from conformance.faults.site import Scenario, Site

Effect = Callable[[Site, Scenario], None]

EFFECTS: dict[int, Effect] = {
    1: calls.retry_after,
    2: calls.should_retry,
    3: calls.no_credit,
    4: calls.spend_limit,
    5: calls.slow_down,
    6: calls.overloaded,
    7: calls.server_error,
    8: calls.client_error,
    9: calls.key_is_revoked,
    10: calls.limit_headers,
    11: connection.connection,
    12: connection.odd_body,
    13: connection.late_success,
    14: connection.beyond_ascii,
    15: batches.file_pending,
    16: batches.uploads,
    17: batches.failed_in_validation,
    18: batches.enqueued,
    19: batches.stuck,
    20: batches.very_fast,
    21: batches.shuffled,
    22: batches.all_failed,
    23: batches.mixed_files,
    24: batches.error_rows,
    25: batches.odd_rows,
    26: results.spoiled_files,
    27: results.expiry,
    28: results.cancel,
    29: results.anthropic_counts,
    30: results.unknown_states,
    31: results.where_results_are,
    32: results.lists,
    33: results.lost_create,
    34: results.limited_polling,
    35: notices.webhooks,
    36: answers.finish_reasons,
    37: answers.contents,
    38: answers.usage,
    39: answers.silent_truncation,
    40: answers.self_hosted,
    41: answers.embeddings,
    42: manners.versions,
    43: manners.time_and_room,
    44: manners.determinism,
    45: manners.books,
}

FORMS = [
    pytest.param(int(name[:2]), scenario, id=f"{name.replace(',', '').replace(' ', '-')}-{label(scenario) or 'plain'}")
    for name, scenarios in CATALOGUE.items()
    for scenario in scenarios
]


def test_none_of_the_45_lacks_an_effect() -> None:
    """E12"""
    assert list(EFFECTS) == [int(name[:2]) for name in CATALOGUE] == list(range(1, 46))
    assert len(set(EFFECTS.values())) == 45
    assert all(CATALOGUE.values())
    assert len({form.id for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(("number", "scenario"), FORMS)
def test_it_befalls(site: Site, number: int, scenario: Scenario) -> None:
    """E6 E7 E9 E12"""
    site.play(scenario)
    EFFECTS[number](site, scenario)
