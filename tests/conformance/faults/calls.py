"""01 to 10: refusals and failures of one call by status, headers and body, on the routes of both providers."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from conformance.faults.site import BOTH, CHAT, MESSAGES, Books, Got, Scenario, Site, only, unknown, wait

REFUSED = Books(0, 0, 0, 0)
FAILED = Books(1, 0, 0, 0)

#: Anthropic's words for a status; any other 5xx is an `api_error`, any other 4xx an `invalid_request_error`
TYPES = {403: "permission_error", 409: "conflict_error", 504: "timeout_error", 529: "overloaded_error"}


def retry_after(site: Site, scenario: Scenario) -> None:
    """429 with the header in the form that is wanted, whatever number it holds."""
    fault = only(scenario)
    form, seconds = fault.get("retry_after", "seconds"), fault.get("retry_after_s", 1)
    dimension = fault.get("dimension", "requests")
    for path, said in ((CHAT, (dimension, "rate_limit_exceeded")), (MESSAGES, ("rate_limit_error", None))):
        site.play(scenario)
        earliest = int(time.time()) + seconds
        got = site.ask(path)
        assert (got.status, got.error["type"], got.error.get("code")) == (429, *said)
        assert f"{dimension} per min" in got.error["message"]
        assert got.headers.get("retry-after-ms") == (str(seconds * 1000) if form == "milliseconds" else None)
        header = got.headers.get("retry-after")
        if form == "http_date":
            assert earliest <= parsedate_to_datetime(str(header)).timestamp() <= time.time() + seconds
        else:
            assert header == {"seconds": str(seconds), "garbage": "soon"}.get(form)
        assert site.books(received=1) == REFUSED


def should_retry(site: Site, scenario: Scenario) -> None:
    """The header says what the status would not."""
    fault = only(scenario)
    for path in BOTH:
        got = site.ask(path)
        assert got.status == {"rate_limited": 429, "server_error": 500, "html": 502}[fault["kind"]]
        assert got.headers["x-should-retry"] == str(fault["should_retry"]).lower()


def no_credit(site: Site, scenario: Scenario) -> None:
    """429 that no waiting cures, and no header that asks to wait."""
    got = site.ask()
    assert (got.status, got.error["code"]) == (429, only(scenario)["code"])
    assert got.error["type"] == "insufficient_quota"
    _no_way_back(got)
    assert site.books(received=1) == REFUSED


def spend_limit(site: Site, scenario: Scenario) -> None:
    """Anthropic's limits of money: only the ramp is over after a while."""
    form = only(scenario)["form"]
    status, kind, code = {
        "enforced": (429, "rate_limit_error", "enforced_spend_limit_reached"),
        "contract": (429, "rate_limit_error", "contract_spend_limit_reached"),
        "ramp": (429, "rate_limit_error", "ramp_limit_exceeded"),
        "own": (400, "invalid_request_error", None),
        "workspace": (400, "invalid_request_error", None),
        "billing": (402, "billing_error", None),
    }[form]
    got = site.ask(MESSAGES)
    assert (got.status, got.error["type"], got.error.get("details", {}).get("error_code")) == (status, kind, code)
    if status == 400:
        assert got.error["message"].startswith("You have reached your specified ")
        assert "API usage limits. You will regain access on " in got.error["message"]
    if form == "ramp":
        assert got.headers["retry-after"] == "1"
    else:
        _no_way_back(got)
    assert site.books(received=1) == REFUSED


def slow_down(site: Site, scenario: Scenario) -> None:
    """`slow_down` on 429 and, from older endpoints, on 503."""
    got = site.ask()
    assert (got.status, got.error["code"]) == (only(scenario)["status"], "slow_down")
    assert site.books(received=1) == REFUSED


def overloaded(site: Site, scenario: Scenario) -> None:
    """529 or 503; where the scenario leaves it open, whichever the provider has."""
    stated = only(scenario).get("status")
    for path, own in ((CHAT, 503), (MESSAGES, 529)):
        site.play(scenario)
        got = site.ask(path)
        assert got.status == (stated or own)
        if path == CHAT and got.status == 503:
            assert (got.error["type"], got.error["code"]) == ("service_unavailable_error", "server_is_overloaded")
        else:
            assert got.error["type"] == ("overloaded_error" if got.status == 529 else "api_error")
        assert site.books(received=1) == REFUSED


