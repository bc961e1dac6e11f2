"""Pools in words and in JSON fields (pure): limits, keys, and the report of `pool check`."""

from typing import TYPE_CHECKING

from nightmill.cli.text import cost, counted, printable
from nightmill.local.pools.verdict import Weight

if TYPE_CHECKING:
    from nightmill.kernel.domain.settings import PoolLimits
    from nightmill.local.pools.check import Report
    from nightmill.local.pools.listing import KeyState, PoolLine

_LIMITS = ("requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute")


def report_text(report: "Report") -> str:
    lines = [finding.line() for finding in report.findings]
    wrong_model = any(finding.about == "model" and finding.remedy for finding in report.findings)
    if wrong_model and report.offered:
        more = report.offered_count - len(report.offered)
        rest = f", and {counted(more, 'other', 'others')}" if more else ""
        lines.append(f"offered: {', '.join(report.offered)}{rest}")
    suggested = {each.field: each.suggested for each in report.limits if each.suggested is not None}
    if suggested:
        words = ", ".join(f"{field}: {value}" for field, value in suggested.items())
        lines.append(f"suggested for limits in pools.yaml: {words}")
    calls = counted(report.model_calls, "call of the model", "calls of the model")
    spent = cost(report.cost_nano_usd, 0) if report.model_calls else "nothing"
    lines.append(f"cost: {spent} ({calls})")
    return printable("\n".join(lines))


def report_fields(report: "Report") -> dict[str, object]:
    return {
        "pool": report.pool,
        "ok": report.worst() in (Weight.OK, Weight.NOTE),
        "findings": [
            {"about": each.about, "weight": each.weight.value, "detail": each.detail, "remedy": each.remedy}
            for each in report.findings
        ],
        "offered": list(report.offered),
        "offered_count": report.offered_count,
        "limits": [
            {"field": each.field, "configured": each.configured, "told": each.told, "suggested": each.suggested}
            for each in report.limits
        ],
        "model_calls": report.model_calls,
        "cost_nano_usd": report.cost_nano_usd,
    }


def line_fields(line: "PoolLine") -> dict[str, object]:
    key = line.key
    return {
        "name": line.name,
        "provider": line.provider,
        "model": line.model,
        "limits": line.limits.model_dump(),
        "context_tokens": line.context_tokens,
        "sensitivity": line.sensitivity.value,
        "key": None
        if key is None
        else {"env": key.env, "file": key.file, "present": key.problem is None, "problem": key.problem},
        "price_known": line.price_known,
    }


def key_text(key: "KeyState | None") -> str:
    if key is None:
        return "none needed"
    return key.place if key.problem is None else f"{key.place}: not usable"


def limits_text(limits: "PoolLimits") -> str:
    per_minute = zip(("requests/min", "tokens in/min", "tokens out/min"), _LIMITS, strict=True)
    told = [f"{value:,} {word}" for word, field in per_minute if (value := getattr(limits, field)) is not None]
    return ", ".join([f"{limits.slots:,} slots", *told])
