"""What a checker raises."""


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str, item: str | None = None) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant, self.item = invariant, item
