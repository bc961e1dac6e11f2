"""The api over real HTTP: uvicorn in a thread, a home folder of its own, any log behind it."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nightmill.api.app import create_app
from nightmill.api.desk import Desk, open_desk
from nightmill.api.ledger import Ledger
from nightmill.api.mirror import Mirror
from nightmill.api.run import ApiServer, listen
from nightmill.api.token import ensure_token
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.runtime.log import Log, Outgoing, Place, Reader, Record, Session, Writer
from nightmill.kernel.runtime.memory import MemoryBroker
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.wire.codec import codecs

CONFIG = Config.model_validate(
    {
        "pools": {
            "sim": {
                "provider": "openai_compatible",
                "base_url": "http://127.0.0.1:9/v1",
                "model": "simulated",
                "limits": {"slots": 20},
                "context_tokens": 4000,
            },
            "unpriced": {
                "provider": "openai_compatible",
                "base_url": "http://127.0.0.1:9/v1",
                "model": "nobody-knows",
                "limits": {"slots": 1},
                "context_tokens": 4000,
            },
        },
        "prices": {
            "version": "2026-11",
            "models": {"simulated": {"input_usd_per_million": 1, "output_usd_per_million": 2}},
        },
        "retry": {"classes": {}},
        "tenants": {"default": {}, "acme": {}},
    }
)


class LockedLog:
    """A log whose readers and writers take a lock: the memory log is made for one thread."""

    def __init__(self, log: Log, lock: threading.RLock) -> None:
        self.partitions = log.partitions
        self._log, self._lock = log, lock

    def session(self, group: str, instance: str, topics: Sequence[str]) -> Session:
        return self._log.session(group, instance, topics)

    def reader(self) -> Reader:
        return _LockedReader(self._log.reader(), self._lock)

    def writer(self) -> Writer:
        return _LockedWriter(self._log.writer(), self._lock)

    def lag(self, group: str, topic: str) -> int:
        return self._log.lag(group, topic)


class _LockedReader:
    def __init__(self, reader: Reader, lock: threading.RLock) -> None:
        self._reader, self._lock = reader, lock

    def end(self, place: Place) -> int:
        with self._lock:
            return self._reader.end(place)

    def start(self, place: Place, offset: int) -> None:
        self._reader.start(place, offset)

    def poll(self, timeout_s: float, limit: int) -> Sequence[Record]:
        with self._lock:
            return self._reader.poll(timeout_s, limit)

    def position(self, place: Place) -> int:
        return self._reader.position(place)

    def close(self) -> None:
        self._reader.close()


class _LockedWriter:
    def __init__(self, writer: Writer, lock: threading.RLock) -> None:
        self._writer, self._lock = writer, lock

    def write(self, records: Iterable[Outgoing]) -> None:
        with self._lock:
            self._writer.write(records)

    def close(self) -> None:
        self._writer.close()


@dataclass
class ServedApi:
    """An api that runs between `with` and its end; `put` writes rows as their owners would."""

    home: Path
    config: Config = CONFIG
    log: Log = field(default_factory=lambda: MemoryBroker().log("api-test"))
    now_ms: int | None = None  #: None: the real time

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self._source = LockedLog(self.log, self.lock)
        self._writer = self._source.writer()
        self.blobs = BlobStore(str(self.home / "blobs"))
        self.results_dir = self.home / "results"
        self.token = ensure_token(self.home / "token")

    def __enter__(self) -> Self:
        self.mirror = Mirror(self._source, time.monotonic)
        self.mirror.start()
        self._ledger = Ledger(self.home / "run" / "ledger.port", self.token)
        self.desk: Desk = open_desk(
            mirror=self.mirror,
            blobs=self.blobs,
            config=self.config,
            results_dir=self.results_dir,
            ledger=self._ledger,
            now_ms=lambda: self.now_ms or time.time_ns() // 1_000_000,
        )
        self._listener = listen(0)
        self.port = int(self._listener.getsockname()[1])
        self._server = ApiServer(create_app(self.desk, self.token), self.home / "run")
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()
        while not (self.home / "run" / "api.port").exists():
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self.mirror.close()
        self._ledger.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, *rows: Any) -> None:
        """Write rows of tables and messages; returns when the api has read them."""
        records = []
        for row in rows:
            codec = codecs()[type(row)]
            records.append(Outgoing(codec.channel.name, codec.key(row), codec.encode(row), 0))
        before = self.mirror.board
        self._writer.write(records)
        while self.mirror.board is before:
            time.sleep(0.01)

    def sent(self, message: type[Any]) -> list[Any]:
        """Every message of a kind on its topic, partition by partition."""
        codec = codecs()[message]
        reader = self._source.reader()
        for number in range(self.log.partitions):
            reader.start(Place(codec.channel.name, number), 0)
        found = [codec.decode(record.value) for record in reader.poll(0, 10_000) if record.value is not None]
        reader.close()
        return found
