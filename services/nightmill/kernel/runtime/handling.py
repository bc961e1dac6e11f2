"""What becomes of one record: decode it, ask the service's handler, and quarantine what can not be handled.

Three outcomes and no more: a decision (done), a wait, a quarantine (done too: a dead letter and what the service
decides about it). Anything else that a handler raises ends the process, with the mark of the record on disk.
"""

import logging
from collections.abc import Callable
from typing import Any

from nightmill.kernel.runtime.disk import DiskRefused
from nightmill.kernel.runtime.dlq import dead_letter, header_texts
from nightmill.kernel.runtime.log import Outgoing, Record
from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.ownership import OwnedPartition
from nightmill.kernel.runtime.service import NOTHING, ContractViolation, Decision, Service, Unavailable, Wait
from nightmill.kernel.runtime.suspect import Suspect
from nightmill.kernel.wire.channel import Topic
from nightmill.kernel.wire.codec import Codec, Undecodable, codecs

log = logging.getLogger(__name__)


class Handling:
    """The handlers of one service by topic."""

    def __init__(self, service: Service, inputs: list[Topic], suspect: Suspect) -> None:
        self._service = service
        self._suspect = suspect
        self._readers: dict[str, Callable[[bytes], Any]] = {
            each.name: _reader(codecs()[each.message], unread=each.message in service.unread) for each in inputs
        }
        self._handlers: dict[str, Any] = {each.name: getattr(service, each.handler) for each in inputs}

    def outcome(self, part: OwnedPartition, record: Record, letters: list[Outgoing]) -> Decision | Wait:
        """What the service decides; the dead letter of a quarantined record is added to `letters`.

        Raises what the handler raises, but for `Unavailable` and `ContractViolation`.
        """
        topic = record.place.topic
        if record.value is None:
            return NOTHING
        try:
            if reason := self._suspect.verdict(record):
                raise ContractViolation(reason)
            self._suspect.handling(record)
            message = self._readers[topic](record.value)
            outcome: Decision | Wait = self._handlers[topic](message, part)
        except Unavailable as error:
            log.warning("waiting", extra={"action": "waiting", "topic": topic, "reason": str(error)})
            return Wait(str(error))
        except (Undecodable, ContractViolation) as error:
            return self._quarantine(part, record, str(error), letters)
        except (DiskRefused, OSError):
            # the process ends of its surroundings: that is not this record's doing
            self._suspect.handled()
            raise
        return outcome

    def _quarantine(self, part: OwnedPartition, record: Record, reason: str, letters: list[Outgoing]) -> Decision:
        topic, place = record.place.topic, record.place
        log.error(
            "record quarantined",
            extra={
                "action": "record_quarantined",
                "topic": topic,
                "partition": place.partition,
                "offset": record.offset,
                "reason": reason,
            },
        )
        metrics.count("records_quarantined", topic=topic)
        letters.append(dead_letter(record, reason, self._service.name, part.now_ms))
        return self._service.on_quarantined(topic, header_texts(record), reason, part)


def _reader(codec: Codec, *, unread: bool) -> Callable[[bytes], Any]:
    return codec.newest if unread else codec.decode
