"""What a topic is: the shape behind each generated constant in `topics.py`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class Message(Protocol):
    """A generated message or row: a frozen struct that turns to and from Avro."""

    __struct_fields__: ClassVar[tuple[str, ...]]

    def to_avro(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A stream of messages; `partition_by` names a string field, or an integer field that is the partition itself."""

    name: str
    message: Any  #: the generated class
    key: str
    partition_by: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    cleanup: str
    max_bytes: int
    retention_h: int | None = None
    views: tuple[str, ...] = ()

    @property
    def handler(self) -> str:
        """Name of the method that handles a message of this topic."""
        return "on_" + self.name.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A compacted changelog that one service owns."""

    name: str
    message: Any  #: the generated row class
    key: str
    partition_by: str
    owner: str
    max_bytes: int
    views: tuple[str, ...] = ()
