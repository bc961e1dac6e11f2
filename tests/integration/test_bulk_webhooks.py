"""Signed notices of the simulated provider, through the api, to the gateway: a hint that costs nothing if it fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.bulk import PRICES, billed_lines, documents, finish, make_config, pipeline
from kit.api_server import ServedApi
from kit.line import QUICK, Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.domain.settings import KeySource
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.wire.messages import WebhookReceived

SECRET, WRONG = "whsec_c2VjcmV0", "whsec_b3RoZXI="
#: nothing is looked at again within the patience of a test
SLOW = replace(QUICK, poll=120_000, longest_poll=120_000)


class SharedLine(Line):
    """A line beside an api on one memory log, which is made for one thread."""

    api: ServedApi

    def step(self) -> None:
        with self.api.lock:
            super().step()


Start = Callable[..., tuple[SharedLine, ServedApi]]


@pytest.fixture
def start(simulator: Simulator, tmp_path: Path) -> Iterator[Start]:
    opened: list[SharedLine | ServedApi] = []

    def begin(timing: Any, secret: str, *faults: dict[str, Any]) -> tuple[SharedLine, ServedApi]:
        file = tmp_path / "secret"
        file.write_text(SECRET)
        file.chmod(0o600)
        config = make_config(simulator.base_url, "openai")
        pool = config.pools["sim"].model_copy(update={"webhook_secrets": (KeySource(file=str(file)),)})
        config = config.model_copy(update={"pools": {**config.pools, "sim": pool}})
        broker = MemoryBroker(partitions=2)
        api = ServedApi(tmp_path / "api", config, log=broker.log("line"))
        api.__enter__()
        opened.append(api)
        line = SharedLine(tmp_path / "line", config, broker=broker, bulk_timing=timing)
        line.api = api
        opened.append(line)
        target = {"url": f"{api.url}/v1/webhooks/sim", "secret": secret}
        # the batch is at work when the submission's row is committed, so that it is the notice that ends the wait
        batches = {"validate_ms": 700}
        simulator.set_scenario({"prices": PRICES, "webhooks": [target], "faults": list(faults), "batches": batches})
        return line, api

    yield begin
    for each in reversed(opened):
        if isinstance(each, Line):
            each.close()
        else:
            each.__exit__(None, None, None)


@pytest.mark.parametrize(
    "faults",
    [[], [{"kind": "webhook", "form": "duplicated"}], [{"kind": "webhook", "form": "delayed", "delay_ms": 300}]],
    ids=["once", "twice", "late"],
)
def test_a_notice_is_looked_into_at_once(start: Start, simulator: Simulator, faults: list[dict[str, Any]]) -> None:
    """E6: without it, these batches would be looked at in two minutes."""
    line, api = start(SLOW, SECRET, *faults)
    notice = finish(line, line.submit(pipeline(), documents(20)), patience_s=90.0)
    assert notice.state is BatchState.PUBLISHED
    assert len(billed_lines(simulator)) == 20
    told = api.sent(WebhookReceived)
    assert len({each.webhook_id for each in told}) == len(told) >= 1


@pytest.mark.parametrize(
    ("secret", "faults"),
    [
        (WRONG, []),
        (SECRET, [{"kind": "webhook", "form": "bad_signature"}]),
        (SECRET, [{"kind": "webhook", "form": "old_timestamp"}]),
        (SECRET, [{"kind": "webhook", "form": "dropped"}]),
    ],
    ids=["another secret", "bad signature", "old", "lost"],
)
def test_polling_goes_on_whatever_becomes_of_notices(
    start: Start, simulator: Simulator, secret: str, faults: list[dict[str, Any]]
) -> None:
    """Row 53: what is refused changes nothing."""
    line, api = start(QUICK, secret, *faults)
    notice = finish(line, line.submit(pipeline(), documents(20)), patience_s=90.0)
    assert notice.state is BatchState.PUBLISHED
    assert api.sent(WebhookReceived) == []
    assert len(billed_lines(simulator)) == 20
