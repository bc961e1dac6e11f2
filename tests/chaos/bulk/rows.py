"""The rows of submissions as the gateway committed them, from the topic itself: every state that each was in."""

from collections.abc import Iterator
from dataclasses import dataclass

from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.log import Place
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.messages import ProviderBatchRow

_PARTITIONS = 2
_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A committed row, and when it was written."""

    at_ms: int
    row: ProviderBatchRow


def history(kafka: str, namespace: str, *, since_ms: int) -> list[Seen]:
    """All rows of submissions that were begun after `since_ms`, in the order of each."""
    return [seen for seen in _all(kafka, namespace) if seen.row.intent_at_ms >= since_ms]


def _all(kafka: str, namespace: str) -> Iterator[Seen]:
    codec = codecs()[ProviderBatchRow]
    places = [Place(codec.channel.name, number) for number in range(_PARTITIONS)]
    reader = KafkaLog(kafka, namespace, _PARTITIONS).reader()
    try:
        ends = {place: reader.end(place) for place in places}
        for place in places:
            reader.start(place, 0)
        while any(reader.position(place) < end for place, end in ends.items()):
            for record in reader.poll(_POLL_S, 500):
                if record.value is not None:
                    yield Seen(at_ms=record.timestamp_ms, row=codec.decode(record.value))
    finally:
        reader.close()
