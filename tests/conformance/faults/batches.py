"""15 to 25: files, validation, states and rows of batches. Ten lines, `i-0` to `i-9`, unless said otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any

from conformance.faults.site import BATCHES, DAY_S, FILES, MESSAGE_BATCHES, Scenario, Site, ids_of, only, unknown, wait

IDS = [f"i-{n}" for n in range(10)]
CASUALTY = "i-3"


def file_pending(site: Site, scenario: Scenario) -> None:
    """`uploaded` at first, `processed` after a while."""
    made = site.upload(b"{}\n").json()
    assert made["status"] == "uploaded"
    assert site.get(f"{FILES}/{made['id']}").json()["status"] == "uploaded"
    site.advance(61)
    assert site.get(f"{FILES}/{made['id']}").json()["status"] == "processed"


def uploads(site: Site, scenario: Scenario) -> None:
    """Refused in the provider's words, or taken and not what was sent."""
    fault, data = only(scenario), b'{"custom_id": "a"}\n' * 3
    got = site.upload(data)
    match fault.get("form", fault["kind"]):
        case "format":
            assert (got.status, got.error["message"]) == (400, "Invalid file format for Batch API. Must be .jsonl")
        case "too_large":
            assert got.status == 400
            assert got.error["message"].startswith("File is too large.")
        case "upload_altered":
            kept = site.get(f"{FILES}/{got.json()['id']}/content").body
            assert kept == data[: -fault["lose_bytes"]]
            assert got.json()["bytes"] == len(kept)
        case form:
            unknown(form)
    assert len(site.get(FILES).json()["data"]) == (got.status == 200)


def failed_in_validation(site: Site, scenario: Scenario) -> None:
    """The create is answered with 200; later the batch has failed, with so many errors, or with one of no line."""
    fault = only(scenario)
    made = site.create()
    assert made["status"] == "validating"
    batch = site.ended(made)
    assert (batch["status"], batch["output_file_id"], batch["error_file_id"]) == ("failed", None, None)
    assert batch["failed_at"] is not None
    told = [(error["code"], error["line"]) for error in batch["errors"]["data"]]
    assert told == [(fault["code"], line) for line in (range(1, fault["lines"] + 1) if fault["lines"] else [None])]
    assert all(error["message"] for error in batch["errors"]["data"])
    assert site.books().billed == 0


def enqueued(site: Site, scenario: Scenario) -> None:
    """The second batch does not fit beside the first one, which is held; once that has ended, it does."""
    path = BATCHES if "max_enqueued_tokens" in scenario["batches"] else MESSAGE_BATCHES
    first = site.until(site.create(path=path), "in_progress")
    if path == BATCHES:
        [error] = site.ended(site.create())["errors"]["data"]
        assert error["code"] == "token_limit_exceeded"
        assert "Limit: 200 enqueued tokens" in error["message"]
    else:
        over = site.post(path, site.wanted(IDS, path))
        assert (over.status, over.error["type"]) == (429, "rate_limit_error")
    assert site.post(f"{path}/{first['id']}/cancel").status == 200
    site.ended(first)
    second = site.ended(site.create(path=path))
    assert len(site.rows(second)) == 10


def stuck(site: Site, scenario: Scenario) -> None:
    """It stays in its state, whatever time passes, until the window ends; or it goes on and its counts do not."""
    fault = only(scenario)
    if fault["kind"] == "counts_wrong":
        batch = site.ended(site.create())
        assert batch["request_counts"] == {"total": 10, "completed": 0, "failed": 0}
        assert len(site.rows(batch)) == 10
        return
    batch = site.until(site.create(), fault["state"])
    site.advance(3600)
    assert site.again(batch)["status"] == fault["state"]
    site.advance(DAY_S)
    assert site.ended(batch)["status"] == "expired"


def very_fast(site: Site, scenario: Scenario) -> None:
    """From `validating` to `completed` between the answer to the create and the first poll."""
    made = site.create()
    assert made["status"] == "validating"
    wait(lambda: site.simulator.ledger()["batches"]["open"] == 0, "the end of the batch")
    assert site.again(made)["status"] == "completed"
    made = site.create(path=MESSAGE_BATCHES)
    assert made["processing_status"] == "in_progress"
    wait(lambda: site.simulator.ledger()["batches"]["open"] == 0, "the end of the batch")
    assert site.again(made)["processing_status"] == "ended"


