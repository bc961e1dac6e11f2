"""The HTTP api against requests that its OpenAPI document knows nothing of: what else they hold, and how they come.

Whatever comes: no 5xx that says a defect, successes have the documented shape, refusals the documented error with
place, value and remedy, and the api still answers afterwards. What the document itself says is `test_openapi.py`'s.
"""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.bytes_of import mutated, searched
from kit.api_server import ServedApi
from kit.messages import JOB
from nightmill.api.limits import MAX_BODY_BYTES
from nightmill.kernel.wire.values import replace
from unit.api.rows import dataset, plan, publication, submitted

ROWS = b'{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n'
#: the ledger is away in this suite
AWAY = {"/v1/sql"}
CANCEL = f"/v1/jobs/{JOB}/cancel"
TRAVERSALS = ["..", "../../etc/passwd", "%2e%2e%2f%2e%2e%2ftoken", "..\\..\\token", "/etc/passwd", "a/../b", "\0", "~"]


class Front:
    """The served api, its document, and what every answer must be."""

    def __init__(self, api: ServedApi, http: httpx.Client) -> None:
        self.api, self.http = api, http
        self.document = http.get("/openapi.json").json()
        uploaded = http.post("/v1/inputs", params={"format": "jsonl", "name": "rows.jsonl"}, content=ROWS).json()
        self.job: dict[str, Any] = {
            "pipeline": {
                "name": "label",
                "input": {"id": "id", "fields": ["text"], "version": None},
                "prompt": "system:\nLabel it.\nuser:\n{{ text }}",
                "output": {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]},
                "checks": [{"enum": {"field": "label", "values": ["a"], "else": "review"}}],
                "model": {"pools": ["sim"], "max_output_tokens": 10, "temperature": 0.5, "seed": 1},
                "repair": {"attempts": 1},
                "gates": {"completion": 0.9, "gold": {"field": "label", "accuracy": 0.5, "sample": 3}},
                "publish": {"format": "jsonl", "columns": ["text"]},
                "limits": {"budget_usd": 1.5, "deadline": "6h", "attempts": 2},
                "sensitivity": "internal",
            },
            "input": {"format": "jsonl", "name": "rows.jsonl", "limit": 5, "skip_bad_rows": True, **uploaded},
            "budget_usd": "0.5",
            "deadline": 60,
            "priority": 1,
            "tenant": "acme",
            "tags": {"team": "search"},
        }
        self.bodies: dict[str, Any] = {
            "/v1/jobs": self.job,
            "/v1/estimate": self.job,
            CANCEL: {"reason": "enough", "actor": "me"},
            "/v1/sql": {"sql": "SELECT 1", "max_rows": 5, "max_seconds": 5},
        }

    def conforms(self, schema: dict[str, Any], value: Any) -> None:
        jsonschema_rs.validate({**schema, "components": self.document["components"]}, value)

    def check(self, path: str, answer: httpx.Response) -> None:
        """The answer is a documented success or a documented refusal that says what to do."""
        responses = self.document["paths"][path.replace(JOB, "{job_id}")]["post"]["responses"]
        documented = responses[str(answer.status_code) if answer.status_code < 500 else "5XX"]
        self.conforms(documented["content"]["application/json"]["schema"], answer.json())
        if not answer.is_success:
            self.refused(answer, away=path in AWAY)

    def part(self, name: str) -> dict[str, Any]:
        part: dict[str, Any] = self.job[name]
        return part

    def refused(self, answer: httpx.Response, *, away: bool = False) -> None:
        assert answer.status_code < 500 or (away and answer.status_code == 503), answer.text
        self.conforms({"$ref": "#/components/schemas/ErrorAnswer"}, answer.json())
        error = answer.json()["error"]
        assert all(error.values()), error
        assert len(error["message"]) < 4_000


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with ServedApi(tmp_path_factory.mktemp("api") / "home") as api:
        headers = {"Authorization": f"Bearer {api.token}"}
        with httpx.Client(base_url=api.url, headers=headers, timeout=60, trust_env=False) as http:
            api.put(submitted(), plan(), publication(), replace(dataset(1, 2), dataset_id="acme.tickets"))
            yield Front(api, http)


@given(data=st.data())
@searched(150)
def test_a_good_request_with_a_few_parts_changed_is_answered_as_documented(front: Front, data: st.DataObject) -> None:
    """Bodies that get past the first checks, and then hold something that nobody thought of."""
    path = data.draw(st.sampled_from(sorted(front.bodies)))
    content = data.draw(mutated(front.bodies[path]).map(encoded) | st.binary(max_size=30))
    front.check(path, front.http.post(path, content=content, headers={"content-type": "application/json"}))


