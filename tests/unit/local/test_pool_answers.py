"""What is read from a provider's answers: models, limits, refusals. Tables of what servers send."""

import json
import socket
import ssl
from typing import Any

import pytest

from nightmill.kernel.domain.settings import Pool, PoolLimits
from nightmill.local.pools import wire
from nightmill.local.pools.call import Answer, Cause, no_answer
from nightmill.local.pools.limits import compared, told_limits
from nightmill.local.pools.verdict import Weight, refused
from nightmill.provider_gateway.adapters import ADAPTERS

NOW_MS = 1_796_000_000_000  # 2026-11-30T00:53:20Z


def answer(body: Any, status: int = 200, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=data)


def pool(**fields: Any) -> Pool:
    base = {"provider": "openai", "base_url": "http://x/v1", "model": "m", "limits": {"slots": 1}, "context_tokens": 9}
    return Pool.model_validate({**base, **fields})


@pytest.mark.parametrize(
    ("body", "models"),
    [
        ({"object": "list", "data": [{"id": "a"}, {"id": "b", "max_model_len": 4096}]}, [("a", None), ("b", 4096)]),
        ({"data": [{"type": "model", "id": "c", "max_input_tokens": 200000}], "has_more": False}, [("c", 200000)]),
        ({"models": [{"name": "llama3", "model": "llama3"}]}, [("llama3", None)]),
        ([{"id": "a"}], [("a", None)]),
        ({"data": []}, []),
        ({"data": [{"id": 7}]}, None),
        ({"data": [{"id": "a\x1b[2J"}, {"id": "b"}]}, [("b", None)]),
        ({"error": "x"}, None),
        (b"<html>", None),
        (b"[" * 100_000, None),
    ],
)
def test_lists_of_models(body: Any, models: list[tuple[str, int | None]] | None) -> None:
    found = wire.offers(answer(body))
    assert (found if found is None else [(offer.model, offer.context_tokens) for offer in found]) == models


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (
            {"x-ratelimit-limit-requests": "500", "x-ratelimit-limit-tokens": "30000"},
            {"requests_per_minute": 500, "input_tokens_per_minute": 30000},
        ),
        # the smaller of the account's and the project's
        (
            {"x-ratelimit-limit-tokens": "30000", "x-ratelimit-limit-project-tokens": "9000"},
            {"input_tokens_per_minute": 9000},
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-input-tokens-limit": "50000",
                "anthropic-ratelimit-output-tokens-limit": "8000",
                "anthropic-ratelimit-output-tokens-reset": "2026-11-30T00:53:50Z",
            },
            {"requests_per_minute": 50, "input_tokens_per_minute": 50000, "output_tokens_per_minute": 8000},
        ),
        # a window that ends in more than a minute is a longer one
        ({"x-ratelimit-limit-requests": "200", "x-ratelimit-reset-requests": "7m12s"}, {}),
        ({"x-ratelimit-limit-requests": "200", "x-ratelimit-reset-requests": "59.5s"}, {"requests_per_minute": 200}),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-reset": "2026-11-30T01:53:50Z",
            },
            {},
        ),
        *[({"x-ratelimit-limit-requests": garbage}, {}) for garbage in ("", "0", "-1", "1e9", "many", "٣", "9" * 40)],
        ({}, {}),
    ],
)
def test_limits_in_headers(headers: dict[str, str], told: dict[str, int]) -> None:
    """E7: what both families of headers tell, per minute."""
    assert told_limits(headers, now_ms=NOW_MS) == told


@pytest.mark.parametrize(("configured", "suggested"), [(None, 500), (501, 500), (500, None), (20, None)])
def test_a_limit_is_suggested_where_the_pool_goes_beyond_it(configured: int | None, suggested: int | None) -> None:
    limits = PoolLimits(slots=8, requests_per_minute=configured)
    (comparison,) = compared(limits, {"requests_per_minute": 500})
    assert (comparison.configured, comparison.told, comparison.suggested) == (configured, 500, suggested)


_MODEL_WORDS = "The model `m` does not exist or you do not have access to it."


