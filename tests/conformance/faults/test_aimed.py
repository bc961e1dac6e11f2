"""A fault comes by a rule for a path, a model or a text, and by the header of one request; it is the same fault."""

from __future__ import annotations

import http.client
import json
from typing import Any, get_args

import pytest

from conformance.faults.site import (
    BATCHES,
    CHAT,
    MESSAGE_BATCHES,
    MESSAGES,
    RESPONSES,
    Headers,
    Scenario,
    Site,
    asked,
)
from nightmill.provider_simulator.call_faults import CallFault

#: every fault of a call, with what its kind needs; the last ones soon come to their end
MORE: dict[str, dict[str, Any]] = {
    "client_error": {"status": 418},
    "slow": {"delay_ms": 20},
    "hang": {"for_ms": 20},
    "drip": {"chunk_bytes": 200, "every_ms": 1},
}
KINDS = [get_args(model.model_fields["kind"].annotation)[0] for model in get_args(CallFault)]

#: a rule, and a call that it does not select
AIMS: list[tuple[Scenario, dict[str, Any]]] = [
    ({"on": ["chat"]}, {"path": RESPONSES}),
    ({"model": "m"}, {"model": "mm"}),
    ({"match": "licence"}, {"text": "Which colour?"}),
    ({"regex": r"licence\?$"}, {"text": "Which licence? None."}),
]


def header(fault: Scenario) -> Headers:
    return {"x-sim-fault": json.dumps(fault)}


def outcome(site: Site, **call: Any) -> tuple[Any, ...]:
    """What the client saw of a call, and which fault the books have for it."""
    try:
        got = site.ask(**call)
        seen: Any = (got.status, sorted(got.headers), len(got.body))
    except (ConnectionError, http.client.HTTPException) as broken:
        seen = type(broken)
    site.books()
    rows = site.simulator.attempts(refused=True)
    return seen, rows[-1]["fault"] if rows else "none, it is in no books"


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_and_a_header_bring_the_same_fault(site: Site, kind: str) -> None:
    """E12: to the call that is meant, and to no other."""
    fault = {"kind": kind, **MORE.get(kind, {})}
    befallen = outcome(site, headers=header(fault))
    assert befallen[1] == (kind if kind != "reset_early" else "none, it is in no books")
    assert outcome(site)[1] is None
    for aim, other in AIMS[:1] if kind == "reset_early" else AIMS:  # it comes before the body was read
        site.play({"faults": [{**fault, **aim}]})
        assert outcome(site) == befallen
        (status, *_), told = outcome(site, **other)
        assert (status, told) == (200, None)


def test_files_and_batches_by_header(site: Site) -> None:
    """One upload and one create take an odd turn; the next ones do not."""
    assert site.upload(b"{}\n", header({"kind": "file_pending"})).json()["status"] == "uploaded"
    assert site.upload(b"{}\n").json()["status"] == "processed"
    failing = header({"kind": "batch_failed", "code": "empty_file"})
    states = [site.ended(site.post(BATCHES, site.wanted(["a"]), more).json())["status"] for more in (failing, None)]
    assert states == ["failed", "completed"]


def test_a_batch_by_its_metadata(site: Site) -> None:
    site.play({"faults": [{"kind": "batch_failed", "regex": r'"job":\s*"odd"'}]})
    states = [site.ended(site.create(metadata={"job": job}))["status"] for job in ("odd", "even")]
    assert states == ["failed", "completed"]


def test_lines_and_answers_by_model(site: Site) -> None:
    """A batch of Anthropic's may mix models, and one of them is ill."""
    ill: Scenario = {"model": "claude-ill"}
    site.play({"faults": [{"kind": "server_error", "on": ["line"], **ill}], "answers": [{"content": "cough", **ill}]})
    requests = [{"custom_id": name, "params": asked(MESSAGES, model=name)} for name in ("claude-ill", "claude-well")]
    rows = site.rows(site.ended(site.post(MESSAGE_BATCHES, {"requests": requests}).json()))
    assert {row["custom_id"]: row["result"]["type"] for row in rows} == {
        "claude-ill": "errored",
        "claude-well": "succeeded",
    }
    said = [site.ask(CHAT, model=name).json()["choices"][0]["message"]["content"] for name in ("claude-ill", "m")]
    assert (said[0] == "cough", said[1] == "cough") == (True, False)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        (CHAT, {"kind": "row", "form": "missing"}),
        (CHAT, {"kind": "batch_failed"}),
        (BATCHES, {"kind": "line_error"}),
        (BATCHES, {"kind": "file_pending"}),
        (MESSAGE_BATCHES, {"kind": "webhook", "form": "dropped"}),
    ],
)
def test_a_header_that_cannot_befall_its_call_is_refused(site: Site, path: str, fault: Scenario) -> None:
    """O2: and not passed over, as if the call had been spared."""
    got = site.post(path, asked(CHAT) if path == CHAT else site.wanted(["a"], path), header(fault))
    assert got.status == 400
    assert f"x-sim-fault: kind: '{fault['kind']}': does not befall this call" in got.error["message"]
    assert site.simulator.ledger()["batches"]["created"] == 0
