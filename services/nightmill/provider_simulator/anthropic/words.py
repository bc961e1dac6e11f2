"""A problem in Anthropic's words: one message with a dotted path, as its public API gives them (read 2026-11-29)."""

from __future__ import annotations

from nightmill.provider_simulator.checks import Problem, Trouble
from nightmill.provider_simulator.errors import ApiError

_TYPES = {
    "a string": "Input should be a valid string",
    "an integer": "Input should be a valid integer",
    "a decimal": "Input should be a valid number",
    "a boolean": "Input should be a valid boolean",
    "an array": "Input should be a valid list",
    "an object": "Input should be a valid dictionary",
}


def worded(problem: Problem) -> ApiError:
    """The 400 that this problem earns."""
    where = ".".join(str(step) for step in problem.at)
    said = _said(problem)
    return ApiError(status=400, message=f"{where}: {said}" if where else said, param=where or None)


def _said(problem: Problem) -> str:
    match problem.trouble:
        case Trouble.UNKNOWN:
            return "Extra inputs are not permitted"
        case Trouble.MISSING:
            return "Field required"
        case Trouble.TYPE:
            return _TYPES.get(problem.expected, f"Input should be {problem.expected}")
        case Trouble.CHOICE:
            names = [f"'{name}'" for name in problem.expected.split("\n")]
            listed = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
            return f"Input should be {listed}"
        case Trouble.BELOW:
            return f"Input should be greater than or equal to {problem.limit:g}"
        case Trouble.ABOVE:
            return f"Input should be less than or equal to {problem.limit:g}"
        case Trouble.PATTERN:
            return f"String should match pattern '{problem.expected}'"
        case Trouble.EMPTY | Trouble.SHORT | Trouble.LONG:
            return _length(problem)


def _length(problem: Problem) -> str:
    limit, side = int(problem.limit), "most" if problem.trouble is Trouble.LONG else "least"
    if isinstance(problem.got, str):
        return f"String should have at {side} {limit} character{'' if limit == 1 else 's'}"
    if problem.at and problem.at[-1] == "messages" and problem.trouble is Trouble.EMPTY:
        return "at least one message is required"
    return f"List should have at {side} {limit} item{'' if limit == 1 else 's'} after validation, not {problem.got}"
