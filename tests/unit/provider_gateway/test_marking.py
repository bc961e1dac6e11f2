"""Where requests say that a shared beginning is to be cached, and which calls say so."""

import json
from pathlib import Path
from typing import Any

import pytest

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.prices import WrittenPrice
from nightmill.kernel.domain.prompt import ChatMessage, repair_messages
from nightmill.kernel.domain.prompt_cache import Lifetime
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import write_block
from nightmill.provider_gateway.adapters import adapter_of
from nightmill.provider_gateway.caller import Call
from nightmill.provider_gateway.render import Renderer
from unit.provider_gateway.makers import PIPELINE, POOL, Documents, make_access, make_order, make_pool, make_shard

#: as Anthropic has it: a write is a quarter dearer, or twice as dear for an hour
PRICE = WrittenPrice.model_validate(
    {
        "input_usd_per_million": 1,
        "cached_usd_per_million": 0.1,
        "cache_write_usd_per_million": 1.25,
        "cache_write_1h_usd_per_million": 2,
        "output_usd_per_million": 2,
        "batch_discount": 0.5,
    }
)
HEAD, REST = "Look at this ticket.", "\n\nLost card"
SYSTEM = ChatMessage(role="system", content="Classify.", shared=9)
QUESTION = ChatMessage(role="user", content=HEAD + REST, shared=len(HEAD))
PLAIN = ChatMessage(role="user", content="Lost card")
EXAMPLE = (ChatMessage(role="user", content="red", shared=3), ChatMessage(role="assistant", content="a", shared=1))
SHORT, HOUR = Lifetime.SHORT, Lifetime.HOUR
CONTROL = {"cache_control": {"type": "ephemeral"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
LUNA: dict[str, Any] = {"provider": "openai", "model": "gpt-6-luna"}
RULE = "A ticket about money is of kind a, any other is of kind b. " * 120


def body(
    messages: tuple[ChatMessage, ...], mark: Lifetime | None, pipeline: Pipeline = PIPELINE, **pool: Any
) -> dict[str, Any]:
    made = make_pool(**pool)
    form = adapter_of(POOL, made.provider).form(base_url="https://host/v1", pool=made, pipeline=pipeline)
    found: dict[str, Any] = json.loads(form.request(messages, 64, mark).body)
    return found


def text(value: str, **mark: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **mark}


@pytest.mark.parametrize(
    ("messages", "system", "contents"),
    [
        ((SYSTEM, PLAIN), [text("Classify.", **CONTROL)], ["Lost card"]),
        ((SYSTEM, QUESTION), "Classify.", [[text(HEAD, **CONTROL), text(REST)]]),
        ((QUESTION,), None, [[text(HEAD, **CONTROL), text(REST)]]),
        ((SYSTEM, *EXAMPLE, PLAIN), "Classify.", ["red", [text("a", **CONTROL)], "Lost card"]),
        ((PLAIN,), None, ["Lost card"]),
        # a repair has the same beginning, and so finds it
        (repair_messages((SYSTEM, PLAIN), "x", "no"), [text("Classify.", **CONTROL)], ["Lost card", "x", ...]),
        # only what all that stands before is shared with, too
        ((ChatMessage(role="system", content="Of Ann.", shared=3), QUESTION), "Of Ann.", [HEAD + REST]),
    ],
)
def test_anthropic_is_told_after_which_block(
    messages: tuple[ChatMessage, ...], system: Any, contents: list[Any]
) -> None:
    """E12: at the end of the last block that is shared; the text is the same as without it."""
    sent = body(messages, SHORT, provider="anthropic")
    assert sent.get("system") == system
    found = [message["content"] for message in sent["messages"]]
    assert len(found) == len(contents)
    assert all(wanted in (each, ...) for each, wanted in zip(found, contents, strict=True))


def test_anthropic_is_told_how_long() -> None:
    system = body((SYSTEM, PLAIN), HOUR, provider="anthropic")["system"]
    assert system == [text("Classify.", cache_control={"type": "ephemeral", "ttl": "1h"})]


@pytest.mark.parametrize("api", [None, "responses"])
@pytest.mark.parametrize(
    ("messages", "contents"),
    [
        ((SYSTEM, PLAIN), [[("Classify.", True)], "Lost card"]),
        ((SYSTEM, QUESTION), ["Classify.", [(HEAD, True), (REST, False)]]),
        # an assistant's text can not be marked, so the mark is before it
        ((SYSTEM, *EXAMPLE, PLAIN), ["Classify.", [("red", True)], "a", "Lost card"]),
    ],
)
def test_openai_is_told_after_which_part(
    api: str | None, messages: tuple[ChatMessage, ...], contents: list[Any]
) -> None:
    """E12: in the types of parts that the API takes."""
    kind = "text" if api is None else "input_text"
    sent = body(messages, SHORT, **LUNA, api=api)
    wanted = [
        each if isinstance(each, str) else [{"type": kind, "text": t, **(BREAKPOINT if at else {})} for t, at in each]
        for each in contents
    ]
    assert [message["content"] for message in sent["messages" if api is None else "input"]] == wanted
    assert sent["prompt_cache_options"] == {"mode": "explicit"}


@pytest.mark.parametrize(
    "pool",
    [
        {"provider": "openai", "model": "gpt-5.4-mini"},
        {**LUNA, "prompt_cache": False},
        {"provider": "openai_compatible", "model": "gpt-6-luna"},
    ],
)
def test_nobody_else_hears_of_breakpoints(pool: dict[str, Any]) -> None:
    """E7: a server that does not know the word might refuse it."""
    sent = body((SYSTEM, QUESTION), None, **pool)
    assert [message["content"] for message in sent["messages"]] == ["Classify.", HEAD + REST]
    assert "prompt_cache_options" not in sent


def test_openai_writes_nothing_where_nothing_is_marked() -> None:
    """P4: or else each call would write its whole prompt, for a quarter more."""
    sent = body((SYSTEM, QUESTION), None, **LUNA)
    assert sent["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_breakpoint" not in json.dumps(sent)


def test_the_key_of_a_cache_is_the_templates_digest() -> None:
    """P6: no document is in it. A template that is too short for a cache has none."""
    long = PIPELINE.model_copy(update={"prompt": f"system:\n{RULE}\nuser:\n{{{{ text }}}}"})
    for model in ("gpt-6-luna", "gpt-5.4-mini"):
        key = body((SYSTEM, PLAIN), None, long, provider="openai", model=model)["prompt_cache_key"]
        assert key == long.prompt_version[:32]
        assert "prompt_cache_key" not in body((SYSTEM, PLAIN), None, provider="openai", model=model)
    assert "prompt_cache_key" not in body((SYSTEM, PLAIN), None, long, **LUNA, prompt_cache=False)
    assert "prompt_cache_key" not in body((SYSTEM, PLAIN), None, long, model="small")


SHARED = f"system:\n{RULE}\nuser:\n{{{{ text }}}}"
VARIED = f"system:\n{RULE} {{{{ text }}}}\nuser:\n{{{{ text }}}}"


@pytest.mark.parametrize(
    ("prompt", "planned", "rows", "lane", "slots", "marked"),
    [
        (SHARED, 60, 1, Lane.REALTIME, 4, True),
        (SHARED, 4, 1, Lane.REALTIME, 4, False),  # they all run at once
        (SHARED, 0, 10, Lane.REALTIME, 4, True),  # not told: the shard's own calls count
        (SHARED, 0, 2, Lane.REALTIME, 4, False),
        (SHARED, 60, 1, Lane.BULK, 4, True),
        (SHARED, 2, 2, Lane.BULK, 4, False),
        # a row has a say in it: only the calls of a shard have it in common
        (VARIED, 60, 1, Lane.REALTIME, 4, False),
        (VARIED, 60, 10, Lane.REALTIME, 4, True),
        ("system:\nShort.\nuser:\n{{ text }}", 60, 10, Lane.REALTIME, 1, False),
        (f"user:\n{{{{ text }}}} {RULE}", 60, 10, Lane.REALTIME, 1, False),
    ],
)
def test_a_call_is_marked_where_it_pays(
    tmp_path: Path, prompt: str, planned: int, rows: int, lane: Lane, slots: int, marked: bool
) -> None:
    """E12: enough calls share enough tokens."""
    blobs = BlobStore(str(tmp_path))
    pipeline = PIPELINE.model_copy(update={"prompt": prompt})
    block = write_block(blobs, [{"id": str(i), "text": "one"} for i in range(rows)]).digest
    documents = Documents(blobs, blobs.put(pipeline.canonical()), block)
    access = make_access(provider="anthropic", model="claude-sonnet-5-5", limits={"slots": slots})
    shard = make_shard(documents, range(rows), lane=lane)
    call = Renderer(blobs).call(make_order(shard, price=PRICE, planned=planned), access, "lane")
    assert isinstance(call, Call)
    assert (b"cache_control" in call.request.body) is marked
    unpriced = Renderer(blobs).call(make_order(shard, price=None, planned=planned), access, "lane")
    assert isinstance(unpriced, Call)
    assert b"cache_control" not in unpriced.request.body
