"""`enum: {field: label, values: [a, b], else: repair}`: the field holds one of the values."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from nightmill.kernel.domain.pipeline import Frozen
from nightmill.validator.answer import Finding, lookup, shown
from nightmill.validator.rules.consequence import Consequence, kind_of


class Enum(Frozen):
    """Membership in a list of values."""

    needs_row: ClassVar[bool] = False

    field: str
    values: tuple[str | int | float | bool | None, ...] = Field(min_length=1)
    otherwise: Consequence = Field(default="repair", alias="else")

    @property
    def looks_at(self) -> str:
        return self.field

    def check(self, answer: Any, row: Mapping[str, Any] | None) -> Finding | None:
        value = lookup(answer, self.field)
        # as in JSON, 1 equals 1.0, but not true
        if any(value == allowed and isinstance(value, bool) == isinstance(allowed, bool) for allowed in self.values):
            return None
        return Finding(kind=kind_of(self.otherwise), rule="enum", field=self.field, value=shown(value))