PLACES: list[tuple[dict[str, Any], str]] = [
    ({"deadline": 1e300}, "deadline"),
    ({"budget_usd": "1e400"}, "budget_usd"),
    ({"priority": 10**30}, "priority"),
    ({"tenant": "../x"}, "tenant"),
    ({"tags": {"a": ["b"]}}, "tags.a"),
    ({"surprise": 1}, "surprise"),
    ({"input": {"limit": 10**30}}, "input.limit"),
    ({"input": {"bytes": 10**30}}, "input.bytes"),
    ({"input": {"blob": "../../etc/passwd"}}, "input.blob"),
    ({"input": {"blob": "f" * 64}}, "input.blob"),
    ({"input": {"format": "xml"}}, "input.format"),
    ({"pipeline": {"limits": {"deadline": 1e300}}}, "pipeline.limits.deadline"),
    ({"pipeline": {"limits": {"budget_usd": 1e300}}}, "pipeline.limits.budget_usd"),
    ({"pipeline": {"output": {"$ref": "file:///etc/passwd"}}}, "output"),
    ({"pipeline": {"output": {"pattern": "("}}}, "output.pattern"),
    ({"pipeline": {"checks": [{"enum": {"field": "x", "values": [1]}, "range": {}}]}}, "checks"),
    ({"pipeline": {"prompt": "{% for"}}, "prompt, line 1"),
    ({"pipeline": {"prompt": "{{ " + "-" * 5_000 + "1 }}"}}, "prompt"),
    ({"pipeline": {"name": "../x"}}, "name"),
    ({"pipeline": {"model": {"pools": ["nowhere"], "max_output_tokens": 5}}}, "nowhere"),
]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/estimate"])
@pytest.mark.parametrize(("change", "place"), PLACES, ids=[place for _, place in PLACES])
def test_a_refused_job_says_where_it_is_wrong(front: Front, path: str, change: dict[str, Any], place: str) -> None:
    """P4: refused before anything is started, with the place."""
    body = {**front.job, **change}
    for part in change.keys() & {"input", "pipeline"}:
        body[part] = front.part(part) | change[part]
    answer = front.http.post(path, content=encoded(body), headers={"content-type": "application/json"})
    front.refused(answer)
    assert place in answer.json()["error"]["message"]


def nested(levels: int) -> bytes:
    return b'{"pipeline": ' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"{}", {"content-type": "text/plain"}),
        (b"{}", {"content-type": "application/json; charset=utf-16"}),
        ("{}".encode("utf-16"), {}),
        (b"\xff\xfe\x00", {}),
        (b"a=1&b=2", {"content-type": "application/x-www-form-urlencoded"}),
        (b"--x--", {"content-type": "multipart/form-data; boundary=x"}),
        (b"\x1f\x8b\x08", {"content-encoding": "gzip"}),
        (b"", {}),
        (b"null", {}),
        (b'{"pipeline": NaN}', {}),
        (b'{"priority": ' + b"9" * 10_000 + b"}", {}),
        (b'{"pipeline": {"name": "\\ud800"}}', {}),
        (nested(500), {}),
        (nested(100_000), {}),
        (b" " * (MAX_BODY_BYTES + 1), {}),
        (b"{}", {"authorization": "Bearer \xe9"}),
        (b"{}", {"authorization": "Bearer " + "x" * 10_000}),
        (b"{}", {"idempotency-key": "x" * 5_000}),
        (b"{}", {"x-junk": "y" * 30_000}),
        (b"{}", {"accept": "application/xml", "range": "bytes=0-1", "expect": "nothing"}),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/sql", CANCEL])
def test_bodies_and_headers_that_are_none(front: Front, path: str, content: bytes, headers: dict[str, str]) -> None:
    given_ = {"content-type": "application/json", **headers}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given_.items()]
    answer = front.http.post(path, content=content, headers=raw)
    if path == CANCEL and answer.status_code == 202:
        return  # a command needs no body
    front.refused(answer, away=path in AWAY)


@pytest.mark.parametrize("where", TRAVERSALS)
@pytest.mark.parametrize(
    "path", ["/v1/jobs/{}", "/v1/datasets/{}/versions", "/v1/results?job={}", "/v1/results?dataset={}", "/{}"]
)
def test_a_name_is_never_a_path(front: Front, path: str, where: str) -> None:
    """P6: the token lies in the home folder, beside the results."""
    for name in (where, quote(where, safe="")):
        answer = front.http.get(path.format(name.replace("\0", "%00")))
        front.refused(answer)
        assert front.api.token not in answer.text


HEAD = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
STREAMS = {
    "a chunk of no size": HEAD + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n",
    "a chunk without an end": HEAD + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{{}}",
    "a chunk of a negative size": HEAD + "Transfer-Encoding: chunked\r\n\r\n-5\r\n{{}}\r\n",
    "two lengths": HEAD + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}",
    "a length and chunks": HEAD + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length that is none": HEAD + "Content-Length: -1\r\n\r\n{{}}",
    "a length beyond all": HEAD + "Content-Length: 999999999999999999999\r\n\r\n{{}}",
    "a body that never comes": HEAD + "Content-Length: 1000\r\n\r\n{{",
    "an upload that breaks off": HEAD.replace("jobs", "inputs?format=csv&name=x", 1)
    + "Content-Length: 1000\r\n\r\nid,text\n",
    "no request": "\x16\x03\x01\x02\x00\x01",
    "a header without a colon": HEAD + "nothing\r\n\r\n",
    "a header that never ends": HEAD + "x: " + "y" * 200_000,
    "a line that never ends": "GET /" + "a" * 200_000,
    "another protocol": "GET / HTTP/9.9\r\n\r\n",
    "a method that is none": "FROB /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("text", STREAMS.values(), ids=STREAMS.keys())
def test_a_connection_that_speaks_no_http_harms_nobody_else(front: Front, text: str) -> None:
    """The connection may be cut or answered; the next one is served, while the bad one is still open too."""
    before = stored(front)
    with socket.create_connection(("127.0.0.1", front.api.port), timeout=10) as line:
        line.sendall(text.format(token=front.api.token).encode("latin-1"))
        assert front.http.get("/health").json() == {"ok": True}
        said = ended(line)
    assert not said or int(said.split()[1]) in range(400, 500), said
    while stored(front) != before:  # a thread still clears an upload away
        time.sleep(0.01)
    assert front.http.get("/v1/jobs").status_code == 200


def ended(line: socket.socket) -> bytes:
    """What was said before the line was cut, by us or by the other side."""
    try:
        line.shutdown(socket.SHUT_WR)
        return line.recv(65_536)
    except OSError:
        return b""


def stored(front: Front) -> set[str]:
    return {path.name for path in (front.api.home / "blobs").rglob("*") if path.is_file()}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
