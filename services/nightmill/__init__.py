"""Nightmill: LLM work that nobody is waiting for, from documents to validated and costed results.

`from nightmill import Client` is the door for Python programs. The name is resolved when it is asked for: services and
the command import this package too, and must not load an HTTP client for that.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nightmill.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from nightmill.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
