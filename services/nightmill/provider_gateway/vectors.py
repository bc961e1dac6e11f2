"""Amounts as tuples: a handful of them is made for every call, and a tuple costs a quarter of an object."""

from nightmill.kernel.wire.messages import LeaseAmounts

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


class Window:
    """What was started since a moment, epoch ms: the rate that is observed."""

    def __init__(self, since_ms: int = 0) -> None:
        self.since_ms = since_ms
        self._started = NOTHING

    def count(self, call: Vector) -> None:
        self._started = plus(self._started, call)

    def scaled(self, to_ms: int, length_ms: int) -> Vector:
        """What `to_ms` will start at the rate of this window, which is `length_ms` long."""
        requests, input_tokens, output_tokens = (each * to_ms // length_ms for each in self._started)
        return requests, input_tokens, output_tokens
