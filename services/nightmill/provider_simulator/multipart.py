"""multipart/form-data read as it arrives: small fields into memory, one file part handed on in chunks (RFC 7578)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

MAX_FIELD_BYTES = 65_536
MAX_HEAD_BYTES = 16_384

_BOUNDARY = re.compile(r'boundary=(?:"([^"]+)"|([^;\s]+))', re.I)
_NAME = re.compile(r'\bname="([^"\x00-\x1f\x7f]*)"')
_FILENAME = re.compile(r'filename="([^"\x00-\x1f\x7f]*)"')


class BadForm(ValueError):
    """The body is not the form that its header promises."""


@dataclass(slots=True)
class Form:
    """What was read so far. `filename` is set once the file part has begun."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    file_field: str | None = None


def boundary_of(content_type: str | None) -> bytes:
    """The boundary of a Content-Type. Raises `BadForm`."""
    found = _BOUNDARY.search(content_type or "")
    if found is None or not (content_type or "").lower().startswith("multipart/form-data"):
        raise BadForm("expected multipart/form-data with a boundary")
    return (found[1] or found[2]).encode()


async def file_chunks(chunks: AsyncIterator[bytes], boundary: bytes, form: Form) -> AsyncIterator[bytes]:
    """The bytes of the file part; `form` fills up meanwhile, and is whole at the end. Raises `BadForm`."""
    reader = FormReader(boundary, form)
    async for chunk in chunks:
        ready = reader.feed(chunk)
        if ready:
            yield ready
    if not reader.done:
        raise BadForm("the body ends before its last boundary")


class FormReader:
    """Takes the body piece by piece, cut anywhere; gives back what belongs to the file."""

    def __init__(self, boundary: bytes, form: Form) -> None:
        self.done = False
        self._mark = b"\r\n--" + boundary
        self._form = form
        self._held = b"\r\n"  # so that the first boundary looks like all others
        self._in_file = False
        self._name: str | None = None
        self._value = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """The bytes of the file that are certain now. What follows the last boundary is ignored."""
        self._held += chunk
        ready: list[bytes] = []
        while not self.done and self._part_ended(ready):
            pass
        return b"".join(ready)

    def _part_ended(self, ready: list[bytes]) -> bool:
        """Go on to the next part, if a whole boundary with its head is there."""
        at = self._held.find(self._mark)
        if at < 0:
            keep = len(self._mark) - 1
            if len(self._held) > keep:
                self._take(self._held[:-keep], ready)
                self._held = self._held[-keep:]
            return False
        after = at + len(self._mark)
        closing = self._held[after : after + 2] == b"--"
        head_end = self._held.find(b"\r\n\r\n", after)
        if head_end < 0 and not closing:
            if len(self._held) - at > MAX_HEAD_BYTES:
                raise BadForm("the head of a part is too long")
            return False
        self._take(self._held[:at], ready)
        if self._name is not None:
            self._form.fields[self._name] = self._value.decode("utf-8", "replace")
        self._value.clear()
        if closing:
            self.done = True
            return False
        self._in_file, self._name = _part(self._held[after:head_end].decode("utf-8", "replace"), self._form)
        self._held = self._held[head_end + 4 :]
        return True

    def _take(self, data: bytes, ready: list[bytes]) -> None:
        """Bytes of the part that is being read; those ahead of the first one are dropped."""
        if self._in_file:
            ready.append(data)
        elif self._name is not None:
            self._value += data
            if len(self._value) > MAX_FIELD_BYTES:
                raise BadForm("a field is too long")


def _part(head: str, form: Form) -> tuple[bool, str | None]:
    """Whether this part is the file, and its name."""
    found = _NAME.search(head)
    if found is None:
        raise BadForm("a part has no name")
    filename = _FILENAME.search(head)
    if filename is None:
        return False, found[1]
    form.filename, form.file_field = filename[1], found[1]
    return True, None
