"""The books at the end: plans, settlements, files, ledger and the provider's bill must say the same."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nightmill.kernel.domain import ids
from nightmill.kernel.domain.lifecycle import BatchState, Command, ItemOutcome
from nightmill.kernel.domain.pricing import Tokens, cost_nano_usd
from nightmill.kernel.wire.messages import ItemSettled, PublicationRow
from nightmill.publisher.results import manifest_of, read_failures, read_rows
from simulation.provider import Billed
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.world import World

_SHOWN = (BatchState.PUBLISHED, BatchState.PARTIAL_FAILED)


def check_all(world: "World") -> None:
    """Raises `Violation` for the first thing that is wrong."""
    for job in world.user.jobs:
        _check_job(world, ids.batch_id(job.message.job_id), job.documents)
    _check_versions(world)
    _check_bill(world)
    _check_charges(world)
    _check_spending(world)
    _check_ledger_items(world)
    if world.bulk is not None:
        world.bulk.checks.at_end()


def _check_job(world: "World", batch_id: str, documents: list[str]) -> None:
    """Nothing is lost: every planned ordinal of a batch that was not given up is accounted for, once."""
    row, checker = world.checker.publications[batch_id], world.checker
    sealed = checker.sealed.get(batch_id)
    if sealed is None:
        if row.state is not BatchState.CANCELLED:
            raise Violation("nothing is lost", f"{batch_id} was never sealed and is {row.state}")
        return
    if row.state is BatchState.REFUSED:
        return
    resumes = sum(job.asked.count(Command.RESUME) for job in world.user.jobs if job.message.job_id == row.job_id)
    if row.generation > 1 + resumes:
        raise Violation("a command is obeyed once", f"{batch_id} is in generation {row.generation} of {1 + resumes}")
    if sealed.planned != len(documents):
        raise Violation("nothing is lost", f"{batch_id} planned {sealed.planned} of {len(documents)}")
    if row.state in _SHOWN:
        counts = row.counts
        ended = (counts.accepted, counts.rejected, counts.dead_letter, counts.in_review, counts.cancelled)
        if sum(ended) != sealed.planned:
            raise Violation("nothing is lost", f"{batch_id}: {counts} of {sealed.planned}")


# -- what readers see


def _check_versions(world: "World") -> None:
    """Published rows are the accepted items of the generations that the version names."""
    seen: dict[tuple[str, int], str] = {}
    for message in world.checker.published:
        key = (ids.dataset_of(message.batch_id), message.version)
        if key in seen:
            raise Violation("a version is published once", f"{key} by {seen[key]} and {message.batch_id}")
        seen[key] = message.batch_id
        row = world.checker.publications[message.batch_id]
        if row.generation == message.generation and row.state in _SHOWN:
            _check_version(world, key[0], message.version, row)
    for path in sorted(world.results.glob("*/pointer-*.json")):
        pointer = json.loads(path.read_bytes())
        foreign = world.strangers.pointers.get((path.parent.name, int(path.stem.removeprefix("pointer-"))))
        if foreign == path.read_bytes():
            continue
        if foreign is not None or seen.get((path.parent.name, pointer["version"])) != pointer["batch_id"]:
            raise Violation("readers see what is published", f"{path.parent.name} {path.name}: {pointer}")
    for batch_id, row in world.checker.publications.items():
        if row.state in _SHOWN and batch_id not in seen.values():
            raise Violation("published = accepted", f"{batch_id} is {row.state} and no version has it")


def _check_version(world: "World", dataset: str, version: int, row: PublicationRow) -> None:
    root = world.results / dataset
    manifest = manifest_of(root, version)
    if manifest is None or (manifest["batch_id"], manifest["generation"]) != (row.batch_id, row.generation):
        raise Violation("a version is published once", f"version {version} of {dataset} is not {row.batch_id}")
    accepted, others = _expected(world, row)
    rows = list(read_rows(root, version))
    shown = {each["_source_id"]: each for each in rows}
    if len(shown) != len(rows) or set(shown) != set(accepted):
        text = f"{row.batch_id}: readers see {sorted(shown)}, accepted are {sorted(accepted)}"
        raise Violation("published = accepted", text)
    for source, settled in accepted.items():
        _check_answer(world, shown[source], settled)
    failures = {
        each["_source_id"] if "_source_id" in each else each["source_id"] for each in read_failures(root, version)
    }
    if failures != others:
        raise Violation(
            "published = accepted", f"{row.batch_id}: failures {sorted(failures)}, expected {sorted(others)}"
        )


def _expected(world: "World", row: PublicationRow) -> tuple[dict[str, ItemSettled], set[str]]:
    """Accepted items by source id, and source ids of the others, as the settlements of all generations say.

    A generation leaves what was accepted, rejected or in review as it is and plans the rest again.
    """
    newest: dict[int, ItemSettled] = {}
    for (batch, generation, ordinal, _), settled in sorted(world.checker.settled.items(), key=lambda entry: entry[0]):
        if batch != row.batch_id or generation > row.generation:
            continue
        before = newest.get(ordinal)
        final = before is not None and before.outcome in (ItemOutcome.ACCEPTED, ItemOutcome.REJECTED)
        parked = before is not None and before.outcome is ItemOutcome.IN_REVIEW and settled.revision == 1
        if not final and not parked:
            newest[ordinal] = settled
    accepted = {s.source_id: s for s in newest.values() if s.outcome is ItemOutcome.ACCEPTED}
    return accepted, {s.source_id for s in newest.values() if s.outcome is not ItemOutcome.ACCEPTED}


def _check_answer(world: "World", shown: dict[str, Any], settled: ItemSettled) -> None:
    """A row is what the provider answered to the attempt that it names."""
    item, _, ordinal = (settled.attempt_id or "").rpartition("-")
    text = world.provider.texts.get((item, int(ordinal)))
    if text is None or shown["_attempt_id"] != settled.attempt_id or item != settled.item_key:
        raise Violation("published = accepted", f"{shown['_attempt_id']} is no attempt of {settled.item_key}")
    if f'"label": "{shown["label"]}"' not in text:
        raise Violation("published = accepted", f"{settled.attempt_id} was answered otherwise", settled.item_key)


# -- money


def _check_bill(world: "World") -> None:
    """Known attempts are the bill to the unit; unknown ones are counted, and covered by what is reserved for them."""
    rows = {f"{r['item_key']}-{r['ordinal']}-{r['minted_at']}": r for r in world.clickhouse.final("attempts")}
    for key, times in world.provider.seen.items():
        if times > 1:
            raise Violation("an attempt is called at most once", f"{key} {times} times", key[:43])
    for key, line in world.provider.bill.items():
        _check_line(world, key, line, rows.get(key))
    _check_known(world, rows)


def _check_line(world: "World", key: str, line: Billed, row: dict[str, Any] | None) -> None:
    """One line of the bill, and the ledger's row of it."""
    if row is None:
        raise Violation("ledger = bill", f"{key} is on the bill and not in the ledger", line.item_key)
    (price,) = world.config.prices.models["simulated"]
    tariff = price.period().price.tariff(line.lane)
    if tariff is None:
        raise Violation("ledger = bill", "the model has no price")
    cost = cost_nano_usd(tariff, Tokens(fresh_input=line.input_tokens, output=line.output_tokens))
    known = (row["input_tokens"], row["output_tokens"], row["cost_usd"])
    if known == (None, None, None):
        if row["billed"] == "no":
            raise Violation("ledger = bill", f"{key} is billed, the ledger says it is not", line.item_key)
        if world.provider.input_factor == 1 and row["reserved_usd"] < cost:
            raise Violation("unknown calls are covered", f"{key}: {row['reserved_usd']} < {cost}", line.item_key)
    elif known != (line.input_tokens, line.output_tokens, cost):
        raise Violation("ledger = bill", f"{key}: ledger {known}, bill {line} {cost}", line.item_key)


