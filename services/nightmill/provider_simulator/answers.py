"""What the model says: a function of seed and body, bent by the content rule that selects the call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator.asks import Ask, estimate_tokens
from nightmill.provider_simulator.draw import Draw
from nightmill.provider_simulator.instances import quote
from nightmill.provider_simulator.plans import plan_of
from nightmill.provider_simulator.rules import AnswerForm, AnswerRule

REFUSAL = "I'm sorry, but I can't help with that request."


class Answer(NamedTuple):
    """One choice of a completion."""

    content: str | None
    completion_tokens: int
    refusal: str | None = None
    finish_reason: str = "stop"
    tool_call: bool = False  # a call of a tool that nobody offered
    odd_ids: bool = False  # ids with letters beyond ASCII


def compose(request: Ask, rule: AnswerRule | None, *, seed: int, digest: bytes) -> Answer:
    """The answer to `request`. Longer than the request's token limit, it is cut there and says `length`."""
    content = _content(request, rule, Draw(seed, digest))
    answer = _said(content) if rule is None else _FORMS[rule.form](content)
    limit = request.max_tokens
    if limit is None or answer.completion_tokens <= limit or answer.content is None:
        return answer
    cut = answer.content.encode("utf-8", "surrogatepass")[: limit * 4].decode("utf-8", "ignore")
    return answer._replace(content=cut, completion_tokens=limit, finish_reason="length")


def _content(request: Ask, rule: AnswerRule | None, draw: Draw) -> str:
    if rule is not None and rule.content is not None:
        return _ruled(rule, request.prompt)
    if request.schema is not None:
        plan = request.plan or plan_of(request.schema)
        return _json(plan(draw, request.last_text))
    text = quote(request.last_text, draw)
    return _json({"answer": text}) if request.json_answer else text


def _ruled(rule: AnswerRule, prompt: str) -> str:
    if not isinstance(rule.content, str):
        return _json(rule.content)
    found = rule.regex.search(prompt) if rule.expand and rule.regex is not None else None
    return rule.content if found is None else _expanded(rule.content, found)


def _expanded(template: str, found: re.Match[str]) -> str:
    """The template with each group's text put in, escaped so that it may stand inside a JSON string."""

    def group(reference: re.Match[str]) -> str:
        name = reference[1] or reference[2]
        try:
            text = found[int(name)] if name.isdigit() else found[name]
        except IndexError:  # no such group: the reference stays as it is
            return reference[0]
        return _json(text or "")[1:-1]

    return re.sub(r"\\(?:(\d)|g<(\w+)>)", group, template)


def _half(finish_reason: str) -> Callable[[str], Answer]:
    return lambda content: _said(content[: len(content) // 2], finish_reason=finish_reason)


def _refused(content: str) -> Answer:
    return Answer(content=None, refusal=REFUSAL, completion_tokens=estimate_tokens(REFUSAL))


def _tool_called(content: str) -> Answer:
    return Answer(content=None, completion_tokens=12, finish_reason="tool_calls", tool_call=True)


def _separated(content: str) -> str:
    """Separators that only some readers take for the end of a line, inside the first text of a JSON value or at the
    end of a plain one."""
    odd = "one\u2028two\u2029three\u0085four\r\nfive"
    value = _parsed(content)
    if isinstance(value, dict):
        first = next((name for name, inner in value.items() if isinstance(inner, str)), None)
        return _json({**value, first: f"{value[first]} {odd}"} if first is not None else {**value, "note": odd})
    return f"{content} {odd}"


def _with_nan(content: str) -> str:
    value = _parsed(content)
    if isinstance(value, dict) and value:
        first = next(iter(value))
        return json.dumps({**value, first: float("nan")})
    return "NaN"


def _parsed(content: str, otherwise: JsonValue = None) -> JsonValue:
    try:
        value: JsonValue = json.loads(content)
    except ValueError:
        return otherwise
    return value


def _said(content: str, *, finish_reason: str = "stop") -> Answer:
    return Answer(content, estimate_tokens(content), None, finish_reason)


def _wrong(content: str) -> str:
    """The same JSON with its first field of another type."""
    value = _parsed(content, content)
    if isinstance(value, dict) and value:
        first = next(iter(value))
        return _json({**value, first: _other_type(value[first])})
    return _json(_other_type(value))


def _other_type(value: JsonValue) -> JsonValue:
    return "unexpected" if isinstance(value, dict) else {"unexpected": value}


def _json(value: JsonValue) -> str:
    return to_json(value).decode()


_FORMS: dict[AnswerForm, Callable[[str], Answer]] = {
    AnswerForm.PLAIN: _said,
    AnswerForm.FENCED: lambda content: _said(f"```json\n{content}\n```"),
    AnswerForm.PROSE: lambda content: _said(
        f"Here is the answer you asked for:\n\n{content}\n\nLet me know if you need anything else."
    ),
    AnswerForm.CUT: _half("stop"),
    AnswerForm.LENGTH: _half("length"),
    AnswerForm.REFUSED: _refused,
    AnswerForm.CONTENT_FILTER: lambda content: _said("", finish_reason="content_filter"),
    AnswerForm.WRONG_SCHEMA: lambda content: _said(_wrong(content)),
    AnswerForm.EMPTY: lambda content: _said(""),
    AnswerForm.NULL: lambda content: Answer(content=None, completion_tokens=1),
    AnswerForm.NAN: lambda content: _said(_with_nan(content)),
    AnswerForm.ABORTED: _half("abort"),
    AnswerForm.REPETITION: lambda content: _said(content + " and so on" * 20, finish_reason="repetition"),
    AnswerForm.PAUSED: _half("pause_turn"),
    AnswerForm.TOOL_CALL: _tool_called,
    AnswerForm.CONTEXT_FULL: _half("model_context_window_exceeded"),
    AnswerForm.LINE_SEPARATORS: lambda content: _said(_separated(content)),
    AnswerForm.NON_ASCII: lambda content: _said(content)._replace(odd_ids=True),
}
