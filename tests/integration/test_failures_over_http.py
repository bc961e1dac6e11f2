"""Every failure that a provider can show to a realtime call, over real HTTP, and what it means (E8, E9, P4).

The provider is the simulator, or a socket that sends the bytes of a server that the simulator does not play. Rows of
batches, files and webhooks are no realtime call's.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.failure_bytes import RAW, Raw
from integration.failure_cases import CASES, OPENAI, Case
from kit.simulator import Simulator
from nightmill.kernel.domain.failures import Billed
from nightmill.kernel.domain.lifecycle import AttemptState
from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.failures import ROWS, Signal
from unit.provider_gateway.caller_desk import Desk, failure_of
from unit.provider_gateway.means import FOUND_BY_US, MEANS, S
from unit.provider_gateway.raw_provider import RawProvider, http_response

#: of calls that are to end by it, and of those that are not, however busy the machine is
SHORT_S, LONG_S = 1.5, 30.0


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def check(answered: AttemptAnswered, signal: Signal) -> None:
    """Class, budget and bill of the table; of an unknown outcome the cost is unknown, and the reservation stays."""
    failure = failure_of(answered)
    assert failure.signal == signal
    assert (failure.failure_class, failure.uses_retry_budget, failure.billed) == MEANS[signal]
    unknown = signal in (S.CONNECTION_LOST, S.DEADLINE_PASSED)
    assert answered.state is (AttemptState.UNKNOWN if unknown else AttemptState.FAILED)
    if failure.billed is Billed.NO:
        assert answered.cost_nano_usd == 0
    elif answered.usage is None:
        assert answered.cost_nano_usd is None
        assert answered.reserved_nano_usd > 0
    else:
        assert answered.cost_nano_usd is not None
        assert answered.cost_nano_usd > 0


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_failure_of_the_simulated_provider(provider: Simulator, desk: Desk, case: Case) -> None:
    """E8, E9, P4: each row has its signal, its class, its use of the retry budget, its bill and its wait."""
    strict = "self_hosted" if case.pool["provider"] == "openai_compatible" else "openai"
    provider.set_scenario({"dialect": strict, **case.scenario})
    deadline_s = SHORT_S if case.signal is S.DEADLINE_PASSED else LONG_S
    answered = desk.call(provider.base_url, deadline_s=deadline_s, **case.pool)
    check(answered, case.signal)
    failure = failure_of(answered)
    assert case.param in (None, failure.param)
    if case.wait_ms is not None:
        assert failure.retry_after_ms == case.wait_ms


@pytest.mark.parametrize("case", RAW, ids=[f"{case.row} {case.pool['provider']}" for case in RAW])
def test_a_failure_of_another_server(desk: Desk, case: Raw) -> None:
    """E8: shapes and codes that the simulator does not send."""
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    with RawProvider([http_response(body, *case.headers, status=case.status)]) as server:
        check(desk.call(server.base_url, deadline_s=LONG_S, **case.pool), case.signal)


def test_a_server_that_never_finishes_its_handshake_was_not_reached(desk: Desk) -> None:
    """Row 21: a connection that takes too long is none, and the request never left."""
    with RawProvider(end="hang") as silent:
        answered = desk.call(silent.base_url.replace("http:", "https:"), deadline_s=1.0, **OPENAI)
    check(answered, S.NOT_CONNECTED)


def test_every_signal_is_seen_over_http() -> None:
    """E8: no row is there on paper alone.

    `unit/provider_gateway/test_http` has more of the connection's own, `test_embedding_failures` those of embeddings.
    """
    seen = {case.signal for case in CASES} | {case.signal for case in RAW} | {S.NOT_CONNECTED, S.PROMPT_CUT}
    seen |= {S.EMBEDDINGS_MISMATCHED}
    assert seen == set(MEANS)
    assert set(MEANS) | FOUND_BY_US == set(ROWS)
