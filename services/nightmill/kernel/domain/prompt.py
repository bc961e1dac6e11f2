"""Prompts: a template's parts, what they may use, and the messages they render to.

A prompt file has a `system:` line, then a `user:` line, each followed by its text; without them all of it is the
user's part. Examples are pairs of a `user:` and an `assistant:` part before the last `user:` part. Jinja2 in its
sandbox; an unknown variable is an error, never an empty string.

What comes before the last part is the prefix that items share: those of equal prefixes go together (E12). The text of
the last part up to its first expression is the same for all of them too. Each message says how much of it is shared, so
that a provider can be told where its prompt cache may end.
"""

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, meta, nodes

from nightmill.kernel.domain.ids import digest
from nightmill.kernel.domain.sandbox import Sandbox, TooMuch, render

_QUOTED = re.compile(r"""['"](.*?)['"]""", re.DOTALL)
_PART = re.compile(r"^(system|user|assistant):[ \t]*\n?", re.MULTILINE)
_ENVIRONMENT = Sandbox()

#: what an expression of a template may raise besides Jinja's own errors
_FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NameError, RecursionError),
    *(TypeError, ValueError),
)

#: a shorter beginning of the last part is not told apart from the rest of it
_LEAST_HEAD_CHARACTERS = 256

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
    #: leading characters that items of an equal prefix have in common
    shared: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A parsed prompt template. Build it with `parse_prompt`."""

    parts: tuple[tuple[str, Template], ...]  #: role and text, in order; the last is the user's
    variables: frozenset[str]
    text: str  #: as written
    head: str  #: what the last message of every item begins with
    constant: tuple[ChatMessage, ...] | None = None  #: the messages before the last, where no row changes them

    def render(self, fields: dict[str, Any]) -> tuple[ChatMessage, ...]:
        """Messages for one row. Raises `PromptError`."""
        role, template = self.parts[-1]
        shared = self._shared(fields) if self.constant is None else self.constant
        content = self._rendered(template, fields).strip()
        return (*shared, ChatMessage(role=role, content=content, shared=len(self.head)))

    def prefix(self, fields: dict[str, Any]) -> str:
        """Digest of what comes before the last part, 16 hex: equal prefixes go together."""
        shared = (f"{role}\0{self._rendered(part, fields)}" for role, part in self.parts[:-1])
        return digest("\0".join(shared).encode())[:16]

    def _shared(self, fields: dict[str, Any]) -> tuple[ChatMessage, ...]:
        rendered = [(role, self._rendered(part, fields).strip()) for role, part in self.parts[:-1]]
        return tuple(ChatMessage(role=role, content=text, shared=len(text)) for role, text in rendered if text)

    def with_constant(self) -> "Prompt":
        """The prompt with what comes before its last part rendered once. A fault in that is left to each row."""
        try:
            return replace(self, constant=self._shared({}))
        except PromptError:
            return self

    def _rendered(self, template: Template, fields: dict[str, Any]) -> str:
        try:
            return render(template, fields)
        except TooMuch as error:
            longest = max(fields, key=lambda name: len(str(fields[name])), default="")
            raise PromptError(f"prompt: {error}; the longest field is {longest!r}") from error
        except (TemplateError, *_FAULTS) as error:
            # only a name that the template itself writes may be told: any other could be the document's
            quoted = _QUOTED.findall(str(error)) if isinstance(error, TemplateError) else [None]
            told = all(name is not None and (name in self.text or name.endswith(" object")) for name in quoted)
            reason = str(error) if told else f"{type(error).__name__} in the template"
            raise PromptError(f"prompt: {reason}") from error


@lru_cache(maxsize=256)
def parse_prompt(text: str) -> Prompt:
    """Parse a prompt template. Raises `PromptError` with the line of a syntax error."""
    parts = _parts(text)
    try:
        trees = [_ENVIRONMENT.parse(body) for _, body in parts]
        names = [meta.find_undeclared_variables(tree) for tree in trees]
        templates = tuple((role, _template(body)) for role, body in parts)
        prompt = Prompt(templates, frozenset().union(*names), text, _head(trees[-1]))
        return prompt if any(names[:-1]) else prompt.with_constant()
    except TemplateSyntaxError as error:
        raise PromptError(f"prompt, line {error.lineno}: {error.message}") from error
    except (MemoryError, RecursionError, SyntaxError) as error:
        raise PromptError("prompt: nested too deeply; write it flatter") from error


def _parts(text: str) -> list[tuple[str, str]]:
    heads = list(_PART.finditer(text))
    if not heads:
        return [("user", text)]
    if text[: heads[0].start()].strip():
        raise PromptError("prompt, line 1: text before the first 'system:' or 'user:' line")
    parts: list[tuple[str, str]] = []
    for head, stop in zip(heads, [*(following.start() for following in heads[1:]), len(text)], strict=True):
        # empty lines in front, which a rendering drops, make a part's line numbers those of the file
        above = text.count("\n", 0, head.end())
        if head[1] == "system" and parts:
            raise PromptError(f"prompt, line {above}: 'system:' comes once, before the other parts")
        parts.append((head[1], "\n" * above + text[head.end() : stop]))
    if parts[-1][0] != "user":
        raise PromptError("prompt: the last part is the document's question, a 'user:' part")
    return parts


def _head(tree: nodes.Template) -> str:
    """The text before the first expression or statement, as every rendering begins with it; empty if it is short."""
    text = ""
    pieces = (piece for node in tree.body for piece in (node.nodes if isinstance(node, nodes.Output) else [node]))
    for piece in pieces:
        if not isinstance(piece, nodes.TemplateData):
            break
        text += piece.data
    head = text.strip()
    return head if len(head) >= _LEAST_HEAD_CHARACTERS else ""


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
