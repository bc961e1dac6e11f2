"""Answers and marks of attempts whose publication is not committed: the outbox, and what of it is held in memory.

An answer whose partition is not open here is a stray: after a grace it is published all the same, flagged late, since
it was paid for; whoever owns the partition has given it up.
"""

from collections.abc import Iterator, Sequence

from nightmill.kernel.wire.messages import AttemptAnswered
from nightmill.provider_gateway.outbox import Landed, Outbox

#: an answer whose partition is nowhere to be seen waits so long for it to open here
STRAY_GRACE_MS = 30_000
_SETTLE_EVERY_MS = 1_000


class Undelivered:
    """What a crash right now would bring back."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._marked = outbox.marks()  #: sent, as far as anybody knows, by an earlier life of this process
        self._landed = {landed.key: landed for landed in outbox.answers()}
        self._settled_at_ms = 0
        self._strays: dict[str, int | None] = dict.fromkeys(self._landed)  #: since when their partition is missed

    @property
    def problem(self) -> str | None:
        """Why nothing can be written at the moment."""
        return self._outbox.problem

    def land(self, landed: Landed, *, stray_since_ms: int | None) -> None:
        """Take an answer in that is in the outbox; `stray_since_ms` when its partition is not open here."""
        self._landed[landed.key] = landed
        if stray_since_ms is not None:
            self._strays[landed.key] = stray_since_ms

    def answer(self, key: str) -> AttemptAnswered | None:
        """The answer of an attempt."""
        landed = self._landed.get(key)
        return None if landed is None else landed.answered

    def was_marked(self, key: str) -> bool:
        """Whether an earlier life of this process was about to send the attempt, and got no answer."""
        return key in self._marked

    def of_partition(self, number: int) -> tuple[list[str], list[Landed]]:
        """Marked attempts and answers of a partition."""
        marked = [key for key, partition in self._marked.items() if partition == number]
        return marked, [landed for landed in self._landed.values() if landed.partition == number]

    def claim(self, key: str) -> None:
        """The answer's partition is open and wants it: it is no stray any more."""
        self._strays.pop(key, None)

    def partition_closed(self, open_partitions: frozenset[int]) -> None:
        """Answers of partitions that are not open are strays from now on."""
        for key, landed in self._landed.items():
            if landed.partition not in open_partitions:
                self._strays.setdefault(key, None)

    def due_strays(self, now_ms: int) -> Iterator[AttemptAnswered]:
        """Strays whose grace is over. Each is given until it is claimed or forgotten."""
        for key, since_ms in list(self._strays.items()):
            if since_ms is None:
                self._strays[key] = now_ms
            elif now_ms - since_ms >= STRAY_GRACE_MS:
                yield self._landed[key].answered

    def published(self, keys: Sequence[str], open_partitions: frozenset[int]) -> None:
        """These attempts' answers are committed.

        Of a stray it is kept that it was sent: its shard may come back here with that attempt still open, and an
        attempt of which nothing is known is sent again.
        """
        strays = {
            key: self._landed[key].partition
            for key in keys
            if key in self._landed and self._landed[key].partition not in open_partitions
        }
        self.forget([key for key in keys if key not in strays])
        for key in strays:
            del self._landed[key]
            self._strays.pop(key, None)
        self._marked.update(strays)
        if strays:
            self._outbox.leave_marks(strays)

    def forget(self, keys: Sequence[str]) -> None:
        """These attempts are over: nothing of them need survive a crash."""
        known = [key for key in keys if key in self._landed or key in self._marked]
        for key in known:
            self._landed.pop(key, None)
            self._marked.pop(key, None)
            self._strays.pop(key, None)
        if known:
            self._outbox.forget(known)

    def settle(self, now_ms: int) -> None:
        """Once a second: what a full disk kept is deleted when there is space, though no other answer may come."""
        if self._outbox.owes and not 0 <= now_ms - self._settled_at_ms < _SETTLE_EVERY_MS:
            self._settled_at_ms = now_ms
            self._outbox.settle()

    def close(self) -> None:
        self._outbox.close()
