"""Signed notices of the simulated provider, through the api, to the gateway: a hint that costs nothing if it fails."""

import base64
import hashlib
import hmac
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration.bulk import PRICES, billed_lines, documents, listed, make_config, pipeline
from kit.api_server import ServedApi
from kit.line import QUICK, Line
from kit.simulator import Simulator
from nightmill.kernel.domain.lifecycle import BatchState, ProviderBatchState
from nightmill.kernel.domain.settings import KeySource
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.wire.messages import AttemptAnswered, ProviderBatchRow, WebhookReceived
from nightmill.provider_gateway.bulk import errands as e

SECRET, WRONG = "whsec_c2VjcmV0", "whsec_b3RoZXI="
#: nothing is looked at again within the patience of a test
SLOW = replace(QUICK, poll=120_000, longest_poll=120_000)


@dataclass
class CountingRunner:
    """Counts errands by their kind."""

    inner: e.Runner
    begun: Counter[type[e.Errand]]

    def start(self, errand: e.Errand) -> int:
        self.begun[type(errand)] += 1
        return self.inner.start(errand)

    def completed(self) -> Sequence[e.Ended]:
        return self.inner.completed()

    def close(self) -> None:
        self.inner.close()


class SharedLine(Line):
    """A line beside an api on one memory log, which is made for one thread."""

    api: ServedApi

    def make_runner(self, folder: Path) -> e.Runner:
        self.begun: Counter[type[e.Errand]] = Counter()
        return CountingRunner(super().make_runner(folder), self.begun)

    def step(self) -> None:
        with self.api.lock:
            super().step()


Start = Callable[..., tuple[SharedLine, ServedApi]]


@pytest.fixture
def start(simulator: Simulator, tmp_path: Path) -> Iterator[Start]:
    opened: list[SharedLine | ServedApi] = []

    def begin(timing: Any, secret: str, *faults: dict[str, Any], partitions: int = 2) -> tuple[SharedLine, ServedApi]:
        file = tmp_path / "secret"
        file.write_text(SECRET)
        file.chmod(0o600)
        config = make_config(simulator.base_url, "openai")
        pool = config.pools["sim"].model_copy(update={"webhook_secrets": (KeySource(file=str(file)),)})
        config = config.model_copy(update={"pools": {**config.pools, "sim": pool}})
        broker = MemoryBroker(partitions=partitions)
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
    notice = line.finish(line.submit(pipeline(), documents(20)), patience_s=90.0)
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
    notice = line.finish(line.submit(pipeline(), documents(20)), patience_s=90.0)
    assert notice.state is BatchState.PUBLISHED
    assert api.sent(WebhookReceived) == []
    assert len(billed_lines(simulator)) == 20


def test_a_notice_that_is_sent_again_after_a_restart_of_the_api_costs_one_look(
    start: Start, simulator: Simulator
) -> None:
    """E6, row 53: which notices were told is in memory. It makes us look at a batch, and harvests none twice."""
    dropped, stuck = {"kind": "webhook", "form": "dropped"}, {"kind": "batch_stuck", "keep": 0.5, "first": 1}
    line, api = start(SLOW, SECRET, dropped, stuck, partitions=1)
    line.submit(pipeline(), documents(20))
    line.run_until(lambda: state_of_first(line) is ProviderBatchState.SUBMITTED)
    batch = listed(simulator, "batches")[0]["id"]
    delivery = signed(batch)
    for number in (1, 2):
        assert deliver(api, delivery) == {"told": True}
        assert deliver(api, delivery) == {"told": False}
        line.run_until(partial(polled, line, number))
        restart(api)
    url = f"{simulator.base_url}/batches/{batch}/cancel"
    urllib.request.urlopen(urllib.request.Request(url, data=b"", method="POST")).close()
    line.run_until(lambda: listed(simulator, "batches")[-1]["status"] == "cancelled")
    deliver(api, delivery)
    line.run_until(lambda: state_of_first(line) is ProviderBatchState.HARVESTED)
    polls = line.begun[e.Poll]
    restart(api)
    assert deliver(api, delivery) == {"told": True}
    line.run_until(lambda: len(api.sent(WebhookReceived)) == 4)
    for _ in range(100):
        line.step()
    assert (line.begun[e.Poll], line.begun[e.Fetch]) == (polls, 1)
    told = [(each.item_key, each.ordinal) for each in line.told(AttemptAnswered, "attempt-answered")]
    assert len(set(told)) == len(told) == 20


def polled(line: SharedLine, times: int) -> bool:
    return line.begun[e.Poll] == times


def state_of_first(line: Line) -> ProviderBatchState | None:
    """Of the submission that was made first."""
    rows = [row for part in line.loops["provider_gateway"].owned() for row in part.table(ProviderBatchRow).prefix("")]
    return min(rows, key=lambda row: row.intent_at_ms).state if rows else None


def signed(batch: str) -> urllib.request.Request:
    """A notice that the provider may have sent just now."""
    body = json.dumps({"id": "evt_1", "type": "batch.completed", "data": {"id": batch}}).encode()
    ident, at = "wh_1", str(int(time.time()))
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    digest = base64.b64encode(hmac.digest(key, f"{ident}.{at}.".encode() + body, hashlib.sha256)).decode()
    headers = {"webhook-id": ident, "webhook-timestamp": at, "webhook-signature": f"v1,{digest}"}
    return urllib.request.Request("http://host/", data=body, headers=headers)


def deliver(api: ServedApi, delivery: urllib.request.Request) -> Any:
    delivery.full_url = f"{api.url}/v1/webhooks/sim"
    with urllib.request.urlopen(delivery) as response:
        return json.load(response)


def restart(api: ServedApi) -> None:
    """Another life of it, that knows nothing of the notices of before."""
    api.__exit__(None, None, None)
    api.__enter__()
