"""Sets of ordinals as bitmaps: bit i of byte i // 8 (little-endian within the byte) stands for ordinal i."""

import base64
import zlib
from collections.abc import Iterable, Iterator


class Bitmap:
    """A mutable set of ordinals below `size`."""

    __slots__ = ("_bytes", "size")

    def __init__(self, size: int, raw: bytes | None = None) -> None:
        length = (size + 7) // 8
        self.size = size
        self._bytes = bytearray(length) if raw is None else bytearray(raw.ljust(length, b"\0")[:length])
        if size & 7:
            self._bytes[-1] &= (1 << (size & 7)) - 1

    @classmethod
    def empty(cls, size: int) -> "Bitmap":
        return cls(size)

    @classmethod
    def of(cls, size: int, ordinals: Iterable[int]) -> "Bitmap":
        bitmap = cls(size)
        for ordinal in ordinals:
            bitmap.set(ordinal)
        return bitmap

    @classmethod
    def from_bytes(cls, raw: bytes, size: int | None = None) -> "Bitmap":
        return cls(len(raw) * 8 if size is None else size, raw)

    @classmethod
    def from_text(cls, text: str) -> "Bitmap":
        """Inverse of `to_text`."""
        raw = zlib.decompress(base64.b64decode(text))
        return cls(len(raw) * 8, raw)

    def to_bytes(self) -> bytes:
        return bytes(self._bytes)

    def to_text(self) -> str:
        """base64 of the compressed bytes, for JSON."""
        return base64.b64encode(zlib.compress(bytes(self._bytes))).decode()

    def get(self, ordinal: int) -> bool:
        """Whether `ordinal` is in the set; ordinals beyond the size are not."""
        return 0 <= ordinal < self.size and bool(self._bytes[ordinal >> 3] >> (ordinal & 7) & 1)

    def set(self, ordinal: int) -> None:
        """Add `ordinal`. Raises IndexError beyond the size."""
        self._check(ordinal)
        self._bytes[ordinal >> 3] |= 1 << (ordinal & 7)

    def clear(self, ordinal: int) -> None:
        """Remove `ordinal`. Raises IndexError beyond the size."""
        self._check(ordinal)
        self._bytes[ordinal >> 3] &= ~(1 << (ordinal & 7))

    def _check(self, ordinal: int) -> None:
        # a negative index would be taken from the end, and a bit after the size would count
        if not 0 <= ordinal < self.size:
            raise IndexError(f"ordinal {ordinal} is not among the {self.size} of this bitmap")

    def count(self) -> int:
        return int.from_bytes(self._bytes, "little").bit_count()

    def ordinals(self) -> Iterator[int]:
        """The members, ascending."""
        for index, byte in enumerate(self._bytes):
            yield from (index * 8 + bit for bit in range(8) if byte >> bit & 1)