def shuffled(site: Site, scenario: Scenario) -> None:
    """Every row is there, in the order of the lines or in another one."""
    for path in (BATCHES, MESSAGE_BATCHES):
        found = ids_of(site.rows(site.ended(site.create(path=path))))
        assert sorted(found) == IDS
        assert (found != IDS) is scenario["batches"]["shuffle"]


def all_failed(site: Site, scenario: Scenario) -> None:
    """`completed`, without an output file: null, or an empty text."""
    blank = len(scenario["faults"]) == 2
    batch = site.ended(site.create())
    assert (batch["status"], batch["output_file_id"]) == ("completed", "" if blank else None)
    assert batch["request_counts"] == {"total": 10, "completed": 0, "failed": 10}
    assert sorted(ids_of(site.rows(batch, "error"))) == IDS


def mixed_files(site: Site, scenario: Scenario) -> None:
    """Some lines are in one file and the others in the other."""
    batch = site.ended(site.create(40))
    good, bad = ids_of(site.rows(batch)), ids_of(site.rows(batch, "error"))
    assert 0 < len(bad) < 40
    assert sorted(good + bad) == sorted(f"i-{n}" for n in range(40))
    assert batch["request_counts"] == {"total": 40, "completed": len(good), "failed": len(bad)}


def error_rows(site: Site, scenario: Scenario) -> None:
    """A status and an error body; no response but a code; a response of status 0 in the output; counts that lie."""
    fault = only(scenario)
    batch = site.ended(site.create())
    good, bad, counts = site.rows(batch), site.rows(batch, "error"), batch["request_counts"]
    assert sorted(ids_of(good + bad)) == IDS
    match fault.get("form", fault["kind"]):
        case "server_error" | "rate_limited":
            told = {(row["response"]["status_code"], row["response"]["body"]["error"]["type"]) for row in bad}
            assert told == {(429, "requests") if fault["kind"] == "rate_limited" else (500, "server_error")}
            assert {row["error"] for row in bad} == {None}
        case "code":
            assert {(row["response"], row["error"]["code"]) for row in bad} == {(None, "request_timeout")}
        case "status_zero":
            empty = {"status_code": 0, "request_id": "", "body": {}}
            assert [(row["response"], row["error"]) for row in good] == [(empty, None)] * 10
            assert counts == {"total": 10, "completed": 10, "failed": 0}
        case "all_completed" | "zero" | "null" as form:
            lies: dict[str, Any] = {
                "all_completed": {"total": 10, "completed": 10, "failed": 0},
                "zero": {"total": 0, "completed": 0, "failed": 0},
            }
            assert counts == lies.get(form)
            assert len(bad) == 10
        case form:
            unknown(form)
    assert site.books().billed == 0


def odd_rows(site: Site, scenario: Scenario) -> None:
    """One of ten rows is not there, is there twice, has an id that nobody sent; or a row of another batch is there.

    All ten lines are billed; of the row that is not there the books say that it is lost.
    """
    form = only(scenario)["form"]
    for path in (BATCHES, MESSAGE_BATCHES):
        site.play(scenario)
        found = Counter(ids_of(site.rows(site.ended(site.create(path=path)))))
        missing, more = Counter(IDS) - found, found - Counter(IDS)
        match form:
            case "missing":
                assert (missing, more.total()) == (Counter([CASUALTY]), 0)
            case "duplicate":
                assert (missing.total(), more) == (0, Counter([CASUALTY]))
            case "unknown_id":
                assert (missing, more.total()) == (Counter([CASUALTY]), 1)
            case "foreign":
                assert (missing.total(), more.total()) == (0, 1)
            case _:
                unknown(form)
        assert site.books().billed == 10
        assert site.books().lost == (form == "missing")
        usage_lost = {row["attempt_id"] for row in site.simulator.attempts() if not row["usage_delivered"]}
        assert usage_lost == ({CASUALTY} if form in ("missing", "unknown_id") else set())
