"""A provider's bill beside the ledger, attempt by attempt (pure but for the two functions that read them).

A cost that the ledger knows must be the bill's to the nano-dollar. One that it does not know must be covered by the
reservation that it kept. What it says was free must not be on the bill, and the bill must have nothing else.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from nightmill.client import Client

_MOST_ROWS = 100_000
_NANO = Decimal(10) ** 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the provider booked of one call, or of one line of a batch."""

    attempt_id: str
    model: str
    billed: bool
    delivered: bool
    nano_usd: int
    batch_id: str | None
    fault: str | None = None
    told: bool = True  #: its caller was handed the answer, and its usage with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """What the ledger has of one attempt. `cost_nano_usd` None: not known."""

    attempt_id: str
    model: str
    state: str
    billed: str
    signal: str
    verdict: str
    cost_nano_usd: int | None
    reserved_nano_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """An attempt whose cost the ledger does not know, and what it really cost."""

    attempt_id: str
    model: str
    signal: str
    charged_nano_usd: int
    reserved_nano_usd: int
    fault: str | None = None  #: of the provider's, that befell it
    charged: bool = False  #: it is on the bill
    told: bool = False  #: it is on the bill, and its usage was delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Both books. `differences`: in words; none is how it should be."""

    billed: int
    bill_nano_usd: int
    known: int
    known_nano_usd: int
    unknown: Sequence[Unknown]
    differences: Sequence[str]

    @property
    def unknown_charged_nano_usd(self) -> int:
        return sum(each.charged_nano_usd for each in self.unknown)

    @property
    def unknown_reserved_nano_usd(self) -> int:
        return sum(each.reserved_nano_usd for each in self.unknown)

    @property
    def agrees(self) -> bool:
        """Every known cost is the bill's, every unknown one is covered, and together they are the whole bill."""
        whole = self.known_nano_usd + self.unknown_charged_nano_usd == self.bill_nano_usd
        return whole and not self.differences


def compare(charges: Iterable[Charge], attempts: Iterable[Booked]) -> Agreement:
    """Lay the books side by side."""
    heard = list(charges)
    faults = {charge.attempt_id: charge.fault for charge in heard if charge.fault is not None}
    billed = [charge for charge in heard if charge.billed]
    times = Counter(charge.attempt_id for charge in billed)
    bill = {charge.attempt_id: charge for charge in billed}
    rows = {row.attempt_id: row for row in attempts}
    differences = [f"{attempt} was billed {count} times" for attempt, count in times.items() if count > 1]
    differences += [f"{attempt} was billed and is not in the ledger" for attempt in bill.keys() - rows.keys()]
    known: list[Booked] = []
    unknown: list[Unknown] = []
    for row in rows.values():
        charge = bill.get(row.attempt_id)
        charged = 0 if charge is None else charge.nano_usd
        if row.billed == "no":
            if charge is not None:
                differences.append(f"{row.attempt_id} was billed {charged} and is free in the ledger")
        elif row.cost_nano_usd is not None:
            known.append(row)
            if row.cost_nano_usd != charged:
                differences.append(f"{row.attempt_id} was billed {charged} and costs {row.cost_nano_usd} in the ledger")
        else:
            unknown.append(_unknown(row, charge, faults.get(row.attempt_id)))
            if row.reserved_nano_usd < charged:
                differences.append(f"{row.attempt_id} was billed {charged}, and {row.reserved_nano_usd} is reserved")
    return Agreement(
        billed=len(billed),
        bill_nano_usd=sum(charge.nano_usd for charge in billed),
        known=len(known),
        known_nano_usd=sum(row.cost_nano_usd or 0 for row in known),
        unknown=unknown,
        differences=differences,
    )


def _unknown(row: Booked, charge: Charge | None, fault: str | None) -> Unknown:
    return Unknown(
        attempt_id=row.attempt_id,
        model=row.model,
        signal=row.signal,
        charged_nano_usd=0 if charge is None else charge.nano_usd,
        reserved_nano_usd=row.reserved_nano_usd,
        fault=fault,
        charged=charge is not None,
        told=charge is not None and charge.told,
    )


def charges_of(rows: Iterable[Mapping[str, Any]]) -> list[Charge]:
    """The rows of the simulator's `/__sim/ledger/attempts`."""
    return [
        Charge(
            attempt_id=row["attempt_id"] or "",
            model=row["model"] or "",
            billed=row["billed"],
            delivered=row["delivered"],
            nano_usd=row["billed_nano_usd"] or 0,
            batch_id=row["batch_id"],
            fault=row["fault"],
            told=row["usage_delivered"],
        )
        for row in rows
    ]


#: of the ledger's table, in the order in which `booked` takes them
COLUMNS = "attempt_id, model, state, billed, failure_signal, verdict, toString(cost_usd), toString(reserved_usd)"


def booked(row: Sequence[Any]) -> Booked:
    """A row of these columns."""
    attempt_id, model, state, billed, signal, verdict, cost, reserved = row
    return Booked(
        attempt_id=attempt_id,
        model=model,
        state=state,
        billed=billed,
        signal=signal,
        verdict=verdict,
        cost_nano_usd=None if cost is None else _nano(cost),
        reserved_nano_usd=_nano(reserved),
    )


def booked_of(client: Client, job_id: str) -> list[Booked]:
    """The ledger's attempts of a job. Raises `NightmillError` while the ledger is away."""
    query = f"SELECT {COLUMNS} FROM attempts FINAL WHERE job_id = '{job_id}'"
    return [booked(row) for row in client.sql(query, max_rows=_MOST_ROWS).rows]


def _nano(usd: str) -> int:
    return int(Decimal(usd) * _NANO)
