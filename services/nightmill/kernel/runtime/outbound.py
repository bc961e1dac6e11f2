"""From messages to records: topic, key, partition, headers, by the contract."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from nightmill.kernel.runtime.log import Outgoing, partition_of
from nightmill.kernel.wire.channel import Message
from nightmill.kernel.wire.codec import Codec, codecs
from nightmill.kernel.wire.topics import CHANNELS


class Outbound:
    """Encodes what `service` sends; anything the contract does not let it send is a defect (ValueError)."""

    def __init__(self, service: str, partitions: int) -> None:
        self._service = service
        self._channels: dict[type[Any], tuple[Codec, str, bool]] = {
            channel.message: (codecs()[channel.message], channel.partition_by, channel.partition_by == channel.key)
            for channel in CHANNELS
            if service in channel.producers
        }
        # few keys by far (datasets, pools): murmur2 in Python is slow
        self._partition_of = lru_cache(maxsize=4096)(lambda value: partition_of(value.encode(), partitions))

    def records(self, messages: Iterable[Message]) -> list[Outgoing]:
        """One record per message; partition None where the key decides."""
        return [self._record(message) for message in messages]

    def _record(self, message: Message) -> Outgoing:
        found = self._channels.get(type(message))
        if found is None:
            raise ValueError(f"channels.yaml does not let {self._service} send {type(message).__name__}")
        codec, partition_by, by_key = found
        partition = None if by_key else self._partition(getattr(message, partition_by))
        return Outgoing(
            codec.channel.name, codec.key(message), codec.encode(message), partition, codec.headers(message)
        )

    def _partition(self, value: str | int) -> int:
        return value if isinstance(value, int) else self._partition_of(value)
