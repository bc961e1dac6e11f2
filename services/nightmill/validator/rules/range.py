"""`range: {field: confidence, min: 0.6, max: 1, else: review}`: the field is a number within bounds."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, FiniteFloat, model_validator

from nightmill.kernel.domain.pipeline import Frozen
from nightmill.validator.answer import Finding, lookup, shown
from nightmill.validator.rules.consequence import Consequence, kind_of


class Range(Frozen):
    """Bounds of a number, both included."""

    needs_row: ClassVar[bool] = False

    field: str
    min: FiniteFloat | None = None
    max: FiniteFloat | None = None
    otherwise: Consequence = Field(default="repair", alias="else")

    @model_validator(mode="after")
    def _has_a_bound(self) -> "Range":
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    @property
    def looks_at(self) -> str:
        return self.field

    def check(self, answer: Any, row: Mapping[str, Any] | None) -> Finding | None:
        value = lookup(answer, self.field)
        if self._holds(value):
            return None
        return Finding(kind=kind_of(self.otherwise), rule="range", field=self.field, value=shown(value))

    def _holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)
