"""An explained item as text (pure): its end, its prompt, its calls."""

from nightmill.api.findings import ExplainedAttempt, ExplainedItem, Explanation
from nightmill.cli.text import calls, cost, counted, printable, usd
from nightmill.kernel.domain.lifecycle import Lane


def explanation(answer: Explanation) -> str:
    """Everything that is known of an item, its newest end and its newest calls first."""
    lines: list[str] = []
    newest = answer.items[0] if answer.items else None
    if newest is not None:
        lines += _item_lines(newest)
        older = len(answer.items) - 1
        if older:
            lines.append(f"  also settled {counted(older, 'time', 'times')} before, in other batches or generations")
    for note in answer.lanes:
        since = f" since {note.since}" if note.since else ""
        lines.append(f"lane: {note.lane}{since}: {note.reason}")
    if answer.prompt is not None:
        lines.append("prompt, as first sent:")
        for message in answer.prompt:
            lines += [f"  [{message.role}]", *(f"  {line}" for line in message.content.splitlines())]
    elif answer.prompt_note:
        lines.append(f"prompt: not shown, {answer.prompt_note}")
    for group in _groups(answer.attempts):
        first = group[0]
        same = newest is None or first.item_key == newest.item_key
        what = "calls" if same else "calls with another prompt, schema, model or text"
        lines.append(f"{what}, for {first.job_id}:")
        lines += [f"  {line}" for attempt in group for line in _attempt_lines(attempt)]
    return printable("\n".join(lines))


def _groups(attempts: list[ExplainedAttempt]) -> list[list[ExplainedAttempt]]:
    """Calls of one job and item key together, in their order; the group with the newest call first."""
    groups: dict[tuple[str, str], list[ExplainedAttempt]] = {}
    for attempt in sorted(attempts, key=lambda each: (each.minted_at, each.ordinal)):
        groups.setdefault((attempt.job_id, attempt.item_key), []).append(attempt)
    return sorted(groups.values(), key=lambda group: group[-1].minted_at, reverse=True)


def _item_lines(item: ExplainedItem) -> list[str]:
    lines = [f"{item.source_id}: {item.outcome}" + (", reused from an earlier call" if item.reused else "")]
    lines.append(f"  job       {item.job_id}, generation {item.generation}, item key {item.item_key}")
    if item.rule:
        lines.append(f"  rule      {item.rule} {item.verdict} on {item.field or 'the answer'}: {item.value}")
    if item.failure_class:
        lines.append(f"  failure   {item.failure_class} ({item.failure_signal}): {item.failure_message}")
    money = cost(item.cost_nano_usd, item.unknown_attempts)
    lines.append(f"  calls     {calls(item.attempts, item.retries, item.repairs)}; cost {money}")
    return lines


def _attempt_lines(attempt: ExplainedAttempt) -> list[str]:
    kind = "repair" if attempt.is_repair else "call"
    lines = [
        f"{kind} {attempt.ordinal}: {attempt.state}, {attempt.model} on {attempt.pool}{_lane(attempt)}, "
        f"{attempt.minted_at}, {_usage(attempt)}, cost {_money(attempt)}"
    ]
    if attempt.failure_class:
        lines.append(
            f"  failure   {attempt.failure_class} ({attempt.failure_signal}): {attempt.failure_message}"
            + (f", HTTP {attempt.http_status}" if attempt.http_status else "")
        )
    if attempt.verdict:
        rule = f" by {attempt.rule} on {attempt.field or 'the answer'}: {attempt.value}" if attempt.rule else ""
        lines.append(f"  verdict   {attempt.verdict}{rule}")
    if attempt.output:
        lines += ["  answer", *(f"    {line}" for line in attempt.output.splitlines())]
    return lines


def _lane(attempt: ExplainedAttempt) -> str:
    return ", bulk lane" if attempt.lane == Lane.BULK else ""


def _usage(attempt: ExplainedAttempt) -> str:
    if attempt.input_tokens is None and attempt.output_tokens is None:
        return "no usage reported"
    written = (attempt.cache_write_tokens or 0) + (attempt.cache_write_1h_tokens or 0)
    parts = ((attempt.cached_tokens or 0, "cached"), (written, "written to a cache"))
    named = ", ".join(f"{tokens:,} {what}" for tokens, what in parts if tokens)
    of_these = f" ({named})" if named else ""
    return f"{attempt.input_tokens or 0:,} tokens in{of_these}, {attempt.output_tokens or 0:,} out"


def _money(attempt: ExplainedAttempt) -> str:
    """The cost and the price book that told it; of an unknown one, what is reserved for it."""
    if attempt.cost_nano_usd is None:
        reserved = f", {usd(attempt.reserved_nano_usd)} reserved" if attempt.reserved_nano_usd else ""
        return cost(None, 1) + reserved
    book = f" (prices {attempt.price_version})" if attempt.price_version else ""
    return usd(attempt.cost_nano_usd) + book
