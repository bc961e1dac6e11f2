"""HTTP to the api of one installation: where it listens and its token are read from the home folder.

The first contact fails at once when nobody is there. Later ones are patient for a while, since the api may be on its
way back: the port is read again before each try. What is tried again is safe to repeat. An api that says of itself
that the ledger is away is there, and is believed.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from nightmill.client.errors import Broken, LedgerAway, NightmillError, NotRunning, of_response
from nightmill.kernel.runtime.settings import read_settings

_PATIENCE_S = 30.0
_PAUSE_S = 0.5
_TIMEOUT = httpx.Timeout(120, connect=5)


class Connection:
    """One installation's api. `home` None means `NIGHTMILL_HOME`, else the user's data folder."""

    def __init__(self, home: Path | str | None = None, *, patience_s: float = _PATIENCE_S) -> None:
        default = read_settings(os.environ).home
        self.home = default if home is None else Path(home).expanduser().absolute()
        self._flag = "" if self.home == default else f" --home {self.home}"
        self._patience_s = patience_s
        self._reached = False
        # a proxy in the environment has no business on loopback
        self._http = httpx.Client(timeout=_TIMEOUT, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer of a GET. Raises `NightmillError`."""
        return self._json("GET", path, params=params)

    def post(self, path: str, body: Mapping[str, Any], *, key: str | None = None) -> Any:
        """The JSON answer of a POST; `key` makes a repeat act once. Raises `NightmillError`."""
        return self._json("POST", path, json=body, headers={} if key is None else {"Idempotency-Key": key})

    def upload(self, path: str, params: Mapping[str, Any], chunks: Iterable[bytes]) -> Any:
        """Stream a body up, once. Raises `NightmillError`, and whatever `chunks` raises."""
        return self._parsed(self._send("POST", path, params=params, content=iter(chunks)))

    def stream_lines(self, path: str, params: Mapping[str, Any]) -> Iterator[str]:
        """Lines of an answer as they come. Raises `NightmillError`; `Broken` when the answer is cut short."""
        try:
            with self._http.stream("GET", f"{self._url()}{path}", params=params, headers=self._headers()) as response:
                if response.is_error:
                    response.read()
                    self._parsed(response)
                yield from lines_of(response.iter_bytes())
        except httpx.ConnectError as error:
            raise self._not_running() from error
        except httpx.HTTPError as error:
            raise Broken(f"the answer was broken off: {error}", "try again; nightmill logs api says why") from error

    def _json(self, method: str, path: str, **request: Any) -> Any:
        since_s = time.monotonic()
        while True:
            try:
                return self._parsed(self._send(method, path, **request))
            except LedgerAway:
                raise
            except NotRunning:
                if not self._reached or time.monotonic() - since_s > self._patience_s:
                    raise
                time.sleep(_PAUSE_S)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**request.pop("headers", {}), **self._headers()}
        try:
            return self._http.request(method, f"{self._url()}{path}", headers=headers, **request)
        except httpx.HTTPError as error:
            raise self._not_running(str(error)) from error

    def _parsed(self, response: httpx.Response) -> Any:
        try:
            content = response.json()
        except ValueError as error:
            what = f"port {response.url.port} answers, but not as the api does (HTTP status {response.status_code})"
            raise NotRunning(what, f"another program may listen there; nightmill ps{self._flag}") from error
        if not response.is_error:
            self._reached = True
            return content
        raise self._problem(response.status_code, content)

    def _problem(self, status: int, content: Any) -> NightmillError:
        error = of_response(status, content.get("error") if isinstance(content, dict) else None)
        if status == httpx.codes.UNAUTHORIZED:
            remedy = f"{self.home / 'token'} is not the token of the api that runs; nightmill down, then up{self._flag}"
            return of_response(status, {"code": "unauthorised", "message": error.message, "remedy": remedy})
        return error

    def _headers(self) -> dict[str, str]:
        try:
            return {"Authorization": f"Bearer {(self.home / 'token').read_text(encoding='utf-8').strip()}"}
        except OSError as error:
            raise self._not_running() from error

    def _url(self) -> str:
        try:
            return f"http://127.0.0.1:{int((self.home / 'run' / 'api.port').read_text(encoding='ascii'))}"
        except (OSError, ValueError) as error:
            raise self._not_running() from error

    def _not_running(self, detail: str = "") -> NotRunning:
        start = f"nightmill up --detach{self._flag}"
        if not detail:
            what = "lost the connection to nightmill" if self._reached else "nightmill is not running"
            return NotRunning(f"{what} in {self.home}", start)
        what = "lost the connection to the api" if self._reached else "the api does not answer"
        remedy = f"nightmill ps{self._flag} tells whether it is starting again; if nothing runs: {start}"
        return NotRunning(f"{what} in {self.home} ({detail})", remedy)


def lines_of(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines by line feeds alone: a text may hold other characters that end a line elsewhere, such as U+2028."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in whole)
    if rest:
        yield rest.decode()
