"""Quarantine: a record that can not be handled goes to `<topic>-dlq` as it was, with the reason beside it."""

from collections.abc import Mapping

from nightmill.kernel.runtime.log import Outgoing, Record

_REASON_LIMIT = 1_000


def dead_letter_topic(topic: str) -> str:
    return f"{topic}-dlq"


def dead_letter(record: Record, reason: str, service: str, now_ms: int) -> Outgoing:
    """The original bytes and headers, with where it came from, who refused it, and why."""
    added = {
        "dlq-topic": record.place.topic,
        "dlq-partition": str(record.place.partition),
        "dlq-offset": str(record.offset),
        "dlq-service": service,
        "dlq-reason": reason[:_REASON_LIMIT],
        "dlq-at-ms": str(now_ms),
    }
    return Outgoing(
        topic=dead_letter_topic(record.place.topic),
        key=record.key or b"",
        value=record.value,
        partition=record.place.partition,
        headers=[*record.headers, *((name, value.encode()) for name, value in added.items())],
    )


def header_texts(record: Record) -> Mapping[str, str]:
    """Headers as text: whose record it was, even if its body says nothing."""
    return {name: value.decode("utf-8", "replace") for name, value in record.headers if value is not None}
