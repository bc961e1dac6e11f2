"""Publishing: which answers go out in this transaction, which of them late, and which are repeats that go nowhere."""

import logging
from collections import Counter
from collections.abc import Callable

from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import Partition, Unavailable
from nightmill.kernel.wire.messages import AttemptAnswered, ShardStateRow
from nightmill.kernel.wire.values import replace
from nightmill.provider_gateway.desk import Desk
from nightmill.provider_gateway.orders import attempt_key, offloaded, why_cost_unknown
from nightmill.provider_gateway.undelivered import Undelivered

log = logging.getLogger(__name__)


class Delivery:
    """Sends what a desk has ready, and strays whose grace is over."""

    def __init__(self, undelivered: Undelivered, *, instance: str, put_blob: Callable[[bytes], str]) -> None:
        self._undelivered, self._instance, self._put_blob = undelivered, instance, put_blob

    def due(self, desk: Desk, part: Partition) -> list[AttemptAnswered]:
        """Answers to send now: of this desk's open attempts as they are, of others flagged late, repeats not at all."""
        waiting, desk.ready = desk.ready, []
        send: list[AttemptAnswered] = []
        repeats: list[str] = []
        for answered in waiting:
            stored = self._stored(answered)
            if stored is None:
                desk.ready.append(answered)
            elif desk.book.publish(stored):
                send.append(stored)
            elif self.ended_here(stored, part):
                repeats.append(attempt_key(stored))
            else:
                send.append(replace(stored, late=True))
        send.extend(self._strays(part.now_ms))
        self._undelivered.forget(repeats)
        self._undelivered.settle(part.now_ms)
        for (state, kind, pool), number in Counter(map(_labels, send)).items():
            metrics.count("attempts", number, state=state, failure_class=kind, pool=pool)
        _alarm_unknown_costs(send)
        return send

    def ended_here(self, answered: AttemptAnswered, part: Partition) -> bool:
        """Whether the shard's row is this instance's own: then it was this instance that counted the answer."""
        row = part.table(ShardStateRow).get(answered.shard_id)
        return row is not None and row.owner == self._instance

    def _strays(self, now_ms: int) -> list[AttemptAnswered]:
        send: list[AttemptAnswered] = []
        for stray in self._undelivered.due_strays(now_ms):
            stored = self._stored(stray)
            if stored is not None:
                self._undelivered.claim(attempt_key(stray))
                send.append(replace(stored, late=True))
        return send

    def _stored(self, answered: AttemptAnswered) -> AttemptAnswered | None:
        """The answer with a long output moved to a blob; None while the store is away.

        Only an answer of an earlier life can still have its long output inline.
        """
        try:
            return offloaded(answered, self._put_blob)
        except Unavailable as error:
            log.warning("answer waits", extra={"action": "answer_waits", "reason": str(error)})
            return None


def _alarm_unknown_costs(send: list[AttemptAnswered]) -> None:
    """An unknown cost is no 0: somebody should look, above all where a price is missing."""
    causes = Counter((cause, answered.pool) for answered in send if (cause := why_cost_unknown(answered)) is not None)
    for (cause, pool), number in causes.items():
        metrics.count("costs_unknown", number, cause=cause, pool=pool)
        extra = {"action": "cost_unknown", "cause": cause, "pool": pool, "calls": number}
        log.warning("cost not known", extra=extra)


def _labels(answered: AttemptAnswered) -> tuple[str, str, str]:
    kind = "none" if answered.failure is None else answered.failure.failure_class.value
    return answered.state.value, kind, answered.pool
