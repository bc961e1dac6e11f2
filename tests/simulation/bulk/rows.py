"""Rows of result files, in either provider's form."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from simulation.provider import Performed, completion_of

Row = dict[str, Any]
_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {"server_error": "api_error", "rate_limit": "rate_limit_error", "timed_out": "timeout_error"}


def jsonl(rows: Sequence[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def answered(custom_id: str, done: Performed, *, inline: bool) -> Row:
    """A line with a response, good or bad."""
    if inline:
        message = {
            "type": "message",
            "model": "simulated",
            "content": [{"type": "text", "text": done.text}],
            "stop_reason": _STOPS[done.finish],
            "usage": {"input_tokens": done.usage[0], "output_tokens": done.usage[1]},
        }
        return {"custom_id": custom_id, "result": {"type": "succeeded", "message": message}}
    body: Row = completion_of(done, "simulated")
    if done.status != 200:
        body = {"error": {"message": "no", "type": "", "code": "rate_limit_exceeded" if done.status == 429 else ""}}
    return _row(custom_id, {"status_code": done.status, "request_id": "r", "body": body}, None)


def doubled(custom_id: str, done: Performed, random: Random, *, inline: bool) -> list[Row]:
    """Two lines for one request that ran once: another answer after the first, or nothing good before it."""
    row = answered(custom_id, done, inline=inline)
    if random.random() < 0.5:
        other = Performed(
            text='{"label": "a"}', finish="stop", status=200, headers={}, usage=(done.usage[0] + 1, done.usage[1] + 1)
        )
        return [row, answered(custom_id, other, inline=inline)]
    return [errored(custom_id, "server_error") if inline else failed(custom_id, "failed", random), row]


def errored(custom_id: str, kind: str) -> Row:
    """The inline style: it came to nothing."""
    error = {"type": "error", "error": {"type": _ERRORS.get(kind, "api_error"), "message": "no"}}
    return {"custom_id": custom_id, "result": {"type": "errored", "error": error}}


def failed(custom_id: str, kind: str, random: Random) -> Row:
    """The files style: no response, or one without a status."""
    if kind == "failed" and random.random() < 0.5:
        return _row(custom_id, {"status_code": 0, "request_id": "", "body": {}}, None)
    code = "request_timeout" if kind == "timed_out" else "server_error"
    return _row(custom_id, None, {"code": code, "message": "no"})


def not_run(custom_id: str, status: str, *, inline: bool) -> Row:
    """It never ran, and the results say so."""
    kind = "canceled" if inline and status == "cancelled" else status
    if inline:
        return {"custom_id": custom_id, "result": {"type": kind}}
    return _row(custom_id, None, {"code": f"batch_{kind}", "message": "no"})


def _row(custom_id: str, response: Row | None, error: Row | None) -> Row:
    return {"id": "b", "custom_id": custom_id, "response": response, "error": error}
