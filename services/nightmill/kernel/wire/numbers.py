"""Avro's numbers: seven bits a byte, the lowest first, and the sign in the last bit (zigzag)."""

from functools import lru_cache

#: numbers below this have their written form at hand
SHORT = 4096


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@lru_cache(maxsize=8192)
def zigzag(number: int) -> bytes:
    """Written form of a number. Large ones are times and lengths for the most part, and those come again and again."""
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} has more than 64 bits")
    return _varint((number << 1) ^ (number >> 63))


def long_rest(data: bytes, low: int, at: int) -> tuple[int, int]:
    """The rest of a number whose first byte `low` says that more follow; and where it ends."""
    byte = data[at]
    at += 1
    number, shift = low & 0x7F | (byte & 0x7F) << 7, 14
    while byte > 0x7F:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if number >> 64 or shift == 63 and byte > 0x7F:
            raise ValueError("a number has more than 64 bits")
        shift += 7
    return number, at


def refuse(what: str, value: int) -> None:
    """Raises `ValueError`: what the bytes say can not be."""
    raise ValueError(f"{value} is no {what}")


#: written form of the numbers from 0 on
NUMBERS = [zigzag(number) for number in range(SHORT)]
