"""What a user of the laptop can get wrong, said in three parts: what, where, and what to do about it."""

from __future__ import annotations


class LaptopError(Exception):
    """The laptop cannot start or go on for a reason that its user can remove.

    `message` names the place and the value; `remedy` is the next thing to type or change.
    """

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(f"{message} ({remedy})")
        self.message = message
        self.remedy = remedy
