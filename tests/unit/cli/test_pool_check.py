"""`nightmill pool check` over real HTTP: a simulated provider, and servers that answer as no provider should."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.simulator import Simulator
from nightmill.cli import main as cli
from nightmill.local.pools.call import MAX_BODY_BYTES
from unit.provider_gateway.raw_provider import RawProvider, http_response

SECRET = "sk-live-Wq81nZ"
PRICES = """\
version: "1"
models:
  m-07: {input_usd_per_million: 2, output_usd_per_million: 10}
"""
MODELS = [f"m-{number:02d}" for number in range(12)]
STRICT = {"dialect": "openai", "models": MODELS}
RATES = {"requests_per_min": 500, "tokens_per_min": 30000, "input_tokens_per_min": 20000, "output_tokens_per_min": 8000}
OK_LIST = http_response(json.dumps({"data": [{"id": "m-07", "max_model_len": 4096}]}).encode())


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(STRICT) as started:
        yield started


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NIGHTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("THE_KEY", SECRET)
    for name in ("NIGHTMILL_CONFIG", "NIGHTMILL_MODEL_URL", "NIGHTMILL_EMBEDDINGS_URL"):
        monkeypatch.delenv(name, raising=False)


class Checker:
    """Writes a config with one pool and runs `nightmill pool check` on it. The secret is never among what it says."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys, self.folder = capsys, folder

    def text(self, base_url: str, *options: str, **fields: Any) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        pool = {
            "provider": "openai_compatible",
            "base_url": base_url,
            "model": "m-07",
            "key": {"env": "THE_KEY"},
            "limits": {"slots": 4},
            "context_tokens": 4096,
            "call_deadline": "20s",
        }
        self.folder.mkdir(exist_ok=True)
        (self.folder / "pools.yaml").write_text(json.dumps({"pools": {"p": {**pool, **fields}}}))
        (self.folder / "prices.yaml").write_text(PRICES)
        (self.folder / "retry.yaml").write_text("classes: {}\n")
        (self.folder / "tenants.yaml").write_text("tenants: {}\n")
        code = cli.run(["pool", "check", "p", "--config", str(self.folder), *options])
        said = self._capsys.readouterr()
        assert SECRET not in said.out + said.err
        return code, said.out, said.err

    def __call__(self, base_url: str, *options: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Exit code, and the JSON with each finding by what it is about."""
        code, out, _ = self.text(base_url, "--json", *options, **fields)
        said = json.loads(out)
        return code, {**{each["about"]: each for each in said["findings"]}, **said}


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Checker:
    return Checker(capsys, tmp_path / "config")


class TestAgainstTheSimulator:
    def test_a_pool_that_works_costs_nothing_to_check(self, check: Checker, simulator: Simulator) -> None:
        simulator.set_scenario(STRICT)
        before = simulator.ledger()["billed"]["calls"]
        code, out, err = check.text(simulator.base_url)
        assert (code, err) == (0, "")
        assert "ok      key: found: variable THE_KEY\n" in out
        assert "ok      model: m-07 is offered, and the key not refused\n" in out
        assert "note    limits: the provider tells none → --call" in out
        assert "ok      price: known" in out
        assert out.endswith("cost: nothing (0 calls of the model)\n")
        assert simulator.ledger()["billed"]["calls"] == before

    @pytest.mark.parametrize(
        ("fields", "told"),
        [
            ({}, {"requests_per_minute": 500, "input_tokens_per_minute": 30000}),
            ({"provider": "openai"}, {"requests_per_minute": 500, "input_tokens_per_minute": 30000}),
            (
                {"provider": "openai", "api": "responses"},
                {"requests_per_minute": 500, "input_tokens_per_minute": 30000},
            ),
            (
                {"provider": "anthropic"},
                {"requests_per_minute": 500, "input_tokens_per_minute": 20000, "output_tokens_per_minute": 8000},
            ),
        ],
    )
    def test_limits_are_read_from_the_headers(
        self, check: Checker, simulator: Simulator, fields: dict[str, Any], told: dict[str, int]
    ) -> None:
        """E7: one call, its cost told before and after, limits compared and suggested."""
        simulator.set_scenario({**STRICT, "rate_limit": RATES})
        simulator.reset()
        limits = {"slots": 4, "requests_per_minute": 5000, "output_tokens_per_minute": 8000}
        code, out, err = check.text(simulator.base_url, "--call", limits=limits, **fields)
        assert code == 0
        assert "asking the model for its shortest answer, at about 0.0" in err
        assert "requests_per_minute: 5,000, the provider allows 500 → set requests_per_minute: 500\n" in out
        simulator.reset()
        code, said = check(simulator.base_url, "--call", limits=limits, **fields)
        assert {each["field"]: each["told"] for each in said["limits"]} == told
        suggested = {each["field"]: each["suggested"] for each in said["limits"]}
        assert suggested == {**told, **({"output_tokens_per_minute": None} if len(told) == 3 else {})}
        billed = simulator.ledger()["billed"]
        assert (code, billed["calls"], said["model_calls"]) == (0, 1, 1)
        tokens = billed["prompt_tokens"], billed["completion_tokens"]
        assert said["cost_nano_usd"] == 2_000 * tokens[0] + 10_000 * tokens[1]

    @pytest.mark.parametrize("provider", ["openai_compatible", "openai", "anthropic"])
    def test_a_key_that_is_refused(
        self, check: Checker, simulator: Simulator, monkeypatch: pytest.MonkeyPatch, provider: str
    ) -> None:
        """E8, P6: exit code 2, and the variable's name instead of the key."""
        simulator.set_scenario(STRICT)
        monkeypatch.setenv("THE_KEY", "sk-invalid-123456")
        code, out, err = check.text(simulator.base_url, provider=provider)
        assert code == 2
        assert "problem key: the provider refuses the key from variable THE_KEY (status 401" in out
        assert "sk-invalid" not in out + err

    def test_a_key_that_is_not_there(
        self, check: Checker, simulator: Simulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        simulator.reset()
        monkeypatch.delenv("THE_KEY")
        code, out, _ = check.text(simulator.base_url)
        assert (code, "environment variable THE_KEY is not set → export THE_KEY" in out) == (2, True)
        code, out, _ = check.text(simulator.base_url, key={"file": str(tmp_path / "none")})
        assert (code, f"key file {tmp_path / 'none'} can not be read" in out) == (2, True)
        assert check(simulator.base_url, key=None)[1]["key"]["detail"].startswith("the provider wants a key")

    def test_a_model_that_is_not_served(self, check: Checker, simulator: Simulator) -> None:
        """What the provider offers is listed: at most ten, those like it first."""
        simulator.set_scenario(STRICT)
        code, out, _ = check.text(simulator.base_url, model="m-071")
        assert code == 2
        assert "problem model: the provider does not serve m-071" in out
        (offered,) = (line for line in out.splitlines() if line.startswith("offered: "))
        assert offered.startswith("offered: m-07, ")
        assert offered.endswith(", and 2 others")
        assert len(check(simulator.base_url, model="m-071")[1]["offered"]) == 10

    def test_a_model_that_is_served_though_not_listed(self, check: Checker, simulator: Simulator) -> None:
        simulator.set_scenario({"dialect": "openai"})
        code, said = check(simulator.base_url, model="latest")
        assert (code, said["call"]["detail"]) == (0, "latest answers, though it is not in the list")
        assert (said["model_calls"], said["cost_nano_usd"], said["price"]["weight"]) == (1, None, "note")

    @pytest.mark.parametrize(
        ("fault", "about", "code"),
        [
            ({"kind": "rate_limited", "retry_after_s": 7}, "rate", 4),
            ({"kind": "quota_exhausted"}, "account", 4),
            ({"kind": "overloaded"}, "provider", 4),
            ({"kind": "server_error"}, "provider", 4),
            ({"kind": "reset_before_billing"}, "connection", 4),
        ],
    )
    def test_a_provider_that_fails(
        self, check: Checker, simulator: Simulator, fault: dict[str, Any], about: str, code: int
    ) -> None:
        """E8: exit code 4 for what no setting mends."""
        simulator.set_scenario({**STRICT, "faults": [{**fault, "on": ["chat"]}]})
        found, said = check(simulator.base_url, "--call")
        assert (found, said["ok"], said[about]["weight"], said[about]["remedy"] != "") == (code, False, "away", True)
        assert said["model"]["weight"] == "ok"

    def test_tls_where_there_is_none(self, check: Checker, simulator: Simulator) -> None:
        code, said = check(simulator.base_url.replace("http:", "https:"))
        assert (code, "is it http instead of https?" in said["connection"]["detail"]) == (4, True)


class TestAgainstOthers:
    def test_the_context_that_a_server_tells(self, check: Checker) -> None:
        with RawProvider([OK_LIST]) as server:
            code, said = check(server.base_url, context_tokens=8192)
        assert (code, said["context"]["remedy"]) == (0, "set context_tokens: 4096")
        assert f"authorization: Bearer {SECRET}".encode() in server.requests[0]

    @pytest.mark.parametrize(
        ("response", "about", "says"),
        [
            (http_response(b"<html>hello"), "address", "a web page"),
            (http_response(b"", "location: http://elsewhere.invalid/v1/models", status="302 Found"), "address",
             "http://elsewhere.invalid/v1/models, which is not followed"),
            (http_response(b'{"detail": "Not Found"}', status="404 Not Found"), "address", "has no such call"),
            (http_response(b'{"greeting": "hello"}'), "address", "no answer of a model"),
            (http_response(b"[]", length=99), "connection", "broke before the answer was whole"),
            (b"SSH-2.0-OpenSSH_9.9\r\n", "connection", "does not speak HTTP"),
            (http_response(b"x" * (MAX_BODY_BYTES + 1)), "connection", "over 4 MiB"),
        ],
        ids=["page", "redirect", "missing", "json", "cut", "ssh", "long"],
    )  # fmt: skip
    def test_what_is_no_provider(self, check: Checker, response: bytes, about: str, says: str) -> None:
        """E8: no redirect is followed, no body is read without end."""
        with RawProvider([response]) as server:
            code, said = check(server.base_url)
        assert (code, says in said[about]["detail"]) == (4 if about == "connection" else 2, True), said[about]

    def test_a_slow_drip_ends_at_the_deadline(self, check: Checker) -> None:
        """E8: bytes that keep coming are no progress."""
        with RawProvider([OK_LIST[:20], *[b"x"] * 1000], every_s=0.02) as server:
            code, said = check(server.base_url, call_deadline="0.3s")
        assert (code, "no whole answer in time (0.3 s)" in said["connection"]["detail"]) == (4, True)

    def test_a_model_that_makes_vectors(self, check: Checker, simulator: Simulator) -> None:
        """E7: it is asked for one, and what comes says how many numbers a pipeline has to declare."""
        code, out, _ = check.text(simulator.base_url, "--call", embeddings={})
        assert (code, "m-07 makes vectors of 1536 numbers" in out) == (0, True)
        answers = http_response(json.dumps({"choices": []}).encode())
        with RawProvider([OK_LIST, answers]) as server:
            code, out, err = check.text(server.base_url, "--call", embeddings={})
        assert code != 0

    def test_nobody_listens(self, check: Checker) -> None:
        with RawProvider() as server:
            gone = server.base_url
        code, said = check(gone, "--call")
        assert (code, "the connection is refused" in said["connection"]["detail"]) == (4, True)
        assert (said["model_calls"], said["cost_nano_usd"]) == (0, 0)

    def test_a_handshake_that_never_ends(self, check: Checker) -> None:
        with RawProvider([http_response(b"{}")]) as server:
            code, said = check(server.base_url.replace("http:", "https:"), call_deadline="0.3s")
        assert (code, "no whole answer in time" in said["connection"]["detail"]) == (4, True)

    def test_a_server_that_repeats_the_key(self, check: Checker) -> None:
        """P6: not even then is it shown."""
        body = {"data": [{"id": SECRET}], "error": {"code": SECRET, "message": f"no model {SECRET}"}}
        for status in ("200 OK", "404 Not Found", "401 Unauthorized"):
            with RawProvider([http_response(json.dumps(body).encode(), f"location: /{SECRET}", status=status)]) as it:
                assert check(it.base_url, model="m-071")[0] == 2

    def test_addresses_that_can_not_be_called(self, check: Checker) -> None:
        for url in (f"https://u:{SECRET}@e/v1", "ftp://e/v1", "https://[::1", f"https://e/v1?key={SECRET}"):
            code, said = check(url)
            assert (code, said["address"]["weight"]) == (2, "mend")

    def test_the_local_model_of_an_installation_that_is_down(self, check: Checker) -> None:
        code, out, _ = check.text("local-model", key=None)
        assert (code, "the local model does not run → nightmill up --detach" in out) == (4, True)
        code, out, _ = check.text("local-model", key=None, embeddings={})
        assert (code, "the local embeddings model does not run → make setup-model, then" in out) == (4, True)

    def test_no_such_pool_and_no_such_provider(self, check: Checker, capsys: pytest.CaptureFixture[str]) -> None:
        code, said = check("http://127.0.0.1:9/v1", provider="opnai")
        assert (code, said["provider"]["remedy"].startswith("use one of: ")) == (2, True)
        assert cli.run(["pool", "check", "q", "--config", str(check.folder)]) == 2
        assert "there are: p" in capsys.readouterr().err
