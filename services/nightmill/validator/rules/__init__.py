"""The rules a pipeline may ask for by name under `checks`.

A new rule is a module here with a pydantic model that has `check`, and a line in `RULES`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from nightmill.validator.answer import Finding
from nightmill.validator.rules.enum import Enum
from nightmill.validator.rules.evidence import Evidence
from nightmill.validator.rules.range import Range


class Rule(Protocol):
    """One check of an answer that already meets its schema."""

    @property
    def needs_row(self) -> bool:
        """Whether `check` wants the source row; reading it costs a block."""

    @property
    def looks_at(self) -> str:
        """The field of the answer that it checks."""

    def check(self, answer: Any, row: Mapping[str, Any] | None) -> Finding | None:
        """What is wrong, or None."""


RULES: Mapping[str, type[Enum] | type[Evidence] | type[Range]] = {"enum": Enum, "evidence": Evidence, "range": Range}


def read_checks(checks: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rules of a pipeline's `checks`. Raises ValueError that names the entry, the value and the remedy."""
    rules: list[Rule] = []
    for position, check in enumerate(checks):
        ((name, parameters),) = check.items()
        model = RULES.get(name)
        if model is None:
            raise ValueError(f"checks.{position}: no rule {name!r}; there are {', '.join(sorted(RULES))}")
        try:
            rules.append(model.model_validate(parameters))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in (position, name, *first["loc"]))
            raise ValueError(f"checks.{where} = {first.get('input')!r}: {first['msg']}") from error
    return tuple(rules)
