"""26 to 34: result files, expiry, cancels, lists, creates whose answer is lost, polling that is limited."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from conformance.faults.site import (
    BATCHES,
    DAY_S,
    FILES,
    MESSAGE_BATCHES,
    Scenario,
    Site,
    ids_of,
    only,
    state_of,
    unknown,
    wait,
)

IDS = [f"i-{n}" for n in range(10)]
SIDES = (BATCHES, MESSAGE_BATCHES)


def spoiled_files(site: Site, scenario: Scenario) -> None:
    """The bytes of the file, and what the books say of a row that was cut."""
    form = only(scenario, "faults" if "faults" in scenario else "answers")["form"]
    for path in SIDES:
        site.play(scenario)
        batch = site.ended(site.create(path=path))
        data = site.content(batch)
        lines = data.split(b"\n")
        match form:
            case "cut_last_line":
                with pytest.raises(json.JSONDecodeError):
                    json.loads(lines[-1])
                assert site.books().lost == 1
            case "no_final_newline":
                assert sorted(json.loads(row)["custom_id"] for row in lines) == IDS
            case "crlf":
                assert data.count(b"\r\n") == data.count(b"\n") == 10
            case "blank_line":
                assert lines.count(b"") == 2  # and what is behind the last line feed
            case "bom":
                assert data.startswith(b"\xef\xbb\xbf{")
            case "odd_size":
                _said_to_be_longer(site, batch, data)
            case "line_separators":
                assert all(odd in data.decode() for odd in ("\u2028", "\u2029", "\u0085", "\\r\\n"))
                assert len(site.rows(batch)) == 10 < len(data.decode().splitlines())
            case _:
                unknown(form)


def _said_to_be_longer(site: Site, batch: Any, data: bytes) -> None:
    """Only OpenAI says how long a file is."""
    if "output_file_id" in batch:
        assert site.get(f"{FILES}/{batch['output_file_id']}").json()["bytes"] == len(data) + 7


def expiry(site: Site, scenario: Scenario) -> None:
    """The window ends in the middle: what was done is kept, or nothing; or there is no window."""
    if "batches" in scenario:
        batch = site.until(site.create(), "in_progress")
        site.advance(DAY_S + 3600)
        assert site.again(batch)["status"] == "in_progress"
        site.advance(DAY_S)
        assert site.ended(batch)["status"] == "completed"
        assert len(site.rows(batch := site.again(batch))) == 10
        return
    batch = site.ended(site.create())
    assert (batch["status"], batch["expired_at"] is not None) == ("expired", True)
    assert site.books().billed == 5
    if only(scenario).get("results") == "none":
        assert (batch["output_file_id"], batch["error_file_id"]) == (None, None)
        return
    done, missed = site.rows(batch), site.rows(batch, "error")
    assert sorted(ids_of(done + missed)) == IDS
    assert [(row["response"], row["error"]["code"]) for row in missed] == [(None, "batch_expired")] * 5


def cancel(site: Site, scenario: Scenario) -> None:
    """`cancelling` for a while, then what was done; or the batch is faster. One that comes after the end is a 409."""
    batch = site.create()
    races = only(scenario)["kind"] == "cancel_races"
    if not races:
        site.billed(4)
    assert site.post(f"{BATCHES}/{batch['id']}/cancel").json()["status"] == "cancelling"
    if races or "cancel_ms" in scenario["batches"]:
        assert site.again(batch)["status"] == "cancelling"
    site.advance(61)
    batch = site.ended(batch)
    done, missed = site.rows(batch), site.rows(batch, "error")
    if races:
        assert (batch["status"], len(done)) == ("completed", 10)
    else:
        assert (batch["status"], len(done), site.books().billed) == ("cancelled", 4, 4)
        kept = scenario["batches"].get("cancelled_rows", False)
        assert [row["error"]["code"] for row in missed] == ["batch_cancelled"] * (6 if kept else 0)
    again = site.post(f"{BATCHES}/{batch['id']}/cancel")
    assert (again.status, batch["status"] in again.error["message"]) == (409, True)


def anthropic_counts(site: Site, scenario: Scenario) -> None:
    """All are `processing` until all have ended; a cancel may cancel nothing; the window may end."""
    made = site.create(path=MESSAGE_BATCHES)
    kind = only(scenario)["kind"] if "faults" in scenario else None
    none = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if kind != "batch_expires":
        site.billed(4 if kind == "cancel_races" else 10)
        assert site.again(made)["request_counts"] == {**none, "processing": 10}
    if kind == "cancel_races":
        asked = site.post(f"{MESSAGE_BATCHES}/{made['id']}/cancel").json()
        assert (asked["processing_status"], asked["request_counts"]) == ("canceling", {**none, "processing": 10})
    site.advance(61)
    batch = site.ended(made)
    expired = 7 if kind == "batch_expires" else 0
    assert batch["request_counts"] == {**none, "succeeded": 10 - expired, "expired": expired}
    kinds = Counter(row["result"]["type"] for row in site.rows(batch))
    assert kinds == Counter(succeeded=10 - expired, expired=expired)
    assert site.books().billed == 10 - expired


def unknown_states(site: Site, scenario: Scenario) -> None:
    """A result and a state that no document names."""
    if only(scenario)["kind"] == "row":
        rows = site.rows(site.ended(site.create(path=MESSAGE_BATCHES)))
        assert [row["result"]["type"] for row in rows] == ["postponed"] * 10
        assert site.books().billed == 10
        return
    for path in SIDES:
        made = site.create(path=path)
        wait(lambda: site.simulator.ledger()["batches"]["open"] == 0, "the end of the batch")
        assert state_of(made) == state_of(site.again(made)) == only(scenario)["status"]


def where_results_are(site: Site, scenario: Scenario) -> None:
    """An address with or without a host, for 29 days; files for 30; or not there although they are named."""
    if "faults" in scenario:
        _gone(site, only(scenario)["file"])
        return
    batch = site.ended(site.create(path=MESSAGE_BATCHES))
    path = f"{MESSAGE_BATCHES}/{batch['id']}/results"
    host = "" if scenario["batches"]["results_url"] == "relative" else f"http://127.0.0.1:{site.simulator.port}"
    assert batch["results_url"] == host + path
    assert (site.get(path).status, batch["archived_at"]) == (200, None)
    file_id = site.ended(site.create())["output_file_id"]
    site.advance(29 * DAY_S)
    assert site.again(batch)["archived_at"] is not None
    assert site.get(path).status == 404
    assert site.get(f"{FILES}/{file_id}/content").status == 200
    site.advance(DAY_S)
    assert site.get(f"{FILES}/{file_id}/content").status == 404


def _gone(site: Site, which: str) -> None:
    """The batch names both files, and one of them or each is 404."""
    batch = site.ended(site.create())
    for file in ("output", "error"):
        ident = batch[f"{file}_file_id"]
        assert ident, batch
        assert site.get(f"{FILES}/{ident}/content").status == (404 if which in ("both", file) else 200)


def lists(site: Site, scenario: Scenario) -> None:
    """Newest first, in pages; or a new batch is not in them for a while, though it can be asked for."""
    for path, cursor in ((BATCHES, "after"), (MESSAGE_BATCHES, "after_id")):
        made = [site.create(1, path)["id"] for _ in range(3)]
        if "faults" in scenario:
            assert site.get(path).json()["data"] == []
            assert site.get(f"{path}/{made[0]}").status == 200
            site.advance(61)
        page = site.get(f"{path}?limit=2").json()
        assert [one["id"] for one in page["data"]] == [made[2], made[1]]
        assert (page["first_id"], page["last_id"], page["has_more"]) == (made[2], made[1], True)
        page = site.get(f"{path}?limit=2&{cursor}={made[1]}").json()
        assert ([one["id"] for one in page["data"]], page["has_more"]) == ([made[0]], False)


def lost_create(site: Site, scenario: Scenario) -> None:
    """E7: no answer came, and the batch is there, to be found by what was sent with it; or it is not there."""
    fault = only(scenario)
    wanted = site.wanted(IDS, metadata={"intent": "n-17"})
    if fault["kind"] == "reset_after_billing":
        with pytest.raises(ConnectionResetError):
            site.post(BATCHES, wanted)
    else:
        with site.opened(BATCHES, wanted) as opened:
            if fault["billed"]:
                wait(lambda: bool(site.get(BATCHES).json()["data"]), "the batch of a create that hangs")
            opened.setblocking(False)
            with pytest.raises(BlockingIOError):
                opened.recv(1)
    found = site.get(BATCHES).json()["data"]
    assert [one["metadata"] for one in found] == [{"intent": "n-17"}] * fault.get("billed", True)
    assert [len(site.rows(site.ended(one))) for one in found] == [10] * len(found)


def limited_polling(site: Site, scenario: Scenario) -> None:
    """429 to the one that asks for the batch and to the one that asks for the list; the next ones are answered."""
    for path in SIDES:
        site.play(scenario)
        batch = site.create(path=path)
        for address in (f"{path}/{batch['id']}", path):
            got = site.get(address)
            assert (got.status, got.headers["retry-after"]) == (429, "1")
            assert site.get(address).status == 200
        assert len(site.rows(site.ended(batch))) == 10
