"""Words and figures for people (pure). Money is integer nano-USD; an unknown cost is said to be unknown, never 0."""

from collections.abc import Sequence
from datetime import UTC, datetime

from nightmill.api.models import JobStatus, Spent, Waiting
from nightmill.client.progress import STOPPED, Progress
from nightmill.kernel.domain.lifecycle import BatchState

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_NANO = 1_000_000_000
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_SOON_MS = 500
_PUBLISHED = (BatchState.PUBLISHED, BatchState.PARTIAL_FAILED)

EXIT_CODES = {
    BatchState.PUBLISHED: 0,
    BatchState.PARTIAL_FAILED: 0,  # readers see it, as the pipeline or a person allowed
    BatchState.REFUSED: 2,
    BatchState.HELD: 3,
    BatchState.CANCELLED: 4,
}


def printable(text: str) -> str:
    """Text as it may reach a terminal: control characters but newline and tab are written out, as \\x1b."""
    return text.translate(_CONTROLS)


def usd(nano: int) -> str:
    """An amount, exact: at least two decimals, no trailing zeros after them."""
    sign = "-" if nano < 0 else ""
    whole, rest = divmod(abs(nano), _NANO)
    digits = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole:,}.{digits} USD"


def cost(known_nano: int | None, unknown: int, reserved_nano: int | None = None) -> str:
    """A cost of which a part may be unknown; `reserved_nano` is what that part is at the most, where it is known."""
    at_most = f", at most {usd(reserved_nano)}" if reserved_nano else ""
    attempts = f"unknown ({counted(unknown, 'attempt', 'attempts')}{at_most})"
    if not unknown:
        return "unknown" if known_nano is None else usd(known_nano)
    return f"{usd(known_nano)} + {attempts}" if known_nano else attempts


def counted(count: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def calls(count: int, retries: int, repairs: int) -> str:
    """Calls, and what of them was not the first of an item."""
    return f"{count:,}, of these {counted(retries, 'retry', 'retries')}, {counted(repairs, 'repair', 'repairs')}"


def spent_cost(spent: Spent) -> str:
    return cost(spent.cost_nano_usd, spent.unknown_attempts, spent.reserved_nano_usd)


def duration(seconds: float) -> str:
    """A time span in its two greatest units."""
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{max(whole, 0)} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def moment(at_ms: int) -> str:
    """A time, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns; numbers to the right. Cells and names are made printable."""
    head = [printable(name) for name in head]
    cells = [["" if cell is None else printable(str(cell)).replace("\n", " ") for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[index]) for row in cells)]) for index, name in enumerate(head)]
    numeric = [
        bool(rows) and all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        for index in range(len(head))
    ]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(head), *(line(row) for row in cells)])


def progress_line(progress: Progress) -> str:
    """How far a job is, in one line."""
    status = progress.status
    parts = [status.state.value]
    if status.planned is None:
        parts.append(f"{counted(status.read_rows, 'row', 'rows')} read")
        return "  ".join(parts)
    parts.append(f"{status.settled:,}/{status.planned:,} items")
    if progress.items_per_s is not None:
        parts.append(f"{progress.items_per_s:,.1f}/s")
    parts.append(f"spent {spent_cost(status.spent)}")
    if status.budget_left_nano_usd is not None:
        parts.append(f"left {usd(status.budget_left_nano_usd)}")
    if progress.left_s is not None:
        parts.append(f"about {duration(progress.left_s)} to go")
    parts += [f"waiting: {each.reason}" for each in status.waiting[:1]]
    return "  ".join(parts)