def _check_known(world: "World", rows: Mapping[str, dict[str, Any]]) -> None:
    """What the ledger knows was billed, and what was received is known to it."""
    gone = {process.name for process in world.processes if process.retired}
    for key, row in rows.items():
        if row["input_tokens"] is not None and key not in world.provider.bill:
            raise Violation("ledger = bill", f"{key} is in the ledger and not on the bill", row["item_key"])
        host = world.provider.landed.get(key)
        if host is not None and host not in gone and row["input_tokens"] is None:
            raise Violation("an answer that landed is known", f"{key} is {row['failure_signal']}", row["item_key"])


def _check_charges(world: "World") -> None:
    """No batch is charged more calls, or more money, than were made for it; the publisher has what was settled.

    A settlement that was under way to an older generation is in the ledger alone.
    """
    made, charged = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in world.clickhouse.final("attempts"):
        made[row["batch_id"], "cost"] += row["cost_usd"] or 0
        made[row["batch_id"], "attempts"] += 1
    for settled in world.checker.settled.values():
        charged[settled.batch_id, "cost"] += settled.totals.cost_nano_usd
        charged[settled.batch_id, "attempts"] += settled.totals.attempts
    accounted = Counter({(b, "cost"): r.totals.cost_nano_usd for b, r in world.checker.publications.items()})
    generations = {b: r.generation for b, r in world.checker.publications.items()}
    for key in charged:
        lost = key[1] == "cost" and accounted[key] != charged[key] and generations[key[0]] == 1
        if charged[key] > made[key] or (key[1] == "cost" and accounted[key] > charged[key]) or lost:
            text = f"{key}: {accounted[key]} accounted, {charged[key]} settled, {made[key]} made"
            raise Violation("nothing is charged twice", text)


def _check_spending(world: "World") -> None:
    """No budget is passed by more than was outstanding; a call that may have been billed costs its reservation."""
    costs: dict[str, int] = {}
    for row in world.clickhouse.final("attempts"):
        reserved = 0 if row["billed"] == "no" else row["reserved_usd"]
        key = f"{row['item_key']}-{row['ordinal']}-{row['minted_at']}"
        costs[key] = reserved if row["cost_usd"] is None else row["cost_usd"]
    world.checker.spending.check(lambda key: costs.get(key, 0))


def _check_ledger_items(world: "World") -> None:
    """The ledger has of each item the newest settlement."""
    newest: dict[tuple[str, int], ItemSettled] = {}
    for key, settled in sorted(world.checker.settled.items(), key=lambda entry: entry[0]):
        newest[(key[0], key[2])] = settled
    rows = {(r["batch_id"], r["ordinal"]): r for r in world.clickhouse.final("items")}
    if set(rows) != set(newest):
        raise Violation("ledger = settlements", f"{len(rows)} rows of {len(newest)} items")
    for item, settled in newest.items():
        if (rows[item]["outcome"], rows[item]["generation"]) != (settled.outcome.value, settled.generation):
            raise Violation("ledger = settlements", f"{item}: {rows[item]['outcome']}", settled.item_key)
