"""The failure table that people read is the one in the code."""

from pathlib import Path

from nightmill.kernel.domain.failures import FailureClass
from nightmill.provider_gateway.failures import ROWS, Row, Signal

PAGE = Path(__file__).resolve().parents[3] / "docs" / "providers.md"
ITEM = {
    FailureClass.TRANSIENT: "called again later",
    FailureClass.INTERNAL: "called again later",
    FailureClass.CAPACITY: "waits",
    FailureClass.ACCOUNT: "waits",
    FailureClass.BAD_INPUT: "dead letter",
    FailureClass.DOWNSTREAM: "dead letter",
    FailureClass.POLICY: "review",
    FailureClass.OUTPUT_INVALID: "one repair, then review",
}


def length(ms: int) -> str:
    if ms < 60_000:
        return f"{ms // 1000} s"
    return f"{ms // 60_000} min" if ms < 3_600_000 else f"{ms // 3_600_000} h"


def pool(row: Row) -> str:
    if row.pause is None:
        return "goes on"
    verb = "stops" if row.failure_class is FailureClass.ACCOUNT else "pauses"
    times = f", after {row.pause.failures} in a row" if row.pause.failures > 1 else ""
    return f"{verb} {length(row.pause.first_ms)} to {length(row.pause.longest_ms)}{times}"


def written(signal: Signal, row: Row) -> str:
    budget = "yes" if row.uses_retry_budget else "no"
    # nobody can mend a vector: the dispatcher asks for another
    item = "called again later" if signal is Signal.EMBEDDINGS_MISMATCHED else ITEM[row.failure_class]
    return f"| `{signal}` | {row.says} | {item} | {budget} | {row.billed} | {pool(row)} |"


def test_the_page_has_the_rows_of_the_code() -> None:
    """O1: what a person looks up is what happens."""
    wanted = [written(signal, row) for signal, row in ROWS.items()]
    signals = {f"| `{signal}` |" for signal in Signal}
    found = [line for line in PAGE.read_text("utf-8").splitlines() if " ".join(line.split(" ")[:3]) in signals]
    assert found == wanted
