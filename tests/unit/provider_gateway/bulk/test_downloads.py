"""Results come whole, whatever breaks on the way: a connection, this process, or the provider's word (E6, M4)."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from nightmill.kernel.domain.lifecycle import ProviderBatchState
from nightmill.kernel.store.blobs import BlobStore
from nightmill.provider_gateway.adapters import ADAPTERS, DIALECTS
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import Ask
from nightmill.provider_gateway.bulk.results import ResultFile
from nightmill.provider_gateway.bulk.wire import Broken, To, Wire
from nightmill.provider_gateway.bulk.worker import ThreadRunner
from nightmill.provider_gateway.failures import Signal
from nightmill.provider_gateway.orders import custom_id
from nightmill.provider_gateway.pools import PoolAccess
from unit.provider_gateway.bulk.makers import make_order, make_row
from unit.provider_gateway.makers import make_access

ORDERS = tuple(make_order(number) for number in range(50))
BODY = {"choices": [{"message": {"content": "x" * 100}}]}
WHOLE = b"".join(
    json.dumps({"custom_id": custom_id(order), "response": {"status_code": 200, "body": BODY}, "error": None}).encode()
    + b"\n"
    for order in ORDERS
)


@dataclass
class Provider:
    """Hands out one result file."""

    file: bytes = WHOLE
    told_bytes: int | None = None  #: what it says that the file has; None: as it is
    told_total: str | None = None  #: the same, of a part
    cuts: list[int] = field(default_factory=list)  #: bytes after which the next answers break off
    takes_ranges: bool = True
    asked: list[str | None] = field(default_factory=list)  #: the range of each download
    gone: tuple[str, ...] = ()  #: ids of files that it has not
    base_url: str = ""


@contextmanager
def serving(provider: Provider) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if any(f"/{each}" in self.path for each in provider.gone):
                self._send(404, b"{}")
                return
            if not self.path.endswith(("/content", "/results")):
                told = len(provider.file) if provider.told_bytes is None else provider.told_bytes
                self._send(200, json.dumps({"id": "file-out", "bytes": told}).encode())
                return
            wanted = self.headers.get("Range")
            provider.asked.append(wanted)
            total = len(provider.file)
            start = int(found[1]) if (found := re.match(r"bytes=(\d+)-", wanted or "")) and provider.takes_ranges else 0
            if start >= total > 0:
                self._send(416, b"", f"bytes */{total}")
                return
            told_total = provider.told_total or total
            span = f"bytes {start}-{total - 1}/{told_total}" if wanted and provider.takes_ranges else None
            self._send(206 if span else 200, provider.file[start:], span)

        def _send(self, status: int, body: bytes, span: str | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if span is not None:
                self.send_header("Content-Range", span)
            self.end_headers()
            is_file = self.path.endswith(("/content", "/results"))
            cut = provider.cuts.pop(0) if is_file and provider.cuts else len(body)
            self.wfile.write(body[:cut])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield provider
        server.shutdown()
        thread.join()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving(Provider()) as serving_one:
        yield serving_one


#: fetches in a new life of the process, on the disk of the last one
Life = Callable[..., e.Outcome]


@pytest.fixture
def fetch(provider: Provider, tmp_path: Path) -> Life:
    def life(
        kind: str = "openai", *, afresh: bool = False, error_id: str | None = None, any_size: bool = False
    ) -> e.Outcome:
        runner = ThreadRunner(
            tmp_path / "bulk",
            blobs=BlobStore(str(tmp_path / "blobs")),
            authorizations={},
            clock_ms=lambda: time.time_ns() // 1_000_000,
            request_s=5.0,
        )
        access = of_kind(make_access(), kind, provider.base_url)
        row = make_row(ProviderBatchState.ENDED, requests=len(ORDERS), output_id="file-out", error_id=error_id)
        runner.start(e.Fetch(access=access, row=row, orders=ORDERS, afresh=afresh, any_size=any_size))
        while not (ended := runner.completed()):
            time.sleep(0.005)
        runner.close()
        return ended[0].outcome

    return life


def of_kind(access: PoolAccess, kind: str, base_url: str) -> PoolAccess:
    return replace(access, base_url=base_url, adapter=ADAPTERS[kind], dialect=DIALECTS[kind])


def content(outcome: e.Outcome) -> bytes:
    assert isinstance(outcome, e.Harvest), outcome
    return b"".join(path.read_bytes() for path in outcome.paths)


def test_a_connection_that_breaks_is_no_reason_to_begin_again(provider: Provider, fetch: Life) -> None:
    """E6: each try asks for what is lacking."""
    provider.cuts = [1_000, 500, 0, 700]
    outcome = fetch()
    assert content(outcome) == WHOLE
    assert isinstance(outcome, e.Harvest)
    assert (outcome.places.missing, outcome.strangers, outcome.repeats) == (0, 0, 0)
    assert provider.asked == [None, "bytes=1000-", "bytes=1500-", "bytes=1500-", "bytes=2200-"]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_next_life_of_the_process_goes_on_where_the_last_one_stopped(
    provider: Provider, fetch: Life, kind: str
) -> None:
    """E6, M4: what is on the disk is not brought again."""
    provider.cuts = [1_234, 0, 0, 0]
    assert isinstance(fetch(kind), e.Unsure)
    assert isinstance(outcome := fetch(kind), e.Harvest)
    assert content(outcome) == WHOLE
    assert provider.asked == [None, *["bytes=1234-"] * 4]
    fetch(kind)
    assert provider.asked[-1] == f"bytes={len(WHOLE)}-"


def test_a_server_without_ranges_is_read_from_the_beginning(provider: Provider, fetch: Life) -> None:
    provider.cuts, provider.takes_ranges = [1_000], False
    assert content(fetch()) == WHOLE
    assert provider.asked == [None, "bytes=1000-"]


def test_a_file_that_is_not_as_long_as_the_provider_says_is_not_believed(provider: Provider, fetch: Life) -> None:
    """Row 52: neither kept nor read."""
    provider.told_bytes = len(WHOLE) + 1
    outcome = fetch()
    assert isinstance(outcome, e.Refused)
    assert outcome.failure.signal == Signal.BODY_INCOMPLETE
    provider.told_bytes = None
    assert content(fetch()) == WHOLE
    assert provider.asked == [None, None]


@pytest.mark.parametrize("told", [1, -1, 1_000])
def test_a_file_that_is_never_as_long_as_the_provider_says_is_read_as_it_is(
    provider: Provider, fetch: Life, told: int
) -> None:
    """Row 52: when it was brought often enough; what it lacks is for the reconciliation to find."""
    provider.told_bytes = len(WHOLE) + told
    assert isinstance(fetch(), e.Refused)
    outcome = fetch(any_size=True)
    assert content(outcome) == WHOLE
    assert isinstance(outcome, e.Harvest)
    assert outcome.misfits == (f"output: {len(WHOLE)} of {len(WHOLE) + told} bytes",)
    provider.told_bytes = None
    assert isinstance(outcome := fetch(any_size=True), e.Harvest)
    assert outcome.misfits == ()


def test_a_download_whose_rest_never_comes_is_read_as_far_as_it_came(provider: Provider, fetch: Life) -> None:
    provider.cuts, provider.takes_ranges = [1_000] * 8, False
    assert isinstance(fetch("anthropic"), e.Unsure)
    outcome = fetch("anthropic", any_size=True)
    assert content(outcome) == WHOLE[:1_000]
    assert isinstance(outcome, e.Harvest)
    assert outcome.misfits == ("output: 1000 bytes, and the rest never came",)
    assert outcome.places.missing > 0


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_what_lies_on_the_disk_is_measured_too(provider: Provider, fetch: Life, tmp_path: Path, kind: str) -> None:
    """E6: more than the provider has is not its file, whether or not it tells a size before."""
    (tmp_path / "bulk").mkdir()
    (tmp_path / "bulk" / "s1-b1-output.results").write_bytes(b"x" * (len(WHOLE) + 10))
    assert isinstance(fetch(kind), e.Refused)
    assert content(fetch(kind)) == WHOLE


def test_a_size_that_nobody_can_read_is_none(provider: Provider, fetch: Life) -> None:
    """M4: Python refuses to read thousands of digits, which ended the process after each start."""
    provider.cuts, provider.told_total = [1_000], "9" * 5_000
    assert content(fetch("anthropic")) == WHOLE


def test_missing_lines_are_looked_for_in_a_new_download(provider: Provider, fetch: Life) -> None:
    """Row 49: bytes of the right number that are not the right ones do not stay."""
    provider.file = WHOLE[:2_000] + b"\0" * (len(WHOLE) - 2_000)
    outcome = fetch()
    assert isinstance(outcome, e.Harvest)
    assert outcome.places.missing > 0
    provider.file = WHOLE
    assert isinstance(outcome := fetch(), e.Harvest)
    assert outcome.places.missing > 0
    assert content(fetch(afresh=True)) == WHOLE
    assert provider.asked[-1] is None


@pytest.mark.parametrize(("gone", "files"), [(("file-out",), [ResultFile.OUTPUT]), (("file-err",), [ResultFile.ERROR])])
def test_a_file_that_is_gone_keeps_the_other_one_from_nothing(
    provider: Provider, fetch: Life, gone: tuple[str, ...], files: list[ResultFile]
) -> None:
    """Row 52: what can be brought is brought."""
    provider.gone = gone
    outcome = fetch(error_id="file-err")
    assert content(outcome) == WHOLE
    assert isinstance(outcome, e.Harvest)
    assert list(outcome.gone) == files
    provider.gone = ("file-out", "file-err")
    assert isinstance(fetch(error_id="file-err"), e.Absent)


@pytest.mark.parametrize(
    ("file", "cuts", "line"),
    [
        (WHOLE, [], WHOLE.partition(b"\n")[0] + b"\n"),
        (b"\xef\xbb\xbf{}\n{}", [], b"{}\n"),
        (b"\r\n\n{}", [], b"{}"),
        (b"", [], b""),
        (b"\n\n", [], b""),
        (WHOLE, [0], None),  # that nothing came does not mean that it is empty
    ],
)
def test_the_first_line_by_which_a_batch_is_known(
    provider: Provider, file: bytes, cuts: list[int], line: bytes | None
) -> None:
    """E6: only a file that came whole is empty."""
    provider.file, provider.cuts = file, cuts
    ask, to = Ask(method="GET", url=f"{provider.base_url}/x/results"), To(pool="sim", headers={})
    wire = Wire({})
    if line is None:
        with pytest.raises(Broken):
            wire.first_line(ask, to, deadline_s=5.0)
    else:
        assert wire.first_line(ask, to, deadline_s=5.0).body == line


def test_old_downloads_do_not_fill_the_disk(tmp_path: Path) -> None:
    """What was left by a submission that went to another instance goes with the eighth day; so do strange lines."""
    folder = tmp_path / "bulk"
    (folder / "strange").mkdir(parents=True)
    (folder / "strange" / "s1.jsonl").write_bytes(b"{}")
    (folder / "input.jsonl").write_bytes(b"{}")
    (folder / "s1-output.results").write_bytes(b"{}")
    day_ms, now_ms = 86_400_000, time.time_ns() // 1_000_000
    for days, left in ((7, ["s1-output.results", "s1.jsonl"]), (9, [])):
        at_ms = now_ms + days * day_ms
        blobs = BlobStore(str(tmp_path / "blobs"))
        ThreadRunner(folder, blobs=blobs, authorizations={}, clock_ms=partial(int, at_ms), request_s=1.0).close()
        assert sorted(each.name for each in folder.rglob("*") if each.is_file()) == left
