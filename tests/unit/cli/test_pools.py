"""`nightmill pool add` and `pool list`: what becomes of pools.yaml, and that no key is shown."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from nightmill.cli import main as cli
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import load_config
from nightmill.provider_gateway.keys import signing_key

POOLS = """\
# our accounts
pools:
  # the cheap one
  mini:
    provider: openai_compatible
    base_url: http://127.0.0.1:9/v1   # a front of ours
    model: gpt-4.1-mini
    key: {env: MINI_KEY}
    limits: {slots: 4, requests_per_minute: 500}
    context_tokens: 1000000
  own:
    provider: openai_compatible
    base_url: http://127.0.0.1:9/v1
    model: nobody-knows
    limits: {slots: 2}
    context_tokens: 4096
    sensitivity: restricted

# end
"""
PRICES = 'version: "1"\nmodels:\n  gpt-4.1-mini: {input_usd_per_million: 0.4, output_usd_per_million: 1.6}\n'
ARGUMENTS = ("--provider", "openai_compatible", "--base-url", "https://llm.example/v1", "--model", "m-1",
             "--context-tokens", "32000")  # fmt: skip
SECRET = "sk-live-Wq81nZ"
SIGNING = "whsec_c2VjcmV0"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NIGHTMILL_HOME", str(tmp_path / "home"))
    for name in ("NIGHTMILL_CONFIG", "NIGHTMILL_MODEL_URL", "NIGHTMILL_EMBEDDINGS_URL", "MINI_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    shutil.copytree(resource("deploy", "config"), folder)
    (folder / "pools.yaml").write_text(POOLS)
    (folder / "prices.yaml").write_text(PRICES)
    (folder / "pools.yaml").chmod(0o640)
    return folder


class Shell:
    """Runs `nightmill pool` in this process. The secret is never among what it says."""

    def __init__(self, capsys: pytest.CaptureFixture[str], config: Path) -> None:
        self._capsys, self._config = capsys, config

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = cli.run(["pool", *arguments, "--config", str(self._config)])
        said = self._capsys.readouterr()
        assert SECRET not in said.out + said.err
        assert SIGNING not in said.out + said.err
        assert "Traceback" not in said.err
        return code, said.out, said.err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], config: Path) -> Shell:
    return Shell(capsys, config)


class TestAdd:
    def test_comments_order_and_mode_of_the_file_stay(self, shell: Shell, config: Path) -> None:
        code, out, _ = shell("add", "big", *ARGUMENTS, "--key-env", "BIG_KEY", "--requests-per-minute", "90")
        assert code == 0
        path = config / "pools.yaml"
        assert path.read_text() == POOLS.replace(
            "    sensitivity: restricted\n",
            "    sensitivity: restricted\n"
            "  big:\n"
            "    provider: openai_compatible\n"
            "    base_url: https://llm.example/v1\n"
            "    model: m-1\n"
            "    key: {env: BIG_KEY}\n"
            "    limits: {slots: 8, requests_per_minute: 90}\n"
            "    context_tokens: 32000\n"
            "    sensitivity: internal\n",
        )
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert sorted(each.name for each in config.iterdir()) == sorted(os.listdir(resource("deploy", "config")))
        assert "m-1 has no price" in out
        assert f"nightmill pool check big --config {config}" in out

    def test_everything_that_a_pool_can_say(self, shell: Shell, config: Path, tmp_path: Path) -> None:
        key = tmp_path / "a key"
        key.write_text(SECRET + "\n")
        key.chmod(0o600)
        code, out, _ = shell(
            "add", "all", "--provider", "openai", "--base-url", "https://api.openai.com/v1", "--model", "gpt-4.1-mini",
            "--context-tokens", "1000000", "--key-file", str(key), "--slots", "16", "--input-tokens-per-minute", "200",
            "--output-tokens-per-minute", "100", "--tokenizer", "o200k_base", "--token-factor", "1.1", "--sensitivity",
            "public", "--call-deadline", "90s", "--no-structured-output", "--api", "responses", "--refuses",
            "temperature", "--json",
        )  # fmt: skip
        said = json.loads(out)
        assert (code, said["price_known"], said["file"]) == (0, True, str(config / "pools.yaml"))
        pool = load_config(config).pools["all"]
        assert (pool.key and pool.key.file, pool.call_deadline, pool.api) == (str(key), 90, "responses")
        assert (pool.limits.slots, pool.limits.output_tokens_per_minute, pool.token_factor) == (16, 100, 1.1)
        assert (pool.structured_output, pool.refuses, pool.sensitivity.value) == (False, ("temperature",), "public")
        assert SECRET not in (config / "pools.yaml").read_text()

    def test_two_of_them(self, shell: Shell, config: Path) -> None:
        assert shell("add", "one", *ARGUMENTS)[0] == shell("add", "two", *ARGUMENTS)[0] == 0
        assert list(load_config(config).pools) == ["mini", "own", "one", "two"]

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("mini", *ARGUMENTS), ["pools.yaml: pool mini is there already"]),
            (("no good", *ARGUMENTS), ["NAME = 'no good'"]),
            (("x", *ARGUMENTS, "--provider", "opnai"), ["--provider = 'opnai'", "use one of: "]),
            (("x", *ARGUMENTS, "--base-url", "llm.example"), ["--base-url = 'llm.example'", "https://api.openai.com"]),
            (("x", *ARGUMENTS, "--base-url", "https://[::1"), ["--base-url = 'https://[::1' is no address"]),
            (("x", *ARGUMENTS, "--base-url", "https://e/v1/chat/completions"), ["leave out /chat/completions"]),
            (("x", *ARGUMENTS, "--base-url", f"https://u:{SECRET}@e/v1"), ["--base-url holds a login", "--key-file"]),
            (("x", *ARGUMENTS, "--base-url", f"https://e/v1?key={SECRET}"), ["--base-url holds"]),
            (("x", *ARGUMENTS, "--slots", "0"), ["--slots = 0", "greater than 0"]),
            (("x", *ARGUMENTS, "--context-tokens", "-1"), ["--context-tokens = -1"]),
            (("x", *ARGUMENTS, "--requests-per-minute", "0"), ["--requests-per-minute = 0"]),
            (("x", *ARGUMENTS, "--sensitivity", "secret"), ["--sensitivity = 'secret'", "restricted"]),
            (("x", *ARGUMENTS, "--call-deadline", "soon"), ["--call-deadline = 'soon'", "write 90s"]),
            (("x", *ARGUMENTS, "--tokenizer", "gpt2"), ["--tokenizer = 'gpt2'", "o200k_base"]),
            (("x", *ARGUMENTS, "--api", "responses"), ["api is a setting of provider openai"]),
            (("x", *ARGUMENTS, "--model", " "), ["--model = ' '"]),
            (("x", *ARGUMENTS, "--key-env", "A", "--key-file", "b"), ["both given", "leave one out"]),
            (("x", *ARGUMENTS, "--key-env", SECRET), ["--key-env is no name of a variable (not shown"]),
            (("x", *ARGUMENTS, "--key-file", SECRET), ["--key-file (not shown", "chmod 600"]),
            (("x", *ARGUMENTS, "--key-file", "/nowhere/key"), ["--key-file /nowhere/key: No such file"]),
            (("x", *ARGUMENTS, "--key-file", "/"), ["--key-file /: is no file"]),
            (("x", *ARGUMENTS, "--key", SECRET), ["--key"]),
            (("x", *ARGUMENTS, "--webhook-secret-env", SIGNING), ["--webhook-secret-env is no name", "(not shown"]),
            (("x", *ARGUMENTS, "--webhook-secret-file", SIGNING), ["--webhook-secret-file (not shown", "chmod 600"]),
            (
                ("x", *ARGUMENTS, *("--webhook-secret-env", "HOOK") * 2),
                ["HOOK is given twice as a webhook secret", "leave one out"],
            ),
        ],
    )
    def test_refused(self, shell: Shell, config: Path, arguments: tuple[str, ...], says: list[str]) -> None:
        """P6: exit code 2, field, value and remedy; nothing is written."""
        code, out, err = shell("add", *arguments)
        assert (code, out) == (2, "")
        assert all(each in err for each in says), err
        assert (config / "pools.yaml").read_text() == POOLS

    def test_a_key_file_that_others_can_read(self, shell: Shell, tmp_path: Path) -> None:
        """P6: the remedy can be typed as it stands."""
        key = tmp_path / "my key"
        key.write_text(SECRET)
        key.chmod(0o644)
        code, _, err = shell("add", "x", *ARGUMENTS, "--key-file", str(key))
        assert (code, f"can be read by others (mode 644)\n  → chmod 600 '{key}'" in err) == (2, True)
        key.chmod(0o600)
        key.write_text(f"{SECRET}\nmore")
        assert "one key on one line" in shell("add", "x", *ARGUMENTS, "--key-file", str(key))[2]

    def test_webhook_secrets(self, shell: Shell, config: Path, tmp_path: Path) -> None:
        """E6, P6: as many as are in force, by variable and by file; none of them is written down."""
        files = [tmp_path / "old", tmp_path / "new"]
        for file in files:
            file.write_text(SIGNING + "\n")
            file.chmod(0o600)
        by_file = [word for file in files for word in ("--webhook-secret-file", str(file))]
        code, out, _ = shell("add", "x", *ARGUMENTS, *by_file, "--webhook-secret-env", "HOOK", "--json")
        assert code == 0
        wanted = [{"env": "HOOK"}, *({"file": str(file)} for file in files)]
        assert json.loads(out)["fields"]["webhook_secrets"] == wanted
        sources = load_config(config).pools["x"].webhook_secrets
        assert [signing_key(source, {"HOOK": SIGNING}) for source in sources] == [b"secret"] * 3
        assert SIGNING not in (config / "pools.yaml").read_text()

    @pytest.mark.parametrize(
        ("mode", "text", "says"),
        [
            (0o644, SIGNING, "can be read by others (mode 644)"),
            (0o600, "whsec_no base64", "one key on one line"),
            (0o600, "whsec_?!", "holds no webhook secret: it is not whsec_ and base64"),
            (0o600, "whsec_", "holds no webhook secret"),
        ],
    )
    def test_a_webhook_secret_that_can_not_be_used(
        self, shell: Shell, config: Path, tmp_path: Path, mode: int, text: str, says: str
    ) -> None:
        file = tmp_path / "secret"
        file.write_text(text)
        file.chmod(mode)
        code, _, err = shell("add", "x", *ARGUMENTS, "--webhook-secret-file", str(file))
        assert (code, says in err) == (2, True), err
        assert (config / "pools.yaml").read_text() == POOLS

    def test_a_key_file_of_somebody_else(self, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        key = tmp_path / "key"
        key.write_text(SECRET)
        key.chmod(0o600)
        monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
        code, _, err = shell("add", "x", *ARGUMENTS, "--key-file", str(key))
        assert (code, "belongs to another user" in err) == (2, True)

    def test_what_ships_is_not_changed(self, capsys: pytest.CaptureFixture[str]) -> None:
        before = resource("deploy", "config", "pools.yaml").read_bytes()
        assert cli.run(["pool", "add", "x", *ARGUMENTS]) == 2
        assert "cp -r" in capsys.readouterr().err
        assert resource("deploy", "config", "pools.yaml").read_bytes() == before

    def test_a_file_in_which_something_is_wrong(self, shell: Shell, config: Path) -> None:
        (config / "pools.yaml").write_text(POOLS.replace("slots: 4", "slotz: 4"))
        code, _, err = shell("add", "x", *ARGUMENTS)
        assert (code, "unknown field pools.mini.limits.slotz" in err) == (2, True)
        shutil.rmtree(config)
        code, _, err = shell("add", "x", *ARGUMENTS)
        assert (code, "No such file" in err) == (2, True)

    def test_a_link_stays_a_link(self, shell: Shell, config: Path, tmp_path: Path) -> None:
        real = tmp_path / "real.yaml"
        (config / "pools.yaml").rename(real)
        (config / "pools.yaml").symlink_to(real)
        assert shell("add", "x", *ARGUMENTS)[0] == 0
        assert (config / "pools.yaml").is_symlink()
        assert "  x:\n" in real.read_text()


class TestList:
    def test_a_line_for_each(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINI_KEY", SECRET)
        code, out, _ = shell("list")
        head, mini, own = (" ".join(line.split()) for line in out.splitlines())
        assert (code, head) == (0, "POOL PROVIDER MODEL LIMITS CONTEXT SENSITIVITY KEY PRICE")
        assert mini == (
            "mini openai_compatible gpt-4.1-mini 4 slots, 500 requests/min 1000000 internal variable MINI_KEY known"
        )
        assert own == "own openai_compatible nobody-knows 2 slots 4096 restricted none needed none"

    def test_json(self, shell: Shell, config: Path) -> None:
        code, out, _ = shell("list", "--json")
        said = json.loads(out)
        assert (code, said["config"]) == (0, str(config))
        mini, own = said["pools"]
        assert mini.keys() == {
            "name", "provider", "model", "limits", "context_tokens", "sensitivity", "key", "price_known",
        }  # fmt: skip
        problem = "environment variable MINI_KEY is not set"
        assert mini["key"] == {"env": "MINI_KEY", "file": None, "present": False, "problem": problem}
        assert (own["key"], own["price_known"], own["limits"]["slots"]) == (None, False, 2)

    def test_what_a_key_lacks(self, shell: Shell, config: Path, tmp_path: Path) -> None:
        assert (
            "mini: environment variable MINI_KEY is not set → export MINI_KEY before nightmill up" in shell("list")[1]
        )
        key = tmp_path / "key"
        key.write_text(SECRET)
        key.chmod(0o644)
        (config / "pools.yaml").write_text(POOLS.replace("{env: MINI_KEY}", f"{{file: {key}}}"))
        assert f"(mode 644) → chmod 600 {key}" in shell("list")[1]

    def test_a_key_that_stands_in_the_file(self, shell: Shell, config: Path) -> None:
        """P6: whoever wrote the key where its variable's name belongs does not find it on the screen."""
        (config / "pools.yaml").write_text(POOLS.replace("MINI_KEY", SECRET))
        for arguments in (("list",), ("list", "--json"), ("check", "mini")):
            assert "may be the key itself" in shell(*arguments)[1]
