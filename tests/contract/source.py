"""What the services' source says of topics, read from its syntax tree: nothing is imported or run."""

import ast
from collections.abc import Iterator
from pathlib import Path

from contract.schema_files import ROOT, channels

PACKAGE = ROOT / "services" / "nightmill"
#: handlers of the runtime's own events
_RUNTIME = {"on_tick", "on_open", "on_close", "on_flush", "on_quarantined"}
_TYPE_TESTS = {"isinstance", "issubclass", "type"}


def rooms() -> list[str]:
    """Every service, by its package: those that the contract names anywhere."""
    named = {spec["owner"] for spec in channels().values() if "owner" in spec}
    for spec in channels().values():
        for role in ("producers", "consumers", "views"):
            named |= set(spec.get(role, ()))
    return sorted(named)


def trees(room: str) -> Iterator[tuple[Path, ast.Module]]:
    """Every module of a service's package."""
    for path in sorted((PACKAGE / room).rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def handled(room: str) -> set[str]:
    """Topics that the service has an `on_<event>` for."""
    path = PACKAGE / room / "service.py"
    if not path.exists():
        return set()
    classes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
    services = [node for node in classes if any(isinstance(b, ast.Name) and b.id == "Service" for b in node.bases)]
    names = {node.name for service in services for node in service.body if isinstance(node, ast.FunctionDef)}
    events = {name for name in names if name.startswith("on_")} - _RUNTIME
    return {name.removeprefix("on_").replace("_", "-") for name in events}


def constructed(room: str) -> set[str]:
    """Message and row classes of which the package makes instances."""
    messages = {spec["message"] for spec in channels().values()}
    calls = [node.func for _, tree in trees(room) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {f.id for f in calls if isinstance(f, ast.Name)} | {f.attr for f in calls if isinstance(f, ast.Attribute)}
    return names & messages


def viewed(room: str) -> set[str]:
    """Message and row classes that the package asks its views for: `views[Message]`, or handed to a function.

    The rows it owns are handed over in the same manner, as `part.table(Row)`, and are left out there.
    """
    messages = {spec["message"] for spec in channels().values()}
    own = {spec["message"] for spec in channels().values() if spec.get("owner") == room}
    nodes = [node for _, tree in trees(room) for node in ast.walk(tree)]
    indexed = [n.slice for n in nodes if isinstance(n, ast.Subscript) and "view" in ast.unparse(n.value).lower()]
    handed = [a for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) not in _TYPE_TESTS for a in n.args]
    asked, given = ({node.id for node in nodes if isinstance(node, ast.Name)} for nodes in (indexed, handed))
    return (asked | given - own) & messages
