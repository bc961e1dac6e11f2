"""The HTTP api against every request that its OpenAPI document allows, and what lies just beyond: schemathesis, which
reads the document, asks the served api, and holds each answer against what the document says.

It has an environment of its own (`make setup-schemathesis`), so it is a program here and no library. The ledger behind
the api is the real one, so a question gets as far as it can.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.bytes_of import LONGER
from kit import clickhouse as kit
from kit.api_server import ServedApi
from kit.ledger_events import judged, sealed
from nightmill.kernel.wire.values import replace
from unit.api.rows import dataset, plan, publication, submitted

PROGRAM = Path(sys.prefix, "schemathesis", "bin", "schemathesis")
#: of each operation, beside the some fifty that cover its schema
EXAMPLES = 10
#: without the one that wants every allowed request to be taken: some rules no schema can say, as that a pool exists
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ServedApi]:
    home = tmp_path / "home"
    home.mkdir()
    token = home / "token"
    token.touch(0o600)
    token.write_text("test-token", encoding="utf-8")  # that of the kit's ledger
    with ServedApi(home) as api, kit.ledger(home, kit.namespace(), kit.server_url()) as ledger:
        assert ledger.deliver([sealed(), judged("t1")]) == "flushed"
        api.put(submitted(), plan(), publication(), replace(dataset(1, 2), dataset_id="acme.tickets"))
        yield api


def test_the_api_is_what_its_document_says(api: ServedApi, tmp_path: Path) -> None:
    """M2, M4: paths, parameters, headers and bodies by the document and against it; the same ones each time."""
    assert PROGRAM.exists(), "make setup-schemathesis puts it there"
    outcome = subprocess.run(
        [
            *(PROGRAM, "run", f"{api.url}/openapi.json", "--header", f"Authorization: Bearer {api.token}"),
            *("--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES * LONGER), "--checks", ",".join(CHECKS)),
            *(("--generation-deterministic",) if LONGER == 1 else ("--generation-database", "none")),
            *("--continue-on-failure", "--no-color", "--warnings", "off"),
        ],
        cwd=tmp_path,  # it looks for settings and leaves what it has learnt
        env={**os.environ, "NO_PROXY": "*", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
