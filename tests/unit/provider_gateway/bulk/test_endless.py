"""A server whose result file never ends (E6, E11)."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.store.blobs import BlobStore
from nightmill.provider_gateway.adapters import ADAPTERS, DIALECTS
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.results import MOST_LINE_BYTES
from nightmill.provider_gateway.bulk.wire import Wire
from nightmill.provider_gateway.bulk.worker import Worker
from nightmill.provider_gateway.failures import Signal
from nightmill.provider_gateway.orders import custom_id
from unit.provider_gateway.bulk.makers import make_order, make_row
from unit.provider_gateway.makers import make_access

ORDER = make_order(0)
#: a line of either provider
LINE = (
    b"%b\n"
    % json.dumps(
        {
            "custom_id": custom_id(ORDER),
            "response": {"status_code": 200, "body": {}},
            "result": {"type": "succeeded", "message": {}},
        }
    ).encode()
)
BLANK = b" " * ((1 << 16) - 1) + b"\n"
#: where the server gives up that is not stopped: far beyond what may be taken
END_BYTES = 64 << 20


@pytest.fixture
def base_url() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            if self.path.endswith("/file-out"):
                self.wfile.write(json.dumps({"id": "file-out", "bytes": len(LINE)}).encode())
                return
            with suppress(ConnectionError):
                self.wfile.write(LINE)
                for _ in range(END_BYTES // len(BLANK)):
                    self.wfile.write(BLANK)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("kind", "most"), [("openai", 2 << 20), ("anthropic", MOST_LINE_BYTES + (1 << 20))])
def test_it_does_not_fill_the_disk(tmp_path: Path, base_url: str, kind: str, most: int) -> None:
    """Row 52: as a file of another size than it should have, it is thrown away, and in the end read as it is."""
    blobs = BlobStore(str(tmp_path / "blobs"))
    worker = Worker(tmp_path / "bulk", Wire({}), blobs=blobs, clock_ms=lambda: 0, request_s=5.0)
    access = replace(make_access(), base_url=base_url, adapter=ADAPTERS[kind], dialect=DIALECTS[kind])
    row = make_row(ProviderBatchState.ENDED, requests=1, output_id="file-out", error_id=None)
    errand = e.Fetch(access=access, row=row, orders=(ORDER,))
    outcome = worker.carry_out(errand)
    assert isinstance(outcome, e.Refused)
    assert outcome.failure.signal == Signal.BODY_INCOMPLETE
    outcome = worker.carry_out(replace(errand, any_size=True))
    worker.close()
    assert isinstance(outcome, e.Harvest)
    assert (outcome.places.missing, outcome.strangers, len(outcome.misfits)) == (0, 0, 1)
    assert outcome.paths[0].stat().st_size < most
