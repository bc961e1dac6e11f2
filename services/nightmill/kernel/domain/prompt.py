"""Prompts: a template's two parts, what it may use, and the messages it renders to.

A prompt file has a `system:` line and a `user:` line, each followed by its text; without them all of it is the user's
part. Jinja2 in its sandbox; an unknown variable is an error, never an empty string. The rendered system part comes
first and is the prefix that items share (E12).
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nightmill.kernel.domain.ids import digest

_PART = re.compile(r"^(system|user):[ \t]*\n?", re.MULTILINE)
_ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)

_REPAIR = (
    "Your answer was not accepted: {problem}. "
    "Answer again: only the JSON object that the instructions ask for, nothing around it."
)


class PromptError(ValueError):
    """A template that can not be parsed or rendered; the text says where and why, and holds no document text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a chat request."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A parsed prompt template. Build it with `parse_prompt`."""

    system: Template
    user: Template
    variables: frozenset[str]

    def render(self, fields: dict[str, Any]) -> tuple[ChatMessage, ...]:
        """Messages for one row. Raises `PromptError`."""
        try:
            system = self.system.render(fields).strip()
            user = self.user.render(fields).strip()
        except TemplateError as error:
            raise PromptError(f"prompt: {error}") from error
        head = (ChatMessage(role="system", content=system),) if system else ()
        return (*head, ChatMessage(role="user", content=user))

    def prefix(self, fields: dict[str, Any]) -> str:
        """Digest of the part of the prompt that comes first, 16 hex: equal prefixes go together."""
        try:
            return digest(self.system.render(fields).encode())[:16]
        except TemplateError as error:
            raise PromptError(f"prompt: {error}") from error


@lru_cache(maxsize=256)
def parse_prompt(text: str) -> Prompt:
    """Parse a prompt template. Raises `PromptError` with the line of a syntax error."""
    parts = {"system": "", "user": ""}
    pieces = _PART.split(text)
    if len(pieces) == 1:
        parts["user"] = text
    elif pieces[0].strip():
        raise PromptError("prompt, line 1: text before the first 'system:' or 'user:' line")
    else:
        for role, body in zip(pieces[1::2], pieces[2::2], strict=True):
            parts[role] += body
    try:
        names: set[str] = set()
        for body in parts.values():
            names |= meta.find_undeclared_variables(_ENVIRONMENT.parse(body))
        return Prompt(_template(parts["system"]), _template(parts["user"]), frozenset(names))
    except TemplateSyntaxError as error:
        raise PromptError(f"prompt, line {error.lineno}: {error.message}") from error


def _template(body: str) -> Template:
    template = _ENVIRONMENT.from_string(body)
    # a plain dictionary: Jinja copies this map at each render, and a chain of maps takes three times as long
    template.globals = dict(template.globals)
    return template


def repair_messages(messages: tuple[ChatMessage, ...], output: str, problem: str) -> tuple[ChatMessage, ...]:
    """The first call's messages, the answer that failed, and what was wrong with it."""
    return (
        *messages,
        ChatMessage(role="assistant", content=output),
        ChatMessage(role="user", content=_REPAIR.format(problem=problem)),
    )
