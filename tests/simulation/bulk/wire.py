"""The `Wire` of the simulation: each request an event in which its process may die or sleep, and others go first.

connect → look at the clock → send → carried out → answer. Bytes of requests and responses are the product's own and the
provider's; connections, headers and multipart are left out.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nightmill.provider_gateway.bulk.dialect import Ask, Form
from nightmill.provider_gateway.bulk.wire import Broken, NotSent, To, Wire
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal
from simulation.bulk.mix import INLINE
from simulation.seams import Killed

if TYPE_CHECKING:
    from simulation.bulk.lane import BulkLane
    from simulation.process import Process

#: a server gives up a connection on which no request comes; where inputs are files it need not for anything to hold
_IDLE_MS = 5_000
#: uploads and creates are few, and what befalls them matters most
_OF_CREATES = 3
_NAPS_MS = (10_000, 70_000)  #: about as long as a look waits, and twice that


class SimulatedWire(Wire):
    """Requests of one process. `took_ms`: how long those of the present errand have kept it waiting."""

    def __init__(self, lane: "BulkLane", process: "Process", *, request_ms: int) -> None:
        self._lane, self._process, self._request_ms = lane, process, request_ms
        self.took_ms = 0

    def send(self, ask: Ask, to: To, *, deadline_s: float, may_send: Callable[[], bool] = lambda: True) -> Response:
        return self._exchange(to.pool, ask.method, ask.url, ask.body, may_send)

    def post_file(self, url: str, path: Path, to: To, *, deadline_s: float, may_send: Callable[[], bool]) -> Response:
        return self._exchange(to.pool, "POST", url, path.read_bytes(), may_send)

    def upload(self, form: Form, path: Path, to: To, *, deadline_s: float) -> Response:
        content = path.read_bytes()
        lost_bytes = 1 if self._lane.happens("upload_damaged") else 0
        return self._carried(
            to.pool,
            "upload",
            lambda: self._lane.routes.upload(form.filename, content, lost_bytes=lost_bytes),
            lambda: True,
            takes_input=True,
        )

    def first_line(self, ask: Ask, to: To, *, deadline_s: float) -> Response:
        response = self._exchange(to.pool, ask.method, ask.url, None, lambda: True)
        if response.status != 200:
            return response
        return Response(status=200, headers={}, body=response.body.partition(b"\n")[0])

    def download(self, ask: Ask, path: Path, to: To, *, deadline_s: float, most_bytes: int) -> Response:
        response = self._exchange(to.pool, ask.method, ask.url, None, lambda: True)
        if response.status != 200:
            return response
        have = path.stat().st_size if path.exists() else 0
        span = {"content-range": f"bytes {have}-/{len(response.body)}"} if have else {}
        if 0 < len(response.body) <= have:
            return Response(status=416, headers=span, body=b"")
        rest = response.body[have:]
        is_cut = self._lane.happens("cut_download")
        with path.open("ab") as file:
            file.write(rest[: len(rest) // 2] if is_cut else rest)
        if is_cut:
            raise Broken(Signal.BODY_INCOMPLETE, sent=True)
        return Response(status=200, headers=span, body=b"")

    def close(self) -> None:
        return

    # -- one request

    def _exchange(self, pool: str, method: str, url: str, body: bytes | None, may_send: Callable[[], bool]) -> Response:
        creates = method == "POST" and not url.endswith("/cancel")
        return self._carried(
            pool,
            f"{method} {url.partition('/v1/')[2].partition('?')[0]}",
            lambda: self._lane.routes.ask(pool, method, url, body),
            may_send,
            takes_input=creates,
        )

    def _carried(
        self, pool: str, what: str, do: Callable[[], Response], may_send: Callable[[], bool], *, takes_input: bool
    ) -> Response:
        world, process = self._lane.world, self._process
        happens = partial(self._lane.happens, times=_OF_CREATES if takes_input else 1)
        if happens("not_connected"):
            raise Broken(Signal.NOT_CONNECTED, sent=False)
        self._lane.point(process, f"before {what}")
        connected_at_ms = world.now_ms
        if not may_send():
            raise NotSent
        self._leave(what, do, happens)
        if pool == INLINE and world.now_ms - connected_at_ms > _IDLE_MS:
            raise Broken(Signal.CONNECTION_LOST, sent=True)
        self._lose(what, do, happens)
        refusal = self._refused(takes_input, happens)
        if refusal is not None:
            return refusal
        response = do()
        if happens("lost_answer"):
            self.took_ms += self._lane.random.choice((0, self._request_ms))
            world.note(process.name, f"{what}: its answer is lost")
            raise Broken(Signal.CONNECTION_LOST, sent=True)
        if happens("error_after"):
            return Response(status=500, headers={}, body=b"{}")
        self._lane.point(process, f"after {what}")
        return response

    def _leave(self, what: str, do: Callable[[], Response], happens: Callable[[str], bool]) -> None:
        """The clock was looked at, the request leaves, soon or after a sleep, and perhaps its process is gone then."""
        world, process = self._lane.world, self._process
        if happens("crash_in_request"):
            world.note(process.name, f"is killed as {what} leaves")
            self._lane.api.later(self._lane.random.randint(0, self._request_ms), do)
            raise Killed
        if world.moments.depth == 0 and happens("sleep_in_request"):
            world.note(process.name, f"is stopped as {what} leaves")
            nap_ms = self._lane.random.randint(*_NAPS_MS)
            world.moments.stop(process, nap_ms, stride_ms=nap_ms // 100)

    def _lose(self, what: str, do: Callable[[], Response], happens: Callable[[str], bool]) -> None:
        world, process = self._lane.world, self._process
        if happens("lost_request"):
            raise Broken(Signal.CONNECTION_LOST, sent=True)
        if happens("late_request"):
            world.note(process.name, f"{what}: the connection breaks, it arrives all the same")
            self._lane.api.later(self._lane.random.randint(0, self._request_ms), do)
            raise Broken(Signal.CONNECTION_LOST, sent=True)

    def _refused(self, takes_input: bool, happens: Callable[[str], bool]) -> Response | None:
        if happens("server_error"):
            return Response(status=self._lane.random.choice((500, 503)), headers={}, body=b"{}")
        if happens("rate_limit"):
            return Response(status=429, headers={"retry-after": "2"}, body=b"{}")
        if takes_input and happens("too_large"):
            return Response(status=413, headers={}, body=b'{"error":{"message":"no","type":"request_too_large"}}')
        return None
