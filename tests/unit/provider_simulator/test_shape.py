"""Lines that are read by their bytes alone are what a parser makes of them, and so are their rows and their bill."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.line import run_line
from nightmill.provider_simulator.bulk.lines import FileCheck
from nightmill.provider_simulator.bulk.rows import Done
from nightmill.provider_simulator.bulk.shape import Line, LineReader, parsed
from nightmill.provider_simulator.bulk.states import Status
from nightmill.provider_simulator.reply import Side
from nightmill.provider_simulator.scenario import Dialect, Scenario
from nightmill.provider_simulator.state import Run

CHAT, RESPONSES, EMBEDDINGS = "/v1/chat/completions", "/v1/responses", "/v1/embeddings"
MESSAGES = "/v1/messages"
SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["a", "b"]}, "quote": {"type": "string"}},
    "required": ["label", "quote"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
FREE = {"type": "json_object"}
RULES = "Say which. " * 8


def chat(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": text}]
    return {"model": "gpt-6-luna", "messages": messages, "max_completion_tokens": 64, **more}


def parts(text: str) -> dict[str, Any]:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    pieces = [{"type": "text", "text": RULES * 60, **mark}, {"type": "text", "text": text}]
    return {"model": "gpt-6-luna", "messages": [{"role": "user", "content": pieces}]}


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "claude-haiku-5-5", "max_tokens": 60, "messages": [{"role": "user", "content": text}], **more}


def block(text: str) -> dict[str, Any]:
    mark = {"type": "ephemeral", "ttl": "1h"}
    blocks = [{"type": "text", "text": RULES}, {"type": "text", "text": text, "cache_control": mark}]
    return message("x", messages=[{"role": "user", "content": blocks}])


#: endpoint and body of lines that differ in `text`, good ones and bad ones
KINDS: dict[str, tuple[str, Any]] = {
    "chat": (CHAT, chat),
    "schema": (CHAT, lambda text: chat(text, response_format=FORMAT)),
    "json": (CHAT, lambda text: chat(text, response_format=FREE)),
    "parts": (CHAT, parts),
    "few tokens": (CHAT, lambda text: chat(text, max_completion_tokens=3)),
    "unknown parameter": (CHAT, lambda text: chat(text, colour="red")),
    "text elsewhere": (CHAT, lambda text: chat(text, metadata={"a": text[:500], "b": "id-1"})),
    "differs elsewhere": (CHAT, lambda text: chat(text, user=f"reads {text}")),
    "no text": (CHAT, lambda text: chat(text, messages=[])),
    "responses": (RESPONSES, lambda text: {"model": "gpt-6-sol", "input": text, "instructions": RULES}),
    "items": (RESPONSES, lambda text: {"model": "gpt-6-sol", "input": [{"role": "user", "content": text}]}),
    "embeddings": (EMBEDDINGS, lambda text: {"model": "text-embedding-3-small", "input": text, "dimensions": 8}),
    "texts": (EMBEDDINGS, lambda text: {"model": "text-embedding-3-small", "input": ["one", text], "dimensions": 8}),
    "messages": (MESSAGES, message),
    "system": (MESSAGES, lambda text: message(text, system=RULES)),
    "blocks": (MESSAGES, block),
    "removed": (MESSAGES, lambda text: message(text, temperature=0)),
    "speed": (MESSAGES, lambda text: message(text, speed="fast")),
}
UNLIKE = ("no text", "text elsewhere", "differs elsewhere")  # lines that have no shape in common
ODD = ["", " ", '"', "\\", 'a\\"b', "json", "id-1", "another probe", "x" * 9_000, "é漢" * 900, "\x7f\n\u2028", RULES]
SPOILT = [b"\x00", b"\n", b"\xff", b"\\", b'"', b'\\"', b"\\u00e9", b'","x":"', b"\\ud800"]
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(ODD),
)
IDS = st.one_of(st.sampled_from(["id-1", "id-2", 'i"d', "i\\d", "ïd", "", "custom_id"]), st.integers(0, 99).map(str))


def encoded(kind: str, custom_id: str, text: str, *, loose: bool = False, ascii_only: bool = True) -> bytes:
    """One line as a client writes it: `loose` with spaces."""
    endpoint, body = KINDS[kind]
    line: dict[str, Any] = {"custom_id": custom_id}
    line |= {"params": body(text)} if endpoint == MESSAGES else {"method": "POST", "url": endpoint, "body": body(text)}
    separators = (", ", ": ") if loose else (",", ":")
    return json.dumps(line, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def batch_of(endpoint: str) -> Batch:
    side = Side.ANTHROPIC if endpoint == MESSAGES else Side.OPENAI
    return Batch(
        id="batch_0123456789abcdef",
        side=side,
        status=Status.IN_PROGRESS,
        endpoint=endpoint,
        input_file_id="file-1",
        created_at_ms=0,
        expires_at_ms=1,
        version="2026-10-21",
    )


def ran(raws: list[bytes], endpoint: str, scenario: Scenario, *, by_shape: bool) -> list[Done]:
    """All lines in turn, with one memory of shapes, or each by itself."""
    run, batch = Run(scenario, 0), batch_of(endpoint)
    reader = LineReader("params" if endpoint == MESSAGES else "body")
    dones = []
    for number, raw in enumerate(raws):
        line = reader.read(raw) if by_shape else None
        if line is None:
            data = parsed(raw)
            assert data is not None
            line = Line(None, data["custom_id"], "", data)
        dones.append(run_line(run, batch, line, number=number, now_ms=7_000))
    return dones


@given(
    kind=st.sampled_from(sorted(KINDS)),
    lines=st.lists(st.tuples(IDS, TEXTS), min_size=2, max_size=6),
    loose=st.booleans(),
    ascii_only=st.booleans(),
)
@settings(max_examples=60)
def test_rows_and_bill_are_those_of_lines_that_are_parsed(
    kind: str, lines: list[tuple[str, str]], loose: bool, ascii_only: bool
) -> None:
    """E12: whichever lines went before."""
    raws = [encoded(kind, *line, loose=loose, ascii_only=ascii_only) for line in lines]
    endpoint = KINDS[kind][0]
    for scenario in (Scenario(dialect=Dialect.OPENAI, seed=3), Scenario(dialect=Dialect.OPENAI, context_tokens=90)):
        assert ran(raws, endpoint, scenario, by_shape=True) == ran(raws, endpoint, scenario, by_shape=False)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("first", ["a text", "json"])
def test_odd_texts_after_a_plain_one(kind: str, first: str) -> None:
    """E12: empty, escaped, long enough for a prompt cache, without the word that free JSON wants."""
    raws = [encoded(kind, "id-1", first), *(encoded(kind, f"id-{n}", text) for n, text in enumerate(ODD))]
    for scenario in (Scenario(dialect=Dialect.OPENAI, seed=3), Scenario(dialect=Dialect.OPENAI, context_tokens=90)):
        ours, wanted = (ran(raws, KINDS[kind][0], scenario, by_shape=by_shape) for by_shape in (True, False))
        assert ours == wanted


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("at", [b"id-2", b"text 2"])
def test_bytes_that_may_not_stand_in_a_text(spoil: bytes, at: bytes) -> None:
    """E12: or that make another value of it."""
    reader = LineReader("body")
    assert reader.read(encoded("chat", "id-1", "text 1")) is not None
    raw = encoded("chat", "id-2", "text 2").replace(at, at[:2] + spoil + at[2:])
    found = reader.read(raw)
    assert (None if found is None else found.data()) == parsed(raw)


def test_an_id_that_is_the_name_of_its_field() -> None:
    """Which of two equal texts is the id, only a change of it tells."""
    reader = LineReader("body")
    first = reader.read(encoded("chat", "custom_id", "text 1"))
    raw = encoded("chat", "custom_id", "text 2").replace(b'"custom_id"', b'"other"', 1)
    found = reader.read(raw)
    assert first is not None
    assert found is not None
    assert (found.custom_id, found.data()) == (None, parsed(raw))


@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2),
    lines=st.lists(st.tuples(IDS, TEXTS), min_size=2, max_size=8),
    data=st.data(),
)
@settings(max_examples=60)
def test_what_is_read_is_what_a_parser_reads(
    kinds: list[str], lines: list[tuple[str, str]], data: st.DataObject
) -> None:
    """E12: of good lines, and of lines with a few bytes that are wrong."""
    reader = LineReader("body")
    for number, line in enumerate(lines):
        raw = bytearray(encoded(kinds[number % len(kinds)], *line, ascii_only=False))
        for _ in range(data.draw(st.integers(0, 2))):
            place = data.draw(st.integers(0, len(raw) - 1))
            raw[place : place + data.draw(st.integers(0, 1))] = data.draw(
                st.sampled_from([b"", b'"', b"\\", b"\x00", b"\xff", b"}"])
            )
        found, wanted = reader.read(bytes(raw)), parsed(bytes(raw))
        assert (None if found is None else found.data()) == wanted
        if found is not None and wanted is not None:
            assert found.custom_id == wanted.get("custom_id")


@pytest.mark.parametrize("kind", [kind for kind in sorted(KINDS) if kind not in UNLIKE])
def test_the_second_line_is_known_by_its_shape(kind: str) -> None:
    reader = LineReader("params" if KINDS[kind][0] == MESSAGES else "body")
    first, second = (reader.read(encoded(kind, f"id-{n}", f'a "text" {n}')) for n in (1, 2))
    assert first is not None
    assert first.whole is not None
    assert second is not None
    assert (second.whole, second.text) == (None, 'a "text" 2')


def test_shapes_that_nothing_fits_are_learned_seldom() -> None:
    """Lines that all differ in more than two texts cost what they cost before."""
    reader = LineReader("body")
    read = [reader.read(encoded("differs elsewhere", f"id-{n}", f"text {n}")) for n in range(1, 2_000)]
    assert sum(line is not None and line.shape is not None for line in read) <= 12


def test_a_line_is_good_under_the_rules_that_it_was_checked_by() -> None:
    """A scenario that comes while a batch runs has a say in the lines that are left."""
    reader, batch = LineReader("body"), batch_of(CHAT)
    codes = []
    for number, models in enumerate(((), ("other",), ("gpt-6-luna",))):
        run = Run(Scenario(dialect=Dialect.OPENAI, models=models), 0)
        for place in range(2):
            line = reader.read(encoded("chat", f"id-{number}-{place}", f"text {number}"))
            assert line is not None
            reply = run_line(run, batch, line, number=number, now_ms=0).reply
            codes.append(None if reply is None else reply.code)
    assert codes == [None, None, "model_not_found", "model_not_found", None, None]


def test_a_file_is_refused_for_the_same_lines() -> None:
    """E12: a repeated id, another path and broken JSON among lines of one shape."""
    raws = [encoded("chat", f"id-{n}", f"text {n}") for n in range(6)]
    raws[3] = encoded("chat", "id-1", "text 3")
    raws[4] = raws[4].replace(b"/v1/chat/completions", b"/v1/responses")
    raws[5] = raws[5].replace(b"text 5", b'text "5')
    check = FileCheck(endpoint=CHAT, max_requests=10)
    good = [check.line(raw) is not None for raw in raws]
    check.finish()
    assert good == [True, True, True, False, False, False]
    assert [(error["code"], error["line"]) for error in check.errors] == [
        ("duplicate_custom_id", 4),
        ("url_mismatch", 5),
        ("invalid_json_line", 6),
    ]
