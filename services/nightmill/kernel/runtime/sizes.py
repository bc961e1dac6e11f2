"""How large a record may be: the contract's `max_bytes` of each topic, kept before anything is sent.

The broker would refuse it too, but late and without a name: the client reports a failed batch, from which neither the
record nor its size can be told, and the whole transaction would be tried again for ever. A size is that of the record
before compression, as the broker could meet it at worst.
"""

from collections.abc import Iterable

from nightmill.kernel.runtime.log import Outgoing, TooLarge
from nightmill.kernel.wire.topics import CHANNELS, TABLES

#: what a dead letter adds to its original: where it came from, and why
DEAD_LETTER_ROOM_BYTES = 65_536
_OVERHEAD_BYTES = 128  #: lengths, offset, timestamp and the batch around a single record

_LIMITS = {
    **{channel.name: channel.max_bytes for channel in CHANNELS},
    **{table.name: table.max_bytes for table in TABLES},
    **{f"{channel.name}-dlq": channel.max_bytes + DEAD_LETTER_ROOM_BYTES for channel in CHANNELS},
}


def size_bytes(record: Outgoing) -> int:
    """Bytes of key, value and headers, and the frame around them."""
    headers = sum(len(name) + len(value) for name, value in record.headers)
    return len(record.key) + len(record.value or b"") + headers + _OVERHEAD_BYTES


def check_sizes(records: Iterable[Outgoing]) -> None:
    """Raises `TooLarge` for the first record that its topic does not take."""
    for record in records:
        limit = _LIMITS.get(record.topic)
        if limit is None or (record.value is not None and len(record.value) * 2 < limit):
            continue  # keys and headers are names and short reasons: they never fill the other half
        if size_bytes(record) > limit:
            raise TooLarge(
                f"a record for {record.topic} has {size_bytes(record)} bytes, its limit is {limit} "
                f"(max_bytes in contracts/channels.yaml)"
            )
