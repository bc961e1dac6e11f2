"""What becomes of an answer that a rule refuses."""

from typing import Literal

from nightmill.kernel.domain.lifecycle import VerdictKind

Consequence = Literal["repair", "review", "reject"]

_KINDS: dict[Consequence, VerdictKind] = {
    "repair": VerdictKind.REPAIRABLE,
    "review": VerdictKind.REVIEW,
    "reject": VerdictKind.REJECTED,
}


def kind_of(consequence: Consequence) -> VerdictKind:
    return _KINDS[consequence]
