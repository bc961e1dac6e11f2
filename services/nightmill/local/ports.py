"""The loopback ports of one home: asked for, else those of last time, else free ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, replace_text
from nightmill.local.processes import free_port, port_is_free

BROKER_PORT = "broker"
CONTROLLER_PORT = "controller"
MODEL_PORT = "model_server"
EMBEDDINGS_PORT = "embeddings_server"
API_PORT = "api"
_FILE = "ports.json"


def read_ports(home: Home) -> dict[str, int]:
    """Return the ports of the last start by name; empty when there was none."""
    try:
        content = json.loads((home.run / _FILE).read_text(encoding="utf-8"))
        return {str(name): int(port) for name, port in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def choose_ports(home: Home, names: Iterable[str], *, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for each name and remember them all.

    A wanted port (not 0) is used or refused with `LaptopError`; a remembered one is kept while it is free, so that
    addresses stay the same from one start to the next.
    """
    before = read_ports(home)
    chosen: dict[str, int] = {}
    for name in names:
        asked = wanted.get(name, 0)
        if asked and (not port_is_free(asked) or asked in chosen.values()):
            raise LaptopError(
                f"port {asked} of {name} is taken", remedy="stop what listens there, or name another port"
            )
        chosen[name] = asked or _kept_or_free(before.get(name), taken=chosen.values())
    replace_text(home.run / _FILE, json.dumps(before | chosen))
    return chosen


def _kept_or_free(before: int | None, *, taken: Iterable[int]) -> int:
    if before is not None and before not in taken and port_is_free(before):
        return before
    return free_port()
