"""The sandbox of templates: no attributes or modules from outside, and an end to every rendering.

A template comes with a job and is rendered in services that others use too, so it may neither run on nor grow without
bound: loops, calls and text are counted, sizes are looked at before a value is made, and what a template says of
objects it may not show (their addresses change from run to run, and equal rows must give equal prompts).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateRuntimeError, nodes
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

#: no model's context is longer; a row has at most as many bytes twice
MAX_PROMPT_CHARACTERS = 8 << 20
#: what one rendering may spend: a turn of a loop, a call or 256 characters cost one, a macro ten
_STEPS = 500_000
_MACRO = 10
_MAX_ARGUMENT = 1_000_000
_MAX_BITS = 10_000
_WIDE = re.compile(r"\{[^{}]*(?:\{|\d{5})|%[^a-zA-Z%]*(?:\*|\d{5})")

_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)


class TooMuch(TemplateRuntimeError):
    """A rendering without an end, or a text without bound."""


def render(template: Template, fields: Mapping[str, Any]) -> str:
    """The text of a rendering. Raises `TooMuch` as soon as it has spent all, or is longer than a prompt may be."""
    kept, size = [], 0
    token = _left.set([_STEPS])
    try:
        for piece in template.root_render_func(template.new_context(dict(fields))):
            kept.append(piece)
            size += len(piece)
            if size > MAX_PROMPT_CHARACTERS:
                raise TooMuch(f"the text grows beyond {MAX_PROMPT_CHARACTERS:,} characters")
    finally:
        _left.reset(token)
    return "".join(kept)


def _spend(steps: int) -> None:
    left = _left.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0:
            raise TooMuch("the template loops too often, or handles too much text")


def _counted(values: Iterable[Any]) -> Iterator[Any]:
    """What a loop goes through; every turn costs a step."""
    left = _left.get() or [_STEPS]
    for value in values:
        left[0] -= 1
        if left[0] < 0:
            _spend(1)
        yield value


def _grown(size: int) -> None:
    if size > MAX_PROMPT_CHARACTERS:
        raise TooMuch(f"a value grows beyond {MAX_PROMPT_CHARACTERS:,} characters")
    _spend(size >> 8)


def _small(arguments: Iterator[Any]) -> None:
    for argument in arguments:
        if isinstance(argument, int) and abs(argument) > _MAX_ARGUMENT:
            raise TooMuch(f"an argument is larger than {_MAX_ARGUMENT:,}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


def shown(value: Any) -> Any:
    """What an expression puts into the text."""
    if isinstance(value, str):
        _spend(len(value) >> 8)
    elif not isinstance(value, Undefined | int | float | list | dict | tuple | None):
        plain: Any = object.__repr__
        if callable(value) or hasattr(value, "__next__") or type(value).__repr__ is plain:
            raise TemplateRuntimeError(f"a {type(value).__name__} is no text")
    return value


def _multiplied(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _few_bits(left.bit_length() + right.bit_length())
    for value, times in ((left, right), (right, left)):
        if isinstance(times, int):
            _grown(_length(value) * times)


def _few_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise TooMuch("a number grows beyond any use")


def _formatted(form: Any) -> None:
    if isinstance(form, str) and _WIDE.search(form):
        raise TooMuch("a format is wider than 9,999 characters, or its width is an argument")


def _replaced(text: Any, old: Any, new: Any, *_: Any) -> None:
    _grown(_length(text) + (_length(text) // max(1, _length(old)) + 1) * _length(new))


def _checked_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose further arguments are of a sensible size."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        value, rest = args[first], args[first + 1 :]
        _spend(1 + (_length(value) >> 8))
        _small(iter((*rest, *kwargs.values())))
        match name:
            case "replace" if len(rest) > 1:
                _replaced(value, *rest)
            case "format":
                _formatted(value)
            case "string":
                shown(value)
            case "join" if isinstance(value, list | tuple):
                between = _length(rest[0]) if rest else 0
                _grown(sum(map(_length, value)) + between * len(value))
        return function(*args, **kwargs)

    return checked


class _Counted(NodeTransformer):
    """Loops count their turns, and `~` looks at sizes."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.EnvironmentAttribute("concatenated"), node.nodes, [], None, None)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with bounds; what goes beyond them raises `TooMuch`, which is a `TemplateError`."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False, finalize=shown)
        # equal rows must give equal prompts
        del self.globals["lipsum"], self.filters["random"]
        self.filters.update({name: _checked_filter(name, function) for name, function in self.filters.items()})

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        counted: nodes.Template = _Counted().visit(source)
        counted.set_environment(self)
        return super()._generate(counted, *args, **kwargs)

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        return _counted(values)

    def concatenated(self, *values: Any) -> str:
        """`a ~ b`."""
        texts = [str(value) for value in values]
        _grown(sum(map(len, texts)))
        return "".join(texts)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        _spend(_MACRO if isinstance(obj, Macro) else 1)
        if isinstance(obj, LoopContext):  # a recursive loop goes one level down
            args = tuple(map(_counted, args))
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str | bytes | int) and not isinstance(obj, type):
            _checked_method(owner, obj.__name__, args, kwargs)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped: Callable[..., str] | None = super().wrap_str_format(value)
        if wrapped is not None:
            _formatted(value.__self__)
        return wrapped

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "*":
                _multiplied(left, right)
            case "**" if isinstance(left, int) and isinstance(right, int):
                _few_bits(left.bit_length() * right)
            case "%":
                _formatted(left)
            case "+":
                _grown(_length(left) + _length(right))
        return super().call_binop(context, operator, left, right)


def _checked_method(owner: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    _spend(_length(owner) >> 8)
    match name:
        case "replace" if len(args) > 1:
            _replaced(owner, *args)
        case "join" if args and isinstance(args[0], list | tuple):
            _grown(sum(map(_length, args[0])) + _length(owner) * len(args[0]))
        case _:
            _small(iter((*args, *kwargs.values())))
