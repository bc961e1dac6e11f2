"""The way of one item, for people: time, actor, event, state before and after, and the faults between."""

from collections.abc import Iterator
from typing import Any

from nightmill.kernel.wire.messages import (
    AttemptAnswered,
    AttemptJudged,
    BatchControlled,
    ItemPlanned,
    ItemSettled,
    ItemStateRow,
    PublicationRow,
    ShardDispatched,
    ShardStateRow,
)
from simulation.trace import Event, Trace

_MOST_LINES = 200


def story(trace: Trace, item: str | None, start_ms: int) -> str:
    """Lines of a trace that tell of `item` (None: of the batches), with every fault."""
    lines = list(_lines(trace.events, item, start_ms))
    skipped = len(lines) - _MOST_LINES
    head = [f"… {skipped} earlier lines"] if skipped > 0 else []
    return "\n".join([*head, *lines[-_MOST_LINES:]])


def _lines(events: list[Event], item: str | None, start_ms: int) -> Iterator[str]:
    states: dict[str, str] = {}
    shards: set[str] = set()
    for event in events:
        text = event.what if isinstance(event.what, str) else _told(event.what, item, states, shards, start_ms)
        if text is not None:
            mark = "!" if isinstance(event.what, str) else " "
            yield f"{(event.at_ms - start_ms) / 1000:10.3f} {mark} {event.actor:20} {text}"


def _told(message: Any, item: str | None, states: dict[str, str], shards: set[str], start_ms: int) -> str | None:
    """What a message says of the item, or of a batch; None when it says nothing."""
    match message:
        case BatchControlled():
            return f"batch-controlled  {message.batch_id} g{message.generation} {message.state}"
        case PublicationRow():
            return _moved("batch", message.batch_id, f"{message.state} g{message.generation}", states)
        case ItemPlanned() if message.item_key == item:
            return f"item-planned      {message.batch_id} g{message.generation} #{message.ordinal} {message.reuse}"
        case ItemStateRow() if message.item_key == item:
            waits = ", ".join(f"{w.batch_id[-6:]} g{w.generation}" for w in message.waiters)
            return _moved("item", message.item_key, f"{message.state} attempt {message.ordinal} for [{waits}]", states)
        case ShardDispatched() if any(attempt.item_key == item for attempt in message.attempts):
            shards.add(message.shard_id)
            ordinal = next(attempt.ordinal for attempt in message.attempts if attempt.item_key == item)
            return f"shard-dispatched  {message.shard_id} attempt {ordinal}"
        case ShardStateRow() if message.shard_id in shards:
            state = f"{message.state} at {message.owner}, answered {message.answered}"
            return _moved("shard", message.shard_id, state, states)
        case AttemptAnswered() if message.item_key == item:
            return f"attempt-answered  {_attempt(message, start_ms)}"
        case AttemptJudged() if message.item_key == item:
            verdict = message.verdict.kind if message.verdict else "no verdict"
            return f"attempt-judged    {_attempt(message.attempt, start_ms)}: {verdict}"
        case ItemSettled() if message.item_key == item:
            who = f"{message.batch_id} g{message.generation} #{message.ordinal} r{message.revision}"
            return f"item-settled      {who}: {message.outcome}"
    return None


def _moved(kind: str, key: str, state: str, states: dict[str, str]) -> str | None:
    before = states.get(key, "new")
    states[key] = state
    return None if before == state else f"{kind:17} {key[:44]}: {before} -> {state}"


def _attempt(attempt: AttemptAnswered, start_ms: int) -> str:
    signal = f" {attempt.failure.signal}" if attempt.failure else ""
    late = " late" if attempt.late else ""
    minted = (attempt.minted_at_ms - start_ms) / 1000
    return f"attempt {attempt.ordinal} minted {minted:.3f}: {attempt.state}{signal}{late}, usage {_usage(attempt)}"


def _usage(attempt: AttemptAnswered) -> str:
    usage = attempt.usage
    return "unknown" if usage is None else f"{usage.input_tokens}+{usage.output_tokens}"
