"""Running seeds: one in a folder of its own, and what is printed of one that fails."""

import shutil
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from simulation.mix import Focus
from simulation.story import story
from simulation.violation import Violation
from simulation.world import START_MS, Run, World

_SHM = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A seed that showed something."""

    seed: int
    invariant: str  #: or the exception that a service raised
    report: str


def run_seed(seed: int, focus: Focus | None = None) -> Run | Failure:
    """The whole of one seed, with its own faults or with those of `focus`."""
    root = Path(tempfile.mkdtemp(prefix=f"seed-{seed}-", dir=_SHM if _SHM.is_dir() else None))
    world = World(seed, root, focus)
    replay = f"make simulate SEED={seed}" if focus is None else f"run_seed({seed}, {focus})"
    try:
        return world.run()
    except Violation as violation:
        return _failure(world, replay, violation.invariant, str(violation), violation.item)
    except Exception as error:
        return _failure(world, replay, type(error).__name__, traceback.format_exc(), None)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _failure(world: World, replay: str, invariant: str, text: str, item: str | None) -> Failure:
    lines = [
        f"seed {world.seed} fails; replay it with: {replay}",
        text,
        f"mix   {world.mix}",
        f"shape {world.shape}",
        story(world.trace, item, START_MS),
    ]
    return Failure(seed=world.seed, invariant=invariant, report="\n".join(lines))
