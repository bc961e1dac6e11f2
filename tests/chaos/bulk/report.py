"""The runs of batch jobs as Markdown: what they are, one row each, and what was broken (pure)."""

import os
from collections.abc import Mapping, Sequence

from chaos.bulk.oracle import Kill
from chaos.bulk.plan import BulkPlan
from chaos.bulk.run import BulkResult
from chaos.report import table
from nightmill.kernel.domain.lifecycle import ProviderBatchState

_NONE = "–"
_HEAD = """# Kills of the gateway in the middle of batch jobs

`python tests/chaos --bulk` runs jobs over the Batch APIs of a simulated OpenAI and a simulated Anthropic, half of the
items each, on an installation of its own (a real broker, eight services, chDB). In the middle of each job the gateway
is killed (`kill -9`) at a moment that the seed decides; its supervisor starts it again. In run 0 nobody dies.

- **moment**: a share of the time that run 0 took, or a time after the provider's nth create, whose answer takes 1.5 s.
- **when killed**: states of the submissions at that moment, from the gateway's committed rows. *Armed*: a create may
  be under way.
- **recovered**: until all processes are ready again and no submission is in doubt any more. A create that may have
  arrived is looked for after 150 s, when none of the dead gateway's can be under way, and not made again before the
  provider has said that it is not there.
- **created, named**: batches that the provider has created, and that the gateway's rows name. **adopted**: creates of
  the dead gateway that its successor found at the provider. **never were**: of which the provider said that there is
  no such batch, which were then sent in another submission.
- **billed**: lines that the provider charged for. **known**: attempts whose cost the ledger knows; each is the bill's
  to the nano-dollar. **unknown**: attempts whose cost is not known (failed lines, which may have been billed) and is
  covered by a reservation.
- **paid twice**: items of which an answer was billed that was neither used nor refused by validation. **lost**: items
  without a result or another outcome. **ledger**: from the end of the job until the ledger had all of it.
"""
_COLUMNS = ("run", "moment", "killed after s", "when killed", "recovered s")
_COUNTS = ("created", "named", "adopted", "never were", "billed", "known", "unknown", "paid twice", "lost")
_TIMES = ("job s", "ledger s")


def render(results: Sequence[BulkResult], stuck: Mapping[BulkPlan, str], *, items: int, seed: int) -> str:
    """The whole report."""
    kills = sum(len(result.findings.kills) for result in results)
    parts = [
        _HEAD,
        f"{len(results) + len(stuck)} runs of {items:,} items, {kills} kills, seed {seed}, {os.cpu_count()} cores.",
        "",
        *table((*_COLUMNS, *_COUNTS, *_TIMES), list(map(_row, results))),
    ]
    problems = [f"- run {plan.number} ({plan.when}): {text}" for plan, text in stuck.items()]
    problems += [f"- run {e.plan.number} ({e.plan.when}): {text}" for e in results for text in e.findings.broken]
    return "\n".join(parts + (["Broken:", "", *problems, ""] if problems else ["No run broke a promise.", ""]))


def line(result: BulkResult) -> str:
    """A run in one line, as it goes."""
    cells = zip((*_COLUMNS, *_COUNTS, *_TIMES)[1:], _row(result)[1:], strict=True)
    verdict = "; ".join(result.findings.broken) or "kept"
    return f"{verdict}; {', '.join(f'{name} {text}' for name, text in cells)}"


def _row(result: BulkResult) -> list[str]:
    found, kills = result.findings, result.findings.kills
    counts = (
        found.created,
        found.named,
        sum(kill.adopted for kill in kills),
        sum(kill.never_were for kill in kills),
        found.agreement.billed,
        found.agreement.known,
        len(found.agreement.unknown),
        found.paid_twice,
        found.lost,
    )
    return [
        str(result.plan.number),
        result.plan.when,
        ", ".join(f"{after_s:.1f}" for after_s in result.killed_after_s) or _NONE,
        "; ".join(map(_states, kills)) or _NONE,
        ", ".join(map(_recovered, kills)) or _NONE,
        *map(str, counts),
        f"{result.job_s:.0f}",
        f"{result.ledger_s:.0f}",
    ]


def _states(kill: Kill) -> str:
    named = [f"{kill.states[state]} {state}" for state in ProviderBatchState if kill.states.get(state)]
    return ", ".join(named) or "no submission yet"


def _recovered(kill: Kill) -> str:
    return _NONE if kill.recovered_ms is None else f"{kill.recovered_ms / 1000:.1f}"
