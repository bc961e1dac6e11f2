"""The command itself: what is wrong is named with its remedy, and a process ends with its code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.api_server import ServedApi
from nightmill.cli import main as cli
from nightmill.kernel.wire.messages import JobSubmitted
from unit.cli.shell import Shell
from unit.cli.small_job import JOB, YAML, publication


class TestNotRunning:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("status",),
            ("status", JOB),
            ("cancel", JOB),
            ("results", JOB),
            ("cost", JOB),
            ("versions", "label"),
            ("explain", "x"),
            ("sql", "SELECT 1"),
            ("run", "licence-audit", "--input", "distributions"),
        ],
    )
    def test_says_what_to_type(self, shell: Shell, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        """O1: exit code 5 and the command that starts it."""
        code, out, err = shell(*arguments)
        assert (code, out) == (5, "")
        assert f"not running in {tmp_path / 'home'}" in err
        assert f"nightmill up --detach --home {tmp_path / 'home'}" in err

    def test_ps(self, shell: Shell) -> None:
        code, out, _ = shell("ps", "--json")
        assert (code, json.loads(out)["running"]) == (5, False)


class TestBadInput:
    @pytest.mark.parametrize(
        ("yaml", "rows", "says"),
        [
            (YAML + "colour: red\n", None, ["pipeline.yaml, line 6", "unknown field colour"]),
            (YAML.replace("{type: object}", "{type: strng}"), None, ["output.type", "JSON Schema", "strng"]),
            (YAML.replace("{{ text }}", "{{ txet }}"), None, ["unknown variable 'txet'"]),
            (YAML.replace("[sim]", "[gpt-9]"), None, ["no pool 'gpt-9'", "add it there"]),
            (YAML.replace("[sim]", "[unpriced]"), None, ["no price", "nobody-knows"]),
            (YAML + "sensitivity: restricted\n", None, ["sensitivity", "tenants.yaml"]),
            (YAML, b"", ["rows.jsonl: is empty"]),
        ],
    )
    def test_it_names_where_what_and_the_remedy(
        self, shell: Shell, api: ServedApi, files: Path, yaml: str, rows: bytes | None, says: list[str]
    ) -> None:
        """P4, P6: exit code 2, nothing started."""
        (files / "label" / "pipeline.yaml").write_text(yaml)
        if rows is not None:
            (files / "rows.jsonl").write_bytes(rows)
        code, out, err = shell("run", str(files / "label"), "--input", str(files / "rows.jsonl"))
        assert (code, out) == (2, "")
        assert all(each in err for each in says), err
        assert api.sent(JobSubmitted) == []

    def test_missing_things(self, shell: Shell, api: ServedApi, files: Path) -> None:
        assert "no pipeline 'nothing'" in shell("run", "nothing", "--input", "x")[2]
        code, _, err = shell("run", str(files / "label"), "--input", "nothing.jsonl")
        assert (code, "nothing.jsonl: no such file" in err) == (2, True)
        assert shell("status", "default.x.20260101-000000-aa")[0] == 2
        assert shell("run", str(files / "label"))[0] == 2
        assert shell("status", "--nonsense")[0] == 2

    @pytest.mark.parametrize("arguments", [("explain", "\udcff"), ("cancel", JOB, "--reason", "a\udcff")])
    def test_bytes_that_are_no_text(self, shell: Shell, api: ServedApi, arguments: tuple[str, ...]) -> None:
        """P2: whatever the terminal's encoding, it is no defect."""
        code, _, err = shell(*arguments)
        assert (code, f"argument {len(arguments)} = " in err, "no UTF-8 text" in err) == (2, True, True)

    def test_a_wrong_token(self, shell: Shell, api: ServedApi) -> None:
        (api.home / "token").write_text("other")
        code, _, err = shell("status")
        assert (code, str(api.home / "token") in err) == (2, True)

    def test_commands_in_the_wrong_state(self, shell: Shell, api: ServedApi) -> None:
        api.put(publication())
        for verb in ("cancel", "resume", "approve"):
            code, _, err = shell(verb, JOB)
            assert (code, f"job {JOB} is published" in err) == (2, True)

    def test_a_defect_is_one_line_and_a_log(
        self, shell: Shell, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No traceback reaches a user."""
        monkeypatch.setenv("NIGHTMILL_HOME", str(tmp_path / "home"))
        monkeypatch.setattr("nightmill.cli.text.summary", lambda *_: 1 / 0)
        api.put(publication())
        code, _, err = shell("status", JOB)
        assert (code, len(err.splitlines())) == (4, 1)
        assert "ZeroDivisionError" in (tmp_path / "home" / "logs" / "cli.log").read_text()


class TestProcesses:
    def test_an_unknown_service(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.run(["service", "plannr"]) == 2
        assert "planner" in capsys.readouterr().err

    def test_a_service_with_bad_settings(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NIGHTMILL_NAMESPACE", "No Good")
        assert cli.run(["service", "api"]) == 2
        assert "NIGHTMILL_NAMESPACE" in capsys.readouterr().err

    @pytest.mark.parametrize("verb", ["up", "doctor"])
    def test_a_bad_config_folder(self, verb: str, shell: Shell, tmp_path: Path) -> None:
        """Bad settings start nothing: file, line, field and remedy are named."""
        (tmp_path / "pools.yaml").write_text("pools:\n  a:\n    providre: x\n")
        code, _, err = shell(verb, "--config", str(tmp_path))
        assert (code, "pools.yaml, line 3: unknown field pools.a.providre" in err) == (2, True)
        assert not (tmp_path / "home" / "run").exists()

    def test_an_unknown_kafka(self, shell: Shell) -> None:
        code, _, err = shell("up", "--kafka", "nonsense")
        assert code == 2
        assert err == "error: --kafka 'nonsense' is not local, docker or HOST:PORT\n  → nightmill up --help\n"

    def test_no_log(self, shell: Shell) -> None:
        code, _, err = shell("logs", "planner")
        assert (code, "no log of 'planner'" in err) == (2, True)
        assert shell("logs", "../../etc/passwd")[0] == 2

    def test_a_log(self, shell: Shell, tmp_path: Path) -> None:
        logs = tmp_path / "home" / "logs"
        logs.mkdir(parents=True)
        (logs / "provider_gateway.log").write_text("".join(f"line {n}\n" for n in range(10)))
        assert shell("logs", "provider-gateway", "-n", "2")[1] == "line 8\nline 9\n"

    def test_a_taken_port(self, capsys: pytest.CaptureFixture[str], api: ServedApi) -> None:
        assert cli.run(["provider-simulator", "--port", str(api.port)]) == 2
        assert "choose another port" in capsys.readouterr().err

    def test_it_runs_as_a_module_and_starts_light(self) -> None:
        """`up` starts services by this name; and what no verb needs is not loaded to print the help."""
        program = (
            "import sys; from nightmill.cli.main import run; code = run(['--help']);"
            "heavy = {'httpx', 'pydantic', 'pyarrow', 'fastapi', 'confluent_kafka'} & set(sys.modules);"
            "sys.exit(f'loaded {heavy}' if heavy else code)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        commands = done.stdout.split("Commands:")[1]
        assert "..." not in commands, "a summary is cut off"
        for verb in (
            "up", "down", "ps", "logs", "doctor", "service", "run", "estimate", "status", "explain", "results", "cost",
            "cancel", "resume", "approve", "versions", "sql", "provider-simulator", "pool",
        ):  # fmt: skip
            assert f"\n  {verb} " in done.stdout
        for later in ("try", "rollback", "review", "dead", "rerun"):
            assert f"\n  {later} " not in done.stdout
        command = [sys.executable, "-m", "nightmill.cli.main", "--version"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def test_a_failure_ends_the_process_whatever_would_not_be_taken_apart(self) -> None:
        """M4: what is started again must have ended. An engine that a failure left open stood there for ever."""
        program = (
            "import atexit, threading, nightmill.cli.main as cli;"
            "atexit.register(threading.Event().wait);"
            "cli.main(['service', 'nobody'])"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "no service 'nobody'" in done.stderr
