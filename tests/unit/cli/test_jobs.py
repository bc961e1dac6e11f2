"""The verbs of a job, against a real api: run, status, results, orders, and the exit code of each."""

import json
import sys
from pathlib import Path

import pytest

from kit.api_server import ServedApi
from nightmill.cli import main as cli
from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.wire.messages import DatasetRow, DatasetVersion, JobSubmitted
from unit.cli.shell import Shell
from unit.cli.small_job import JOB, publication


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
