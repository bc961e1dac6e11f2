"""Writes the input of a submission: one line a request, streamed to disk, until the submission is full (E6).

The size is counted as it is written: requests, bytes, and the tokens that the provider will count as enqueued. The
digest of the whole goes with the batch as metadata, and is looked at when its results come.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.kernel.runtime.disk import refusal
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.bulk.dialect import BulkDialect, Frame
from nightmill.provider_gateway.bulk.errands import Build, Built
from nightmill.provider_gateway.bulk.limits import Size
from nightmill.provider_gateway.orders import Order, custom_id
from nightmill.provider_gateway.render import Renderer

_BUFFER_BYTES = 1 << 20
#: lines of a file stand alone
_LINES = Frame(path="", head=b"", between=b"", tail=b"")


@dataclass(slots=True)
class _Input:
    """What was written so far."""

    most: Size
    endpoint: str = ""
    bytes: int = 0
    tokens: int = 0
    orders: list[Order] = field(default_factory=list)
    refused: list[tuple[Order, Failure]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def fits(self, order: Order, size: int) -> bool:
        """The first request fits always: alone it is as small as can be."""
        if not self.orders:
            return True
        most = self.most
        tokens = self.tokens + order.attempt.input_tokens
        return (
            len(self.orders) < most.requests
            and self.bytes + size <= most.bytes
            and (most.tokens is None or tokens <= most.tokens)
        )


class Writer:
    """Of one thread, but for `stop`."""

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        self._folder, self._renderer = folder, Renderer(blobs)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Break off what is being written."""
        self._stopped.set()

    def build(self, errand: Build, dialect: BulkDialect) -> Built:
        """Write as many orders as fit, in order. Raises `Unavailable` when the blob store or the disk refuses."""
        path, digest, written = self._folder / f"{errand.name}.jsonl", hashlib.sha256(), _Input(errand.most)
        frame = dialect.frame or _LINES

        def write(data: bytes) -> None:
            file.write(data)
            digest.update(data)
            written.bytes += len(data)

        done = 0
        try:
            with path.open("wb", buffering=_BUFFER_BYTES) as file:
                write(frame.head)
                for order in errand.orders:
                    line = self._line(errand, dialect, order, written)
                    if line is not None and not self._add(written, order, line, frame.between, write):
                        break
                    done += 1
                write(frame.tail)
        except OSError as error:
            raise Unavailable(f"inputs in {refusal(self._folder, error)}") from error
        return Built(
            name=errand.name,
            path=path,
            endpoint=written.endpoint,
            orders=tuple(written.orders),
            refused=tuple(written.refused),
            left=errand.orders[done:],
            bytes=written.bytes,
            tokens=written.tokens,
            fingerprint=digest.hexdigest(),
        )

    def _line(self, errand: Build, dialect: BulkDialect, order: Order, written: _Input) -> bytes | None:
        """The order's line; None when it can not be rendered."""
        if self._stopped.is_set():
            raise Unavailable("the gateway stops")
        call = self._renderer.call(order, errand.access, "bulk")
        if isinstance(call, Failure):
            written.refused.append((order, call))
            return None
        written.endpoint = dialect.endpoint(call.request, errand.access.base_url)
        return dialect.line(custom_id(order), call.request, errand.access.base_url)

    def _add(
        self,
        written: _Input,
        order: Order,
        line: bytes,
        between: bytes,
        write: Callable[[bytes], None],
    ) -> bool:
        """Whether the line went in: the input is full, or has the id already and the provider would refuse it all."""
        ident = custom_id(order)
        if ident in written.ids or not written.fits(order, len(line)):
            return False
        write(between + line if written.orders else line)
        written.ids.add(ident)
        written.orders.append(order)
        written.tokens += order.attempt.input_tokens
        return True