@pytest.mark.parametrize(
    ("response", "about", "weight"),
    [
        (answer({"error": {"code": "invalid_api_key"}}, 401), "key", Weight.MEND),
        (answer({"error": "Unauthorized"}, 401), "key", Weight.MEND),
        (answer({"type": "error", "error": {"type": "authentication_error"}}, 401), "key", Weight.MEND),
        (answer({"error": {"type": "permission_error"}}, 403), "key", Weight.MEND),
        (answer({"error": {"code": "model_not_found", "message": _MODEL_WORDS}}, 403), "model", Weight.MEND),
        (answer({"error": {"message": "model: m", "type": "not_found_error"}}, 404), "model", Weight.MEND),
        (answer({"object": "error", "message": _MODEL_WORDS, "code": 404}, 404), "model", Weight.MEND),
        (answer({"detail": {"error": {"message": _MODEL_WORDS}}}, 404), "model", Weight.MEND),
        (answer({"detail": "Not Found"}, 404), "address", Weight.MEND),
        (answer({"error": {"code": "unknown_url"}}, 404), "address", Weight.MEND),
        (answer({"error": {"code": "unsupported_parameter"}}, 400), "call", Weight.MEND),
        (answer(b"", 302, location="https://login.example/sso?key=1"), "address", Weight.MEND),
        (answer({"error": {"code": "insufficient_quota"}}, 429), "account", Weight.AWAY),
        (answer({"error": {"details": {"error_code": "enforced_spend_limit_reached"}}}, 429), "account", Weight.AWAY),
        (answer({"error": {"message": "You have reached your specified API usage limits."}}, 400), "account",
         Weight.AWAY),
        (answer({"error": {"type": "billing_error"}}, 402), "account", Weight.AWAY),
        (answer({"error": {"code": "rate_limit_exceeded"}}, 429, retry_after="7"), "rate", Weight.AWAY),
        (answer(b"<html>", 502), "provider", Weight.AWAY),
        (answer({"error": {"type": "overloaded_error"}}, 529), "provider", Weight.AWAY),
        (answer({}, 409), "call", Weight.AWAY),
        (answer({}, 204), "address", Weight.MEND),
    ],
)  # fmt: skip
def test_refusals(response: Answer, about: str, weight: Weight) -> None:
    """E8: what must be mended is told from what may pass by itself."""
    finding = refused(response, key_place="variable K", model="m", now_ms=NOW_MS)
    assert (finding.about, finding.weight, finding.remedy != "") == (about, weight, True)


def test_what_a_refusal_shows() -> None:
    """P6: codes that are plain names, never an error's text, which may repeat the key."""
    body = {"error": {"code": "sk live/1", "type": "authentication_error", "message": "Incorrect key: sk-live-1"}}
    finding = refused(answer(body, 401), key_place="variable K", model="m", now_ms=NOW_MS)
    assert finding.detail == "the provider refuses the key from variable K (status 401, code authentication_error)"
    redirect = answer(b"", 307, location="https://u:secret@other.example:8443/v1/models?key=sk-live-1")
    detail = refused(redirect, key_place=None, model="m", now_ms=NOW_MS).detail
    assert detail == "it redirects to https://other.example:8443/v1/models, which is not followed (status 307)"
    limited = answer({}, 429, retry_after_ms="1500")
    assert "again in 2 s" in refused(limited, key_place=None, model="m", now_ms=NOW_MS).detail


@pytest.mark.parametrize(
    ("fields", "url", "body"),
    [
        ({}, "/chat/completions", {"max_completion_tokens": 1}),
        ({"provider": "openai_compatible"}, "/chat/completions", {"max_tokens": 1}),
        ({"api": "responses"}, "/responses", {"max_output_tokens": 16, "store": False}),
        ({"provider": "anthropic"}, "/messages", {"max_tokens": 1}),
        ({"provider": "something_new"}, "/chat/completions", {"max_tokens": 1}),
    ],
)
def test_how_each_provider_is_asked(fields: dict[str, Any], url: str, body: dict[str, Any]) -> None:
    asker = wire.Asker(pool(**fields), "http://x/v1/", "secret")
    question = asker.call()
    sent = json.loads(question.body or b"")
    assert question.url == f"http://x/v1{url}"
    assert sent.pop("messages", None) or sent.pop("input")
    assert sent == {"model": "m", **body}
    assert question.headers["authorization"] == "Bearer secret"
    assert ("anthropic-version" in question.headers) == (fields.get("provider") == "anthropic")
    assert "secret" not in repr(question)


def test_every_provider_of_the_gateway_is_known() -> None:
    assert set(ADAPTERS) <= set(wire.SHAPES)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Cause.NAME),
        (ssl.SSLCertVerificationError(1, "self-signed"), Cause.CERTIFICATE),
        (ssl.SSLError(1, "wrong version number"), Cause.TLS),
        (ConnectionRefusedError(111, "Connection refused"), Cause.REFUSED),
        (OSError(101, "Network is unreachable"), Cause.UNREACHABLE),
        (ConnectionResetError(104, "Connection reset by peer"), Cause.BROKEN_OFF),
        (UnicodeError("label too long"), Cause.ADDRESS),
    ],
)
def test_what_broke(error: Exception, cause: Cause) -> None:
    assert no_answer(error).cause is cause
    with pytest.raises(ZeroDivisionError):
        no_answer(ZeroDivisionError())
