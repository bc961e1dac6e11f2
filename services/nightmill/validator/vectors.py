"""The gate of embeddings: a vector's text in, a verdict out (Q1, E7).

In order: it can be read, it has as many numbers as the pipeline declares, all of them are finite, and it has a
direction. What is refused is asked for again within the item's retry budget; no model or person can mend a vector.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.kernel.domain.vectors import NotAVector, decode_vector
from nightmill.kernel.wire.messages import Verdict

_ACCEPTED = Verdict(kind=VerdictKind.ACCEPTED)


@dataclass(frozen=True, slots=True)
class VectorGate:
    """The checks of one pipeline of embeddings."""

    dimensions: int

    def judge(
        self, text: str, finish_reason: str | None, row: Callable[[], Mapping[str, Any]]
    ) -> tuple[Verdict, str | None]:
        """The verdict, and the text when it is accepted. Neither finish reason nor source says anything of it."""
        try:
            numbers = decode_vector(text)
        except NotAVector as error:
            return _refused("vector_unreadable", str(error)), None
        if len(numbers) != self.dimensions:
            said = f"{len(numbers)} numbers instead of {self.dimensions}; see embedding.dimensions in pipeline.yaml"
            return _refused("vector_dimensions", said), None
        if not all(map(math.isfinite, numbers)):
            place = next(n for n, number in enumerate(numbers) if not math.isfinite(number))
            return _refused("vector_not_finite", f"number {place} is {numbers[place]}"), None
        if not any(numbers):
            return _refused("vector_zero", "all numbers are 0: it has no direction"), None
        return _ACCEPTED, text

    def stored(self, value: Any) -> bytes:
        """The accepted value as it is kept."""
        return str(value).encode()


def _refused(rule: str, value: str) -> Verdict:
    return Verdict(kind=VerdictKind.REPAIRABLE, rule=rule, value=value)
