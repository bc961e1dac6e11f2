"""A call, input lines of batches, what shall befall them, and what comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import anthropic
import openai

from conformance.sdk.conftest import STRICT
from kit.patience import PATIENCE_S

ENDED = ("completed", "failed", "expired", "cancelled")


def scenario(*faults: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The strict provider with these faults."""
    return {**STRICT, "faults": list(faults), **more}


def ask(client: openai.OpenAI, text: str = "Which licence?", **more: Any) -> Any:
    """One chat call."""
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(**{"model": "gpt-6-luna", "messages": messages, **more})


def line(custom_id: str, text: str = "Which licence?", **changes: Any) -> dict[str, Any]:
    """One chat line."""
    body = {"model": "gpt-6-luna", "messages": [{"role": "user", "content": f"{text} {custom_id}"}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body, **changes}


def jsonl(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


DATA = jsonl(line(f"i-{n}") for n in range(500))


def upload(client: openai.OpenAI, data: bytes, name: str = "in.jsonl") -> str:
    return client.files.create(file=(name, data), purpose="batch").id


def start(client: openai.OpenAI, data: bytes, **more: Any) -> openai.types.Batch:
    """Upload and create."""
    wanted: Any = {"endpoint": "/v1/chat/completions", "completion_window": "24h", **more}
    return client.batches.create(input_file_id=upload(client, data), **wanted)


def end_of(client: openai.OpenAI, batch: openai.types.Batch) -> openai.types.Batch:
    """The batch once it has ended."""
    return until(client, batch, *ENDED)


def until(client: openai.OpenAI, batch: openai.types.Batch, *states: str) -> openai.types.Batch:
    """The batch once it is in one of these states."""
    deadline = time.monotonic() + PATIENCE_S
    while batch.status not in states:
        assert time.monotonic() < deadline, batch
        time.sleep(0.01)
        batch = client.batches.retrieve(batch.id)
    return batch


def rows(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """The rows of a result file, split on line feeds alone."""
    if not file_id:
        return []
    return [json.loads(row) for row in client.files.content(file_id).read().split(b"\n") if row]


def request(custom_id: str, text: str = "Which licence?", **changes: Any) -> Any:
    """One request of an Anthropic batch."""
    params = {"model": "claude-haiku-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    return {"custom_id": custom_id, "params": {**params, **changes}}


def ended(client: anthropic.Anthropic, ident: str) -> anthropic.types.messages.MessageBatch:
    """The message batch once it has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while (batch := client.messages.batches.retrieve(ident)).processing_status != "ended":
        assert time.monotonic() < deadline, batch
        time.sleep(0.01)
    return batch
