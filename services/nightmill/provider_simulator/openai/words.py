"""A problem in OpenAI's words: message, `param` and `code` as the public API gives them (read 2026-11-29)."""

from __future__ import annotations

from nightmill.provider_simulator.checks import Problem, Trouble, type_name
from nightmill.provider_simulator.errors import ApiError, invalid


def worded(problem: Problem) -> ApiError:
    """The 400 that this problem earns."""
    param = path(problem.at)
    message, code = _said(problem, param)
    return invalid(message, param=param or None, code=code)


def path(at: tuple[str | int, ...]) -> str:
    """`messages[0].role`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).lstrip(".")


def _said(problem: Problem, param: str) -> tuple[str, str]:
    match problem.trouble:
        case Trouble.UNKNOWN:
            return f"Unknown parameter: '{param}'.", "unknown_parameter"
        case Trouble.MISSING:
            return f"Missing required parameter: '{param}'.", "missing_required_parameter"
        case Trouble.TYPE:
            got = type_name(problem.got)
            return f"Invalid type for '{param}': expected {problem.expected}, but got {got} instead.", "invalid_type"
        case Trouble.CHOICE:
            return f"Invalid value: {_quoted(problem.got)}. {_supported(problem.expected)}", "invalid_value"
        case Trouble.PATTERN:
            return (
                f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern "
                f"'{problem.expected}'.",
                "invalid_value",
            )
        case Trouble.BELOW | Trouble.ABOVE:
            return _range(problem, param)
        case Trouble.EMPTY | Trouble.SHORT | Trouble.LONG:
            return _length(problem, param)


def _range(problem: Problem, param: str) -> tuple[str, str]:
    kind = problem.expected.split(" ")[-1]  # integer or decimal
    below = problem.trouble is Trouble.BELOW
    side, sign = ("below minimum", ">=") if below else ("above maximum", "<=")
    message = (
        f"Invalid '{param}': {kind} {side} value. Expected a value {sign} {problem.limit}, "
        f"but got {problem.got} instead."
    )
    return message, f"{kind}_{'below_min' if below else 'above_max'}_value"


def _length(problem: Problem, param: str) -> tuple[str, str]:
    limit = int(problem.limit)
    if isinstance(problem.got, str):
        if problem.trouble is Trouble.LONG:
            size = len(problem.got)
            said = f"string too long. Expected a string with maximum length {limit}, but got a string with length"
            return f"Invalid '{param}': {said} {size} instead.", "string_above_max_length"
        said = f"empty string. Expected a string with minimum length {limit}, but got an empty string instead."
        return f"Invalid '{param}': {said}", "empty_string"
    if problem.trouble is Trouble.EMPTY:
        said = f"empty array. Expected an array with minimum length {limit}, but got an empty array instead."
        return f"Invalid '{param}': {said}", "empty_array"
    if problem.trouble is Trouble.SHORT:
        said = f"array too short. Expected an array with minimum length {limit}, but got an array with length"
        return f"Invalid '{param}': {said} {problem.got} instead.", "array_below_min_length"
    said = f"array too long. Expected an array with maximum length {limit}, but got an array with length"
    return f"Invalid '{param}': {said} {problem.got} instead.", "array_above_max_length"


def _supported(expected: str) -> str:
    names = [f"'{name}'" for name in expected.split("\n")]
    if len(names) == 1:
        return f"Value must be {names[0]}."
    listed = f"{', '.join(names[:-1])}{',' if len(names) > 2 else ''} and {names[-1]}"
    return f"Supported values are: {listed}."


def _quoted(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()
