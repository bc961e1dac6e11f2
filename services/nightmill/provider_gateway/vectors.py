"""Amounts as tuples, and their rate: a handful is made for every call, and a tuple costs a quarter of an object."""

from nightmill.kernel.wire.messages import LeaseAmounts

#: A rate is observed over windows of this length; one that has just begun counts as if it were `SETTLING_MS` long.
WINDOW_MS = 1_000
SETTLING_MS = 200

#: requests, input tokens and output tokens
Vector = tuple[int, int, int]

NOTHING: Vector = (0, 0, 0)


def plus(a: Vector, b: Vector) -> Vector:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def minus(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def most(a: Vector, b: Vector) -> Vector:
    """The larger in every dimension."""
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])


def fits(a: Vector, b: Vector) -> bool:
    """Whether `b` covers `a` in every dimension."""
    return a[0] <= b[0] and a[1] <= b[1] and a[2] <= b[2]


def vector_of(amounts: LeaseAmounts) -> Vector:
    return amounts.requests, amounts.input_tokens, amounts.output_tokens


def amounts_of(vector: Vector) -> LeaseAmounts:
    return LeaseAmounts(requests=vector[0], input_tokens=vector[1], output_tokens=vector[2])


class Rate:
    """What is started in a time, as observed: in the last whole window, or in the open one if that is more."""

    def __init__(self) -> None:
        self._since_ms = 0
        self._whole, self._open = NOTHING, NOTHING

    def count(self, call: Vector) -> None:
        """One more was started, in the window of the last `look`."""
        self._open = plus(self._open, call)

    def look(self, now_ms: int) -> None:
        """Close the open window when its time is over."""
        age_ms = now_ms - self._since_ms
        if 0 <= age_ms < WINDOW_MS:
            return
        self._whole = self._open if 0 <= age_ms < 2 * WINDOW_MS else NOTHING
        self._since_ms, self._open = now_ms, NOTHING

    def within(self, time_ms: int, now_ms: int) -> Vector:
        """What so much time will start."""
        open_ms = max(SETTLING_MS, now_ms - self._since_ms)
        return most(_scaled(self._whole, time_ms, WINDOW_MS), _scaled(self._open, time_ms, open_ms))


def _scaled(started: Vector, to_ms: int, from_ms: int) -> Vector:
    requests, input_tokens, output_tokens = (each * to_ms // from_ms for each in started)
    return requests, input_tokens, output_tokens
