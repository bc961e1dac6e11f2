"""The command itself: verbs, errors and exit codes, against a real api."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.api_server import ServedApi
from kit.ledger_events import COUNTS, sealed, totals
from nightmill.cli import main as cli
from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.wire.messages import DatasetRow, DatasetVersion, JobSubmitted, PublicationRow

YAML = """\
name: label
input: {id: id, fields: [text]}
prompt: "Label {{ text }}"
output: {type: object}
model: {pools: [sim], max_output_tokens: 10}
"""
JOB = "default.label.20260101-000000-aa"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ServedApi]:
    with ServedApi(tmp_path / "home") as served:
        yield served


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "label"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(YAML)
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "text": "one"}\n')
    return tmp_path


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self._capsys, self._home = capsys, home

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error; --home is added."""
        code = cli.run([*arguments, "--home", str(self._home)])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    return Shell(capsys, tmp_path / "home")


def publication(job: str = JOB, state: BatchState = BatchState.PUBLISHED, **fields: Any) -> PublicationRow:
    batch = ids.batch_id(job)
    seal = sealed(job_id=job, batch_id=batch, dataset_id="default.label", planned=1, refused_rows=0)
    base: dict[str, Any] = {
        "batch_id": batch,
        "job_id": job,
        "dataset_id": "default.label",
        "generation": 1,
        "state": state,
        "sealed": seal,
        "counts": COUNTS,
        "totals": totals(attempts=1, cost_nano_usd=1_500, unknown_attempts=1),
        "approved": False,
        "commands": (),
        "opened_at_ms": 1_000,
        "updated_at_ms": 2_000,
    }
    return PublicationRow(**{**base, **fields})


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


