"""Bill and ledger as text (pure)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kit.bill import Agreement, Booked, Charge, Unknown, compare

_MOST_DIFFERENCES = 20


def render(charges: Sequence[Charge], booked: Sequence[Booked], totals: Mapping[str, Any]) -> str:
    """What the provider billed, what the ledger says of it, and whether they agree. `totals`: the simulator's own."""
    whole = compare(charges, booked)
    lines = ["", "what went wrong in the lines of the batches", *_counts(totals["by_fault"])]
    lines += ["", f"attempts whose cost the ledger does not know: {len(whole.unknown)}"]
    lines += [*_counts(Counter(each.signal for each in whole.unknown)), *map(_unknown, whole.unknown)]
    lines += [
        "",
        f"{'bill and ledger':<18}{'billed':>8}{'bill':>16}{'known':>8}{'cost':>16}{'unknown':>9}{'reserved':>16}",
    ]
    for model in sorted({charge.model for charge in charges}):
        mine = [charge for charge in charges if charge.model == model]
        lines.append(_row(model, compare(mine, [row for row in booked if row.model == model])))
    lines += [_row("together", whole), "", *_verdict(whole, lost=totals["lost"]["calls"])]
    return "\n".join(lines)


def _row(name: str, found: Agreement) -> str:
    bill = f"{found.billed:>8,}{_usd(found.bill_nano_usd):>16}"
    known = f"{found.known:>8,}{_usd(found.known_nano_usd):>16}"
    return f"{name:<18}{bill}{known}{len(found.unknown):>9,}{_usd(found.unknown_reserved_nano_usd):>16}"


def _counts(counts: Mapping[str, int]) -> Iterator[str]:
    return (f"  {name:<18}{count:>6,}" for name, count in sorted(counts.items()))


def _unknown(each: Unknown) -> str:
    charged, reserved = _usd(each.charged_nano_usd), _usd(each.reserved_nano_usd)
    return f"  {each.attempt_id}  {each.signal:<16} reserved {reserved}, billed {charged}"


def _verdict(found: Agreement, *, lost: int) -> Iterator[str]:
    if not found.agrees:
        yield f"bill and ledger differ in {len(found.differences)} places"
        yield from (f"  {text}" for text in found.differences[:_MOST_DIFFERENCES])
        return
    yield f"{found.known:,} costs are known, each as billed to the nano-dollar; {lost} billed lines had no row to tell"
    charged = _usd(found.unknown_charged_nano_usd)
    yield f"bill = ledger: {_usd(found.bill_nano_usd)} = {_usd(found.known_nano_usd)} known + {charged} of the unknown"


def _usd(nano_usd: int) -> str:
    return f"{nano_usd // 10**9}.{nano_usd % 10**9:09}"
