"""42 to 45: versions and keys, time and room, determinism and the clock, and the books themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from conformance.faults.site import (
    BATCHES,
    BOTH,
    CHAT,
    DAY_S,
    MESSAGE_BATCHES,
    MESSAGES,
    RESPONSES,
    Books,
    Scenario,
    Site,
    asked,
    ids_of,
    unknown,
    wait,
)

OLD, NEW = "2023-06-01", "2026-10-21"


def versions(site: Site, scenario: Scenario) -> None:
    """What a version took away is refused under it, in a batch too; the key is taken from either header."""
    names: list[tuple[str, Any]] = [("temperature", 0.5), ("top_p", 0.5), ("top_k", 5)]
    for name, value in names:
        for version, status in ((OLD, 200), (NEW, 400)):
            got = site.post(MESSAGES, asked(MESSAGES, **{name: value}), {"anthropic-version": version})
            assert got.status == status, got
            assert status == 200 or name in got.error["message"]
    params: Any = asked(MESSAGES, temperature=0.5)
    for version, kind in ((OLD, "succeeded"), (NEW, "errored")):
        line = {"custom_id": "a", "params": params}
        made = site.post(MESSAGE_BATCHES, {"requests": [line]}, {"anthropic-version": version}).json()
        assert [row["result"]["type"] for row in site.rows(site.ended(made))] == [kind]
    for key, status in (("k", 200), ("sk-invalid-1", 401)):
        for headers in ({"x-api-key": key}, {"x-api-key": "", "Authorization": f"Bearer {key}"}):
            kept = {name: text for name, text in headers.items() if text}
            assert _status(site, {"anthropic-version": NEW, **kept}) == status


def _status(site: Site, headers: dict[str, str]) -> int:
    """Of a message with these headers and no others."""
    bare = Site(site.simulator, keys=headers)
    return bare.ask(MESSAGES).status


def time_and_room(site: Site, scenario: Scenario) -> None:
    """An answer takes as long as it is told to; a model loads; a server has so many places and no more."""
    latency = scenario["latency"]
    if "capacity" in scenario:
        _room(site)
    elif "warm_up_ms" in latency:
        got = site.ask()
        assert (got.status, got.error["message"]) == (503, "Loading model")
        assert site.books(received=1) == Books(0, 0, 0, 0)
    elif "fixed_ms" in latency:
        for path in BOTH:
            site.play(scenario)
            assert site.ask(path).status == 200
            row = site.row()
            least_ms = latency["fixed_ms"] + row["billed_completion_tokens"] * latency["per_token_us"] // 1000
            assert row["ended_at_ms"] - row["started_at_ms"] >= least_ms - 1  # both clocks are cut to milliseconds
    elif "jitter_ms" in latency:
        _distribution(site, latency)
    else:
        unknown(latency)


def _distribution(site: Site, latency: dict[str, int]) -> None:
    """Drawn from the seed, so the sum is the same on every machine and none is faster. Half of the jitter and the mean
    of the tail for each call make 1800 ms; without either of the two 1080 would not be reached."""
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda n: site.ask(text=f"n {n}").status, range(40)))
    assert statuses == [200] * 40
    site.books(received=40)
    took_ms = sorted(row["ended_at_ms"] - row["started_at_ms"] for row in site.simulator.attempts())
    assert sum(took_ms) >= 1080
    assert took_ms[-1] > latency["jitter_ms"] + 1  # only the tail reaches so far


def _room(site: Site) -> None:
    """Four at a time and two that wait; the seventh is refused, and the six are answered."""
    with ExitStack() as opened:
        calls = [opened.enter_context(site.opened(CHAT, asked(CHAT, f"n {n}"))) for n in range(6)]
        wait(lambda: site.simulator.ledger()["in_flight"] == 6, "six calls at once")
        assert site.ask(text="one too many").status == 503
        assert [call.recv(12) for call in calls] == [b"HTTP/1.1 200"] * 6
    assert site.books(received=7) == Books(6, 6, 6, 0)


def determinism(site: Site, scenario: Scenario) -> None:
    """The same seed and body: the same answer, rows and faults. Another seed: others. And a clock that is put forward
    or runs fast, so that 24 hours and 29 days are over at once."""
    seen = []
    for seed in (scenario["seed"], scenario["seed"], scenario["seed"] + 1):
        site.play({"seed": seed, "faults": [{"kind": "server_error", "rate": 0.5}]})
        statuses = [site.ask(text=f"n {n}").status for n in range(20)]
        site.play({"seed": seed})
        words = [_said(site.ask(path, "Which licence? " * 9).json()) for path in (CHAT, RESPONSES, MESSAGES)]
        seen.append((statuses, words))
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[2][0]
    assert seen[0][1] != seen[2][1]
    site.play({"faults": [{"kind": "batch_stuck"}]})
    before = site.simulator.set_clock()["now_ms"]
    assert site.simulator.set_clock(advance_s=29 * DAY_S)["now_ms"] >= before + 29 * DAY_S * 1000
    batch = site.create()
    site.simulator.set_clock(speed=1_000_000)
    try:
        assert site.ended(batch)["status"] == "expired"
    finally:
        site.simulator.set_clock(speed=1)


def _said(answer: Any) -> Any:
    """All of an answer but the second in which it was given."""
    return {name: value for name, value in answer.items() if name not in ("created", "created_at")}


def books(site: Site, scenario: Scenario) -> None:
    """E12: accepted, billed and delivered, in tokens and money, call by call and line by line."""
    told = site.ask(headers={"X-Client-Request-Id": "call-1"}).json()["usage"]
    site.ask(messages=[])
    site.books(received=2)
    calls = {row["attempt_id"]: row for row in site.simulator.attempts()}
    assert calls.keys() == {"call-1"}
    _agrees(calls["call-1"], told, tier="default")
    batch = site.ended(site.create())
    assert site.books(received=2 + 10) == Books(11, 11, 1, 10)
    rows = site.rows(batch)
    assert site.books() == Books(11, 11, 11, 0)
    lines = {row["attempt_id"]: row for row in site.simulator.attempts() if row["batch_id"] == batch["id"]}
    assert sorted(lines) == sorted(ids_of(rows))
    for row in rows:
        _agrees(lines[row["custom_id"]], row["response"]["body"]["usage"], tier="batch")
    money = site.simulator.ledger()["money"]
    paid = sum(row["billed_nano_usd"] for row in [calls["call-1"], *lines.values()])
    assert money == {"billed_nano_usd": paid, "delivered_nano_usd": paid, "lost_nano_usd": 0, "unpriced_calls": 0}
    assert site.simulator.ledger()["refused"] == {"calls": 1, "by_code": {"empty_array": 1}}
    assert len(site.get(BATCHES).json()["data"]) == 1


def _agrees(row: dict[str, Any], told: dict[str, int], *, tier: str) -> None:
    """1 USD a million tokens in and 2.5 out, in nano-USD; half of it in a batch."""
    prompt, completion = told["prompt_tokens"], told["completion_tokens"]
    assert (row["accepted"], row["billed"], row["delivered"], row["usage_delivered"]) == (True,) * 4
    assert (row["billed_prompt_tokens"], row["billed_completion_tokens"]) == (prompt, completion)
    whole = prompt * 1000 + completion * 2500
    assert (row["tier"], row["billed_nano_usd"]) == (tier, whole // 2 if tier == "batch" else whole)
