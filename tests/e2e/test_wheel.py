"""The wheel, built and installed elsewhere: the command and every file that the code reads come with it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_RESOLVES = """
import json
from pathlib import Path
import nightmill
from nightmill.client.pipelines import load_pipeline
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import load_config
from nightmill.kernel.wire.codec import codecs
from nightmill.local.assets import kafka_folder
from nightmill.local.docker import compose_file
from nightmill.planner.tokens import count_tokens

print(json.dumps({
    "package": nightmill.__file__,
    "messages": len(codecs()),
    "channels": resource("contracts", "channels.yaml").is_file(),
    "pools": sorted(load_config(resource("deploy", "config")).pools),
    "pieces": count_tokens(["word"], "bert_uncased")[0],
    "sql": sorted(path.name for path in resource("deploy", "clickhouse").glob("*.sql")),
    "pom": (kafka_folder() / "pom.xml").is_file(),
    "compose": compose_file().is_file(),
    "compose_mount": (compose_file().parent / "deploy/kafka/server.properties").is_file(),
    "pipeline": load_pipeline("licence-audit").name,
    "queries": sorted(path.name for path in Path(nightmill.__file__).parent.glob("ledger/*.sql")),
}))
"""


def run(command: Sequence[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command in an environment that knows nothing of this checkout."""
    hidden = ("PYTHON", "NIGHTMILL_", "VIRTUAL_ENV", "PYTEST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def done(command: Sequence[str | Path], cwd: Path) -> str:
    result = run(command, cwd)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fresh environment `venv` that holds the wheel and what it depends on, without extras."""
    folder = tmp_path_factory.mktemp("elsewhere")
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    assert uv is not None, "uv is part of the extra `dev`: run `make setup`"
    done([uv, "build", "--quiet", "--wheel", "--out-dir", folder / "dist", ROOT], folder)
    (wheel,) = (folder / "dist").glob("nightmill-*.whl")
    done([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], folder)
    done([uv, "pip", "install", "--quiet", "--python", folder / "venv/bin/python", wheel], folder)
    return folder


def test_files_that_code_reads_come_with_the_wheel(elsewhere: Path) -> None:
    found = json.loads(done([elsewhere / "venv/bin/python", "-c", _RESOLVES], elsewhere))
    assert found.pop("package").startswith(str(elsewhere / "venv"))
    pools = ["local", "local-embeddings", "openai-embeddings", "openai-mini", "simulator", "simulator-embeddings"]
    assert found.pop("pools") == pools
    assert found.pop("pieces") == 3
    assert found.pop("messages") == len({path.name.split(".")[0] for path in (ROOT / "schemas").glob("*.avsc")})
    assert found.pop("sql") == sorted(path.name for path in (ROOT / "deploy/clickhouse").glob("*.sql"))
    assert found == {
        "channels": True,
        "pom": True,
        "compose": True,
        "compose_mount": True,
        "pipeline": "licence-audit",
        "queries": ["queries.sql"],
    }


def test_the_command_shows_its_verbs(elsewhere: Path) -> None:
    """P2, O9."""
    text = done([elsewhere / "venv/bin/nightmill", "--help"], elsewhere)
    verbs = "up down ps logs doctor service run estimate status explain results cost cancel resume approve versions sql"
    assert [verb for verb in (*verbs.split(), "provider-simulator") if f" {verb} " not in text] == []


def test_a_wrong_word_is_bad_input(elsewhere: Path) -> None:
    result = run([elsewhere / "venv/bin/nightmill", "frobnicate"], elsewhere)
    assert result.returncode == 2
    assert "frobnicate" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_doctor_says_what_is_missing_here(elsewhere: Path) -> None:
    """Without the extra `embedded` this machine can not start the ledger: exit code 2, and what to install."""
    home = elsewhere / "home"
    result = run([elsewhere / "venv/bin/nightmill", "doctor", "--json", "--home", home], elsewhere)
    told = json.loads(result.stdout)
    assert set(told) == {"ok", "checks"}
    assert all(set(check) == {"name", "ok", "detail", "remedy", "fatal"} for check in told["checks"])
    fatal = [check for check in told["checks"] if check["fatal"] and not check["ok"]]
    assert result.returncode == 2
    assert told["ok"] is False
    assert any("nightmill[embedded]" in check["remedy"] for check in fatal)
    assert all(check["remedy"] for check in told["checks"] if not check["ok"])


def test_without_a_running_system_its_verbs_say_so(elsewhere: Path) -> None:
    home = elsewhere / "home"
    result = run([elsewhere / "venv/bin/nightmill", "status", "--home", home], elsewhere)
    assert result.returncode == 5
    assert "Traceback" not in result.stderr