def summary(status: JobStatus, now_ms: int) -> str:
    """A job at its end, or as it stands: figures, place, reason."""
    counts, spent = status.counts, status.spent
    lines = [f"{status.job_id}: {_headline(status)}"]
    if status.reason:
        lines.append(f"  reason    {status.reason}")
    lines += [f"  waiting   {waiting_line(each, now_ms)}" for each in status.waiting]
    if status.planned is not None and status.state is not BatchState.REFUSED:
        ends = (
            f"{counts.accepted:,} accepted, {counts.rejected:,} rejected, "
            f"{counted(counts.dead_letter, 'dead letter', 'dead letters')}, "
            f"{counts.in_review:,} in review, {counts.cancelled:,} cancelled"
        )
        lines.append(f"  items     {status.settled:,} of {status.planned:,} settled: {ends}; {counts.reused:,} reused")
    if status.refused_rows:
        lines.append(f"  bad rows  {status.refused_rows:,} refused at planning")
    if status.gold is not None and status.gold.compared:
        share = status.gold.right / status.gold.compared
        lines.append(f"  accuracy  {share:.3f} against gold: {status.gold.right:,} of {status.gold.compared:,} right")
    if status.planned is not None and status.state is not BatchState.REFUSED:
        lines += [
            f"  calls     {calls(spent.attempts, spent.retries, spent.repairs)}",
            f"  tokens    {spent.input_tokens:,} in ({spent.cached_tokens:,} cached), {spent.output_tokens:,} out",
            f"  cost      {spent_cost(spent)}{_of_budget(status)}",
        ]
    if status.ledger_behind:
        behind = counted(status.ledger_behind, "record", "records")
        lines.append(f"  ledger    behind by {behind}; cost, explain and sql lag, the job does not")
    lines.append(f"  time      {duration((_until_ms(status, now_ms) - status.submitted_at_ms) / 1000)}")
    if status.location is not None:
        which = "" if status.state in _PUBLISHED else f" (version {status.version}, published before)"
        lines.append(f"  results   {status.location}{which}")
    return printable("\n".join(lines))


def waiting_line(waiting: Waiting, now_ms: int) -> str:
    """What a job waits for, since when, and when it is tried again."""
    again = "" if waiting.until_ms is None else f", tried again {_soon(waiting.until_ms - now_ms)}"
    since = duration(max(0, now_ms - waiting.since_ms) / 1000)
    return f"{waiting.service}: {waiting.reason} (for {since}{again})"


def job_list(jobs: Sequence[JobStatus], now_ms: int) -> str:
    """A line for each job."""
    rows = [
        (
            each.job_id,
            each.state.value,
            f"{each.settled:,}/{'?' if each.planned is None else f'{each.planned:,}'}",
            spent_cost(each.spent),
            duration((now_ms - each.submitted_at_ms) / 1000),
        )
        for each in jobs
    ]
    return table(("JOB", "STATE", "ITEMS", "SPENT", "AGE"), rows)


def next_commands(status: JobStatus) -> list[str]:
    """What a person may want to type next; only what would change something."""
    job = status.job_id
    match status.state:
        case BatchState.PUBLISHED | BatchState.PARTIAL_FAILED:
            wrong = "SELECT source_id, outcome, rule, value FROM items WHERE job_id = '" + job + "' LIMIT 20"
            again = [f"nightmill resume {job}"] if status.state is BatchState.PARTIAL_FAILED else []
            return [
                f"nightmill results {job} --format csv",
                f"nightmill cost {job} --by cause",
                f"nightmill versions {status.dataset_id}",
                f'nightmill sql "{wrong}"',
                *again,
            ]
        case BatchState.HELD:
            final = status.counts.accepted + status.counts.rejected + status.counts.in_review
            complete = status.settled == status.planned
            return [
                f"nightmill results {job} --staged",
                *([f"nightmill approve {job}"] if complete else []),
                *([f"nightmill resume {job}"] if final != status.planned else []),
                f"nightmill cancel {job}",
            ]
        case BatchState.CANCELLED:
            return [f"nightmill resume {job}", f"nightmill results {job} --staged"]
        case BatchState.REFUSED:
            return []
        case _:
            return [f"nightmill status {job} --watch", f"nightmill cancel {job}"]


def _soon(left_ms: int) -> str:
    return f"in {duration(left_ms / 1000)}" if left_ms >= _SOON_MS else "now"


def _until_ms(status: JobStatus, now_ms: int) -> int:
    """When a job ended, or came to a stand; now while it runs."""
    if status.ended_at_ms is not None:
        return status.ended_at_ms
    return status.updated_at_ms if status.state in STOPPED else now_ms


def _headline(status: JobStatus) -> str:
    match status.state:
        case BatchState.PUBLISHED:
            return f"published as version {status.version} of {status.dataset_id}"
        case BatchState.PARTIAL_FAILED:
            return f"published in part as version {status.version} of {status.dataset_id}"
        case BatchState.REFUSED:
            return "refused, nothing was started"
        case BatchState.HELD:
            return "held, a person must decide"
        case _:
            return status.state.value


def _of_budget(status: JobStatus) -> str:
    if status.budget_nano_usd is None or status.budget_left_nano_usd is None:
        return ""
    return f" of {usd(status.budget_nano_usd)}, left {usd(status.budget_left_nano_usd)}"
