"""Who must know a word by now: views show late, so a process is given some looks at them before it has to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.world import World

_UNTIL_SEEN = 25


def looks_of_all(world: "World") -> dict[str, int]:
    """How often each process has looked so far."""
    return {process.name: process.looks for process in world.processes}


def has_seen(world: "World", name: str, since: Mapping[str, int]) -> bool:
    """Whether a process has looked so often since then that it must know."""
    return world.looks_of(name) - since.get(name, 0) > _UNTIL_SEEN