class TestRun:
    def test_detached(self, shell: Shell, api: ServedApi, files: Path) -> None:
        code, out, _ = shell(
            "run", str(files / "label"), "--input", str(files / "rows.jsonl"), "--detach", "--json", "--limit", "5",
            "--deadline", "6h", "--budget-usd", "0.25",
        )  # fmt: skip
        assert code == 0
        (job,) = api.sent(JobSubmitted)
        assert json.loads(out)["job_id"] == job.job_id
        assert (job.input.limit, job.budget_nano_usd) == (5, 250_000_000)
        assert job.input.name == str(files / "rows.jsonl")

    def test_status_json_has_stable_keys(self, shell: Shell, api: ServedApi) -> None:
        api.put(publication())
        code, out, _ = shell("status", JOB, "--json")
        assert code == 0
        assert json.loads(out).keys() == {
            "job_id", "dataset_id", "tenant", "pipeline", "state", "reason", "generation", "input_name", "read_rows",
            "planned", "refused_rows", "settled", "counts", "spent", "expected_cost_nano_usd", "worst_cost_nano_usd",
            "budget_nano_usd", "budget_left_nano_usd", "gold", "version", "location", "priority", "tags",
            "submitted_at_ms", "deadline_at_ms", "ended_at_ms", "updated_at_ms", "waiting", "ledger_behind",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("state", "code"),
        [
            (BatchState.PUBLISHED, 0),
            (BatchState.PARTIAL_FAILED, 0),
            (BatchState.REFUSED, 2),
            (BatchState.HELD, 3),
            (BatchState.CANCELLED, 4),
        ],
    )
    def test_the_exit_code_says_how_it_ended(self, shell: Shell, api: ServedApi, state: BatchState, code: int) -> None:
        """E11"""
        api.put(publication(state=state, reason="the reason"))
        exit_code, out, err = shell("status", JOB, "--watch")
        assert (exit_code, "the reason" in out) == (code, True)
        assert f"{state.value}  0/1 items" in err
        assert shell("status", JOB)[0] == 0

    def test_all_jobs(self, shell: Shell, api: ServedApi) -> None:
        assert "nightmill run licence-audit" in shell("status")[1]
        api.put(publication())
        code, out, _ = shell("status")
        assert code == 0
        assert out.splitlines()[1].split()[:3] == [JOB, "published", "0/1"]
        assert "0.0000015 USD + unknown (1 attempt)" in out
        api.put(publication(state=BatchState.HELD, reason="a long reason"))
        assert "a long reason" not in shell("status")[1]

    def test_the_newest_job_is_last(self, shell: Shell, api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
        """P2: for every verb; and an api that says that the ledger is away is not asked again."""
        monkeypatch.setattr("nightmill.client.connection._PAUSE_S", "nobody waits")
        code, _, err = shell("status", "last")
        assert (code, "there is no job yet" in err) == (2, True)
        api.put(publication(), publication("default.label.20250101-000000-aa"))
        assert shell("status", "last")[1].startswith(f"{JOB}: ")
        for verb in ("cancel", "resume", "approve"):
            assert f"job {JOB} is published" in shell(verb, "last")[2]
        code, _, err = shell("cost", "last")
        assert (code, "the ledger does not answer" in err) == (5, True)

    def test_commands_are_shown_as_they_can_be_typed(
        self, shell: Shell, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """P2: with the folder that was given, and the program's name as it was called."""
        api.put(publication())
        monkeypatch.setattr(sys, "argv", [".venv/bin/nightmill", "status"])
        assert f"  .venv/bin/nightmill cost {JOB} --by cause --home {api.home}\n" in shell("status", JOB)[1]
        monkeypatch.setattr(sys, "argv", [str(Path.cwd() / "bin" / "nightmill"), "status"])
        monkeypatch.setenv("NIGHTMILL_HOME", str(api.home))
        assert f"  bin/nightmill cost {JOB} --by cause\n" in shell("status", JOB)[1]

    def test_an_estimate(self, shell: Shell, api: ServedApi, files: Path) -> None:
        """P4: exit code 2 when the job would be refused, and why."""
        arguments = ("estimate", str(files / "label"), "--input", str(files / "rows.jsonl"))
        code, out, _ = shell(*arguments)
        assert code == 0
        assert "items     1" in out
        assert "realtime  sim" in out
        assert "slots, 2 s a call assumed" in out
        code, out, _ = shell(*arguments, "--budget-usd", "0.000000001")
        assert code == 2
        assert "it would be refused: budget: 0.000000001 USD is below" in out
        assert api.sent(JobSubmitted) == []


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


class TestData:
    def test_versions(self, shell: Shell, api: ServedApi) -> None:
        version = DatasetVersion(
            version=4,
            batch_id=ids.batch_id(JOB),
            generation=1,
            location="versions/4/manifest.json",
            rows=7,
            state=BatchState.PUBLISHED,
            published_at_ms=0,
        )
        api.put(DatasetRow(dataset_id="default.label", switch_seq=4, versions=(version,)))
        code, out, _ = shell("versions", "label")
        assert (code, out.splitlines()[1].split()[:4]) == (0, ["4", "current", "published", "7"])

    def test_the_ledger_is_away(self, shell: Shell, api: ServedApi) -> None:
        api.put(publication())
        code, _, err = shell("cost", JOB)
        assert (code, "ledger" in err) == (5, True)

    @pytest.mark.parametrize(("terminal", "text"), [(True, "\\x1b[2J\\x9b"), (False, "\x1b[2J\x9b")])
    def test_control_characters_in_results(
        self, shell: Shell, api: ServedApi, monkeypatch: pytest.MonkeyPatch, terminal: bool, text: str
    ) -> None:
        """P6: a file gets the values as they are, a terminal does not."""
        root = api.results_dir / "default.label"
        (root / "v").mkdir(parents=True)
        columns = [{"name": "label", "origin": "output", "source": "label", "kind": "string"}]
        files = [{"name": "data.jsonl", "kind": "data"}]
        manifest = {"location": "v/manifest.json", "columns": columns, "files": files, "format": "jsonl"}
        (root / "v" / "manifest.json").write_text(json.dumps(manifest))
        (root / "v" / "data.jsonl").write_text(json.dumps({"label": "\x1b[2J\x9b"}) + "\n")
        (root / "pointer-0000000001.json").write_text(json.dumps({"manifest": "v/manifest.json"}))
        api.put(publication(version=1, location="v/manifest.json"))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        assert shell("results", JOB, "--format", "csv") == (0, f"label\n{text}\n", "")

    def test_results_of_an_unpublished_job(self, shell: Shell, api: ServedApi) -> None:
        api.put(publication(state=BatchState.HELD))
        code, _, err = shell("results", JOB)
        assert (code, f"nightmill results {JOB} --staged" in err) == (2, True)


class TestCommands:
    def test_what_was_accepted_is_said_before_it_is_done(
        self, shell: Shell, api: ServedApi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """E11: nobody applies the command here; the state did not change, so it is not said."""
        monkeypatch.setattr("nightmill.client.job._APPLIED_S", 0.05)
        api.put(publication(state=BatchState.HELD))
        for verb in ("cancel", "resume", "approve"):
            watch = f"nightmill status {JOB} --watch --home {api.home}"
            assert shell(verb, JOB) == (0, f"accepted: {verb} of {JOB}; follow with {watch}\n", "")
            assert json.loads(shell(verb, JOB, "--json")[1])["state"] == "held"

    def test_help_describes_every_argument(self, capsys: pytest.CaptureFixture[str]) -> None:
        for verb in ("run", "estimate", "status", "explain", "results", "cost", "versions", "sql", "cancel", "logs"):
            assert cli.run([verb, "--help"]) == 0
            said = capsys.readouterr().out
            usage = next(line for line in said.splitlines() if line.startswith("Usage: "))
            assert usage.split("[OPTIONS] ")[1].isupper()
            described = said.split("Arguments:\n")[1].split("Options:")[0].replace("[required]", "")
            assert len(described.split(">", 1)[1].split()) >= 3


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