def server_error(site: Site, scenario: Scenario) -> None:
    """Taken up and failed, in the provider's words or with a proxy's page; nothing is billed."""
    fault = only(scenario)
    for path in BOTH:
        site.play(scenario)
        got = site.ask(path)
        assert got.status == fault["status"]
        if fault["kind"] == "html":
            _page(got)
        elif path == MESSAGES:
            assert got.error["type"] == TYPES.get(got.status, "api_error")
        else:
            assert got.error["type"] == ("service_unavailable_error" if got.status == 503 else "server_error")
        assert site.books(received=1) == FAILED


def client_error(site: Site, scenario: Scenario) -> None:
    """Any other 4xx, as JSON, as a page, or with nothing in it."""
    fault = only(scenario)
    for path in BOTH:
        site.play(scenario)
        got = site.ask(path)
        assert got.status == fault["status"]
        match fault.get("body", "json"):
            case "html":
                _page(got)
            case "empty":
                assert got.body == b""
            case _:
                kind = TYPES.get(got.status, "invalid_request_error") if path == MESSAGES else "invalid_request_error"
                assert got.error["type"] == kind
        assert site.books(received=1) == REFUSED


def key_is_revoked(site: Site, scenario: Scenario) -> None:
    """401 from a moment on, for good; 403 at once."""
    if only(scenario)["kind"] == "client_error":
        client_error(site, scenario)
        return
    set_at = time.monotonic()
    site.play(scenario)
    statuses = [site.ask(path).status for path in BOTH]
    if (time.monotonic() - set_at) * 1000 < only(scenario)["from_ms"]:  # on a machine that was not too slow for it
        assert statuses == [200, 200]
    wait(lambda: site.ask().status == 401, "the key's end")
    for path, said in ((CHAT, "invalid_request_error"), (MESSAGES, "authentication_error")):
        got = site.ask(path)
        assert (got.status, got.error["type"]) == (401, said)


def limit_headers(site: Site, scenario: Scenario) -> None:
    """What is left falls to nothing; or the headers are not there, all zero, or of the project as well."""
    if "faults" in scenario:
        _odd_limits(site, only(scenario)["form"])
    elif "requests_per_min" in scenario["rate_limit"]:
        _openai_limits(site)
    else:
        _anthropic_limits(site)


def _openai_limits(site: Site) -> None:
    """The resets are durations as Go prints them."""
    got = [site.ask() for _ in range(3)]
    assert [one.status for one in got] == [200, 200, 429]
    assert [one.headers["x-ratelimit-remaining-requests"] for one in got] == ["1", "0", "0"]
    resets = [one.headers["x-ratelimit-reset-requests"] for one in got]
    assert all(reset.endswith("s") for reset in resets)
    assert resets[0] == "1m0s"
    assert 1 <= int(got[2].headers["retry-after"]) <= 60


def _anthropic_limits(site: Site) -> None:
    """The resets are times; what is produced may leave the bucket in debt."""
    first, second = site.ask(MESSAGES), site.ask(MESSAGES)
    assert (first.status, second.status) == (200, 429)
    for name in ("input-tokens", "output-tokens"):
        reset = first.headers[f"anthropic-ratelimit-{name}-reset"]
        assert datetime.strptime(reset, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert int(first.headers[f"anthropic-ratelimit-{name}-remaining"]) % 1000 == 0
    assert "output tokens per minute" in second.error["message"]


def _odd_limits(site: Site, form: str) -> None:
    for path, prefix in ((CHAT, "x-ratelimit-"), (MESSAGES, "anthropic-ratelimit-")):
        got = site.ask(path)
        assert got.status == 200
        found = {name: value for name, value in got.headers.items() if name.startswith(prefix)}
        match form:
            case "absent":
                assert found == {}
            case "zero":
                assert {value for name, value in found.items() if "remaining" in name} == {"0"}
            case "project" if path == CHAT:
                assert {f"{prefix}{part}-project-tokens" for part in ("limit", "remaining", "reset")} <= found.keys()
            case "project":
                pass  # Anthropic has no projects
            case _:
                unknown(form)


def _page(got: Got) -> None:
    assert got.headers["content-type"].startswith("text/html")
    assert got.body.startswith(b"<!DOCTYPE html>")


def _no_way_back(got: Got) -> None:
    assert not {"retry-after", "retry-after-ms"} & got.headers.keys()
