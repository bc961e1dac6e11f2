"""When the loop does no work for a moment: something that it needs was found away, or its transaction was aborted.

Meanwhile its inputs are paused, records that arrive all the same are held, and the positions stay where they are. The
member still polls, so that its group keeps it.
"""

from nightmill.kernel.runtime.log import Session
from nightmill.kernel.runtime.ownership import Ownership

_FIRST_MS = 50
_LONGEST_MS = 5_000


def back_off_ms(aborted: int) -> int:
    """The rest after `aborted` >= 1 transactions in a row were aborted: 50 ms, doubling, 5 s at most."""
    # The exponent is bounded: a broker may be in trouble for a night.
    return min(_LONGEST_MS, _FIRST_MS << min(aborted - 1, 10))


class Rest:
    """Of one loop. Times may jump: a clock that is set back only makes the next try come sooner."""

    def __init__(self, session: Session, owned: Ownership) -> None:
        self._session = session
        self._owned = owned
        self._from_ms: int | None = None
        self._for_ms = 0
        self._aborted = 0
        self.stalled = False  #: take no more work; lasts past the rest while gathered work can not be staged

    def begin(self, now_ms: int | None, for_ms: int) -> None:
        """Rest from now on; without a time (an orderly stop) there is no later try."""
        self._from_ms, self._for_ms = now_ms, for_ms
        self.stall(stalled=True)

    def after_abort(self, now_ms: int) -> None:
        """The open transaction was aborted by the broker; rest longer each time that it happens again."""
        self._aborted += 1
        self.begin(now_ms, back_off_ms(self._aborted))

    def committed(self) -> None:
        """A transaction went well."""
        self._aborted = 0

    def lasts(self, now_ms: int, *, nothing_open: bool) -> bool:
        """Whether to rest on. Afterwards work goes on, or, where a transaction is open, its staging is tried again."""
        if self._from_ms is None:
            return False
        if abs(now_ms - self._from_ms) < self._for_ms:
            return True
        self._from_ms = None
        if nothing_open:
            self.stall(stalled=False)
        return False

    def rewound(self) -> None:
        """The inputs were set back to the last commit and resumed."""
        self.stalled = False

    def stall(self, *, stalled: bool) -> None:
        """Pause or resume the inputs, but for those that wait for a record of their own."""
        if stalled == self.stalled:
            return
        self.stalled = stalled
        change = self._session.pause if stalled else self._session.resume
        for place in self._owned.positions:
            if place.topic not in self._owned.parts[place.partition].held:
                change(place)
