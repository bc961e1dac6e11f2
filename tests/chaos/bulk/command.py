"""`python tests/chaos --bulk`: the runs one after the other, and the report."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from chaos.bulk.plan import BulkPlan, bulk_plans
from chaos.bulk.report import line, render
from chaos.bulk.run import BulkResult, carry_out
from chaos.bulk.workload import configure
from chaos.installation import Installation, NotStarted
from chaos.run import Limits, Stuck
from chaos.site import installed, keep_logs, say
from kit.program import tell
from kit.simulator import Simulator

RUNS = 10
ITEMS = 20_000
#: requests of a submission: each pool has two partitions, and each of them then sends several one after the other
_SUBMISSIONS = 16
_PATIENCE_S = 900.0
#: what a job takes, where run 0 is not among those that are wanted
_USUAL_S_PER_ITEM = 0.009


def main(options: argparse.Namespace) -> int:
    """Do the runs, print the report and return the exit code."""
    items = options.items or ITEMS
    submission = -(-items // _SUBMISSIONS)
    wanted = [
        plan
        for plan in bulk_plans(options.runs or RUNS, options.seed, _SUBMISSIONS)
        if not options.only or plan.number in options.only
    ]
    results, stuck = _carry_out_all(wanted, Limits(items=items, patience_s=_PATIENCE_S), submission)
    tell(render(results, stuck, items=items, seed=options.seed), options.report)
    return 1 if stuck or any(result.findings.broken for result in results) else 0


def _carry_out_all(
    wanted: Sequence[BulkPlan], limits: Limits, submission: int
) -> tuple[list[BulkResult], dict[BulkPlan, str]]:
    """One installation serves until a run breaks something; what follows a broken run gets a new one."""
    results: list[BulkResult] = []
    stuck: dict[BulkPlan, str] = {}
    left, job_s = list(wanted), limits.items * _USUAL_S_PER_ITEM

    def prepare(site: Installation) -> None:
        configure(site.laptop, submission)

    with Simulator() as simulator:
        while left:
            with installed(simulator, prepare=prepare) as site:
                while left:
                    plan = left.pop(0)
                    say(f"run {plan.number}: {plan.when}")
                    try:
                        result = carry_out(plan, site, simulator, limits, job_s=job_s)
                    except (Stuck, NotStarted) as error:
                        stuck[plan] = str(error)
                        say(f"run {plan.number}: stuck: {error}; logs: {_keep(site, plan)}")
                        break
                    results.append(result)
                    job_s = job_s if plan.moments else result.job_s
                    say(f"run {plan.number}: {line(result)}")
                    if result.findings.broken:
                        say(f"run {plan.number}: logs: {_keep(site, plan)}")
                        break
    return results, stuck


def _keep(site: Installation, plan: BulkPlan) -> Path:
    return keep_logs(site, f"bulk-{plan.number}")
