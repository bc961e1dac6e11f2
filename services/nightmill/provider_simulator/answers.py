"""What the model says: a function of seed and body, bent by the content rule that selects the call."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator.chat import ChatRequest, estimate_tokens
from nightmill.provider_simulator.draw import Draw
from nightmill.provider_simulator.instances import instance, quote
from nightmill.provider_simulator.scenario import AnswerForm, AnswerRule

REFUSAL = "I'm sorry, but I can't help with that request."


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One choice of a completion."""

    content: str | None
    completion_tokens: int
    refusal: str | None = None
    finish_reason: str = "stop"


def compose(request: ChatRequest, rule: AnswerRule | None, *, seed: int, digest: bytes) -> Answer:
    """The answer to `request`. Longer than the request's token limit, it is cut there and says `length`."""
    content = _content(request, rule, Draw(seed, digest))
    answer = _formed(content, AnswerForm.PLAIN if rule is None else rule.form)
    limit = request.max_tokens
    if limit is None or answer.completion_tokens <= limit or answer.content is None:
        return answer
    cut = answer.content.encode("utf-8", "surrogatepass")[: limit * 4].decode("utf-8", "ignore")
    return replace(answer, content=cut, completion_tokens=limit, finish_reason="length")


def _content(request: ChatRequest, rule: AnswerRule | None, draw: Draw) -> str:
    if rule is not None and rule.content is not None:
        return _ruled(rule, request.prompt)
    if request.schema is not None:
        return _json(instance(request.schema, draw=draw, source=request.last_text))
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


def _formed(content: str, form: AnswerForm) -> Answer:
    match form:
        case AnswerForm.PLAIN:
            return _said(content)
        case AnswerForm.FENCED:
            return _said(f"```json\n{content}\n```")
        case AnswerForm.PROSE:
            return _said(f"Here is the answer you asked for:\n\n{content}\n\nLet me know if you need anything else.")
        case AnswerForm.CUT:
            return _said(content[: len(content) // 2])
        case AnswerForm.LENGTH:
            return _said(content[: len(content) // 2], finish_reason="length")
        case AnswerForm.REFUSED:
            return Answer(content=None, refusal=REFUSAL, completion_tokens=estimate_tokens(REFUSAL))
        case AnswerForm.CONTENT_FILTER:
            return _said("", finish_reason="content_filter")
        case AnswerForm.WRONG_SCHEMA:
            return _said(_wrong(content))
        case AnswerForm.EMPTY:
            return _said("")


def _said(content: str, *, finish_reason: str = "stop") -> Answer:
    return Answer(content=content, completion_tokens=estimate_tokens(content), finish_reason=finish_reason)


def _wrong(content: str) -> str:
    """The same JSON with its first field of another type."""
    try:
        value: JsonValue = json.loads(content)
    except ValueError:
        value = content
    if isinstance(value, dict) and value:
        first = next(iter(value))
        return _json({**value, first: _other_type(value[first])})
    return _json(_other_type(value))


def _other_type(value: JsonValue) -> JsonValue:
    return "unexpected" if isinstance(value, dict) else {"unexpected": value}


def _json(value: JsonValue) -> str:
    return to_json(value).decode()
