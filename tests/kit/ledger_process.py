"""The ledger's process without a log: takes batches of events on stdin, flushes each, and says so on stdout.

    python ledger_process.py HOME NAMESPACE [URL]

A frame on stdin is a pickled list of (partition, event). Its answer is one line: `flushed`, or `unavailable REASON`.
The process is built by the ledger's own run.py, so its endpoint, its lock and its exit codes are the real ones.
"""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kit.partition import StagePartition
from nightmill.kernel.runtime.observe import configure_logging
from nightmill.kernel.runtime.service import Unavailable
from nightmill.kernel.runtime.settings import Settings
from nightmill.kernel.wire.codec import codecs
from nightmill.kernel.wire.topics import CHANNELS
from nightmill.ledger.run import build

HANDLERS = {channel.message: channel.handler for channel in CHANNELS}


def frames() -> Iterator[list[tuple[int, Any]]]:
    while True:
        try:
            yield pickle.load(sys.stdin.buffer)
        except EOFError:
            return


def main() -> None:
    configure_logging()
    home, namespace, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
    settings = Settings(
        home=home,
        bootstrap="none",
        namespace=namespace,
        config_dir=home,
        blobs_url=str(home / "blobs"),
        clickhouse_url=url,
        environment={},
    )
    ledger = build(settings)
    parts = [StagePartition(ledger, number=number) for number in range(2)]
    print("ready", flush=True)
    for frame in frames():
        for number, event in frame:
            taken = codecs()[type(event)].encode(event) if type(event) in ledger.unread else event
            getattr(ledger, HANDLERS[type(event)])(taken, parts[number])
        try:
            for part in parts:
                ledger.on_flush(part)
        except Unavailable as error:
            print("unavailable", error, flush=True)
        else:
            print("flushed", flush=True)
    ledger.close()


if __name__ == "__main__":
    main()
