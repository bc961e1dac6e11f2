"""The wire of embeddings: many texts out, a vector for each in, whatever order and form they come in (E7)."""

import json
import math
from typing import Any

import pytest

from nightmill.kernel.domain.pipeline import Embedding
from nightmill.kernel.domain.prompt import ChatMessage
from nightmill.kernel.domain.vectors import decode_vector, encode_vector
from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.adapters import EMBEDDERS
from nightmill.provider_gateway.adapters.openai import OpenAi
from nightmill.provider_gateway.adapters.openai_compatible import OpenAiCompatible
from nightmill.provider_gateway.exchange import Vectors
from nightmill.provider_gateway.failures import Signal
from unit.provider_gateway.makers import NOW_MS, make_pool, response

A, B = [0.5, -1.0], [0.25, 2.0]
PLAIN = Embedding(dimensions=2)


def entry(index: Any, embedding: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": embedding}


def answer(*data: Any, **fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    return {"object": "list", "model": "small", "data": list(data), "usage": usage, **fields}


def read(body: Any, inputs: int = 2, status: int = 200) -> Vectors:
    return OpenAi().vectors(response(body, status), inputs=inputs, now_ms=NOW_MS)


def signal_of(found: Vectors) -> str:
    assert found.failure is not None
    return found.failure.signal


@pytest.mark.parametrize(
    ("provider", "embedding", "refuses", "wanted"),
    [
        ("openai", PLAIN, (), {"encoding_format": "base64"}),
        ("openai", Embedding(dimensions=2, shorten=True), (), {"encoding_format": "base64", "dimensions": 2}),
        ("openai_compatible", PLAIN, ("encoding_format",), {}),
        ("openai_compatible", Embedding(dimensions=2, shorten=True), ("encoding_format",), {"dimensions": 2}),
    ],
)
def test_the_request_is_the_documented_one(
    provider: str, embedding: Embedding, refuses: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    """E7: a parameter that the model does not take is not sent; the number of dimensions only where it is asked for."""
    pool = make_pool(provider=provider, refuses=refuses)
    form = EMBEDDERS[provider].texts_form(base_url="https://host/v1/", pool=pool, embedding=embedding)
    request = form.together(["one", 'zwei "Grüße"'])
    assert request.url == "https://host/v1/embeddings"
    assert json.loads(request.body) == {"model": "small", "input": ["one", 'zwei "Grüße"'], **wanted}
    alone = form.request((ChatMessage(role="user", content="one"),), 0)
    assert json.loads(alone.body)["input"] == ["one"]


def test_only_of_one_text_alone_a_usage_tells_whether_it_was_cut() -> None:
    form = OpenAiCompatible().texts_form(base_url="http://host/v1", pool=make_pool(), embedding=PLAIN)
    assert form.together(["one"]).prompt_bytes > 0
    assert form.together(["one", "two"]).prompt_bytes == 0


@pytest.mark.parametrize(
    "data",
    [
        (entry(0, encode_vector(A)), entry(1, encode_vector(B))),
        (entry(1, encode_vector(B)), entry(0, encode_vector(A))),  # by index, not by place
        (entry(0, A), entry(1, B)),  # a server that knows no base64
        (entry(1, B), entry(0, encode_vector(A))),
    ],
)
def test_each_input_has_its_own_vector(data: tuple[Any, ...]) -> None:
    found = read(answer(*data))
    assert [list(decode_vector(text)) for text in found.texts] == [A, B]
    assert (found.failure, found.served_model) == (None, "small")
    assert found.usage == Usage(input_tokens=7, cached_tokens=0, output_tokens=0)


@pytest.mark.parametrize(
    "data",
    [
        (),
        (entry(0, A),),  # one is missing
        (entry(0, A), entry(1, B), entry(2, B)),
        (entry(0, A), entry(0, B)),  # one stands twice
        (entry(0, A), entry(2, B)),
        (entry(1, A), entry(2, B)),  # counted from 1
        (entry(0, A), entry("1", B)),
        (entry(0, A), entry(True, B)),
        (entry(0, A), entry(None, B)),
        (entry(0, A), entry(1, None)),
        (entry(0, A), entry(1, {"float": B})),
        (entry(0, A), entry(1, ["0.25", 2.0])),
        (entry(0, A), entry(1, [True, 2.0])),
        (entry(0, A), entry(1, "é")),
        (entry(0, A), entry(1, "")),
        (entry(0, A), entry(1, [])),
        (entry(0, A), None),
    ],
)
def test_vectors_that_do_not_fit_the_inputs(data: tuple[Any, ...]) -> None:
    """Row 39: count and order of indices are the wire's; the call was paid for, and its usage is known."""
    found = read(answer(*data))
    assert signal_of(found) == Signal.EMBEDDINGS_MISMATCHED
    assert (found.texts, found.usage) == ((), Usage(input_tokens=7, cached_tokens=0, output_tokens=0))


@pytest.mark.parametrize("written", [b"NaN", b"null"])
def test_what_is_no_number_is_left_to_the_validator(written: bytes) -> None:
    """Broken servers write it in one way or the other; it spoils its own vector alone."""
    body = json.dumps(answer(entry(0, A), entry(1, [77, 2.0]))).encode().replace(b"77", written)
    found = read(body)
    assert found.failure is None
    assert list(decode_vector(found.texts[0])) == A
    assert math.isnan(decode_vector(found.texts[1])[0])


def test_a_number_without_bounds_is_left_to_the_validator() -> None:
    found = read(answer(entry(0, A), entry(1, [10**400, 1])))
    assert not math.isfinite(decode_vector(found.texts[1])[0])


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": 0}, {"prompt_tokens": 1.5}, 3]
)
def test_a_usage_that_is_not_told(usage: Any) -> None:
    """P4: unknown, never 0."""
    assert read(answer(entry(0, A), usage=usage), 1).usage is None


@pytest.mark.parametrize(
    ("body", "status", "signal"),
    [
        ({"error": {"code": "rate_limit_exceeded", "message": "x"}}, 429, Signal.RATE_LIMITED),
        ({"error": {"message": "This model's maximum context length is 8192 tokens"}}, 400, Signal.CONTEXT_TOO_LONG),
        ({"error": {"message": "x", "param": "input"}}, 400, Signal.BAD_REQUEST),
        ({"error": {"code": "server_error", "message": "x"}}, 200, Signal.SERVER_ERROR),
        ({"object": "list"}, 200, Signal.UNEXPECTED_SHAPE),
        ({"data": {}}, 200, Signal.UNEXPECTED_SHAPE),
        ([], 200, Signal.UNEXPECTED_SHAPE),
        (b"<html>", 200, Signal.HTML_BODY),
        (b'{"data":[{"index":0,"embedding":[0.1,', 200, Signal.BODY_CUT),
        (b"No", 200, Signal.BODY_MALFORMED),
    ],
)
def test_failures_are_those_of_every_call(body: Any, status: int, signal: Signal) -> None:
    """E8."""
    assert signal_of(read(body, status=status)) == signal


def test_a_server_whose_context_is_too_small_says_so_with_status_500() -> None:
    """llama.cpp fails the whole call by the longest input: it is the input's fault, not the server's."""
    said = {"error": {"code": 500, "message": "input is too large to process. increase the physical batch size"}}
    found = OpenAiCompatible().vectors(response(said, 500), inputs=2, now_ms=NOW_MS)
    assert signal_of(found) == Signal.CONTEXT_TOO_LONG


@pytest.mark.parametrize(
    ("error", "place"),
    [
        ({"param": "input[1]", "message": "x"}, 1),
        ({"param": "input.2", "message": "x"}, 2),
        ({"param": "input", "message": "Invalid 'input[2]': string too long."}, 2),
        ({"param": None, "message": "Invalid 'input[1]' and 'input[2]'."}, None),  # not one
        ({"param": "input[3]", "message": "x"}, None),  # there is none
        ({"param": "input", "message": "x"}, None),
        ({"param": None, "message": "prompt_input[1] is odd"}, None),
        ("input[1] is too long", 1),
    ],
)
def test_which_input_a_refusal_names(error: Any, place: int | None) -> None:
    """E8: only that one has failed by it."""
    assert read({"error": error}, 3, status=400).at_fault == place


def test_a_line_of_a_batch_is_one_input() -> None:
    """E6: the bulk lane reads the same."""
    reply = OpenAi().reply(response(answer(entry(0, A))), now_ms=NOW_MS)
    assert list(decode_vector(reply.text or "")) == A
    assert reply.usage == Usage(input_tokens=7, cached_tokens=0, output_tokens=0)
