"""Requests as a client makes them, and the form in which each error is told."""

from typing import Any

import httpx

SCHEMA = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}
PIPELINE: dict[str, Any] = {
    "name": "label",
    "input": {"id": "id", "fields": ["text"]},
    "prompt": "system:\nLabel it.\nuser:\n{{ text }}",
    "output": SCHEMA,
    "model": {"pools": ["sim"], "max_output_tokens": 10},
}
ROWS = b'{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n'


def upload(http: httpx.Client, data: bytes = ROWS) -> dict[str, Any]:
    answer = http.post("/v1/inputs", params={"format": "jsonl", "name": "rows.jsonl"}, content=data)
    assert answer.status_code == 201, answer.text
    return {"format": "jsonl", "name": "rows.jsonl", **answer.json()}


def request(http: httpx.Client, **changes: Any) -> dict[str, Any]:
    pipeline = {**PIPELINE, **changes.pop("pipeline", {})}
    return {"pipeline": pipeline, "input": upload(http), **changes}


def error(answer: httpx.Response) -> dict[str, str]:
    problem: dict[str, str] = answer.json()["error"]
    assert problem.keys() == {"code", "message", "remedy"}
    return problem
