"""The port behind which bulk work is done: files, uploads, downloads and short requests, one errand each.

The poll thread decides; threads on the other side carry an errand out and say what came of it. An errand is not
repeated by them: whether and when to try again is decided by whoever gave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nightmill.kernel.wire.messages import AttemptAnswered, Failure, ProviderBatchRow
from nightmill.provider_gateway.bulk.dialect import BatchSeen
from nightmill.provider_gateway.bulk.limits import Size
from nightmill.provider_gateway.bulk.results import Places, ResultFile
from nightmill.provider_gateway.orders import Order
from nightmill.provider_gateway.pools import PoolAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Write the input of the first of these orders, as many as fit `most`."""

    access: PoolAccess
    orders: tuple[Order, ...]
    most: Size
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An input on this machine's disk."""

    name: str
    path: Path
    endpoint: str
    orders: tuple[Order, ...]  #: in it, in order
    refused: tuple[tuple[Order, Failure], ...]  #: not in it: they can not be rendered
    left: tuple[Order, ...]  #: not in it: it is full
    bytes: int
    tokens: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Bring an input to the provider → the file's id."""

    access: PoolAccess
    built: Built


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create the batch, unless `before_ms` has come → `BatchSeen`, or `TooLate`."""

    access: PoolAccess
    built: Built
    file_id: str | None  #: None: the input goes with it
    before_ms: int


@dataclass(frozen=True, slots=True)
class TooLate:
    """Nothing was sent: its time was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Look for a batch that carries the submission's key, back to `since_ms` → `BatchSeen`, or `Absent`."""

    access: PoolAccess
    row: ProviderBatchRow
    since_ms: int
    ids: frozenset[str] = frozenset()  #: custom ids of its requests, where a batch has no key
    others: frozenset[str] = frozenset()  #: batches that are known to be other submissions


@dataclass(frozen=True, slots=True)
class Absent:
    """The provider has no such thing; it was asked, and said so."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """There is a batch that may be it, and it can not be told before it has ended; or even then.

    `mute`: batches that have ended, and whose results do not tell.
    """

    mute: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Show these batches → `Polled`."""

    access: PoolAccess
    batch_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What the provider showed; a batch that it does not know any more is not in it."""

    batches: tuple[BatchSeen, ...]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Ask for a batch to be cancelled → `Done`."""

    access: PoolAccess
    batch_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Remove files at the provider, and the local ones → `Done`, also where they are gone already."""

    access: PoolAccess
    file_ids: tuple[str, ...]
    name: str
    strays: bool = False  #: an upload may have arrived whose id nobody knows: it is looked for by its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidy:
    """Remove downloads on this machine's disk that no submission needs any more → `Done`. Nothing is asked outside."""

    needed: frozenset[str]  #: submissions
    before_ms: int  #: what was written later may be of one that is younger than this errand


@dataclass(frozen=True, slots=True)
class Done:
    """It is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Bring the results here and find each order's line → `Harvest`, or `Absent` when no file of them is there."""

    access: PoolAccess
    row: ProviderBatchRow
    orders: tuple[Order, ...]
    afresh: bool = False  #: what is here already is not believed
    any_size: bool = False  #: files are taken as they come, whatever size they should have


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """Results on this machine's disk, and where each order's line is in them."""

    paths: tuple[Path, ...]
    places: Places
    strangers: int  #: lines that belong to no request of the submission, or to none at all
    repeats: int  #: further lines for a request that has one
    aside: Path | None = None  #: where such lines lie, for people to look at
    gone: tuple[ResultFile, ...] = ()  #: files that the provider says it has not
    misfits: tuple[str, ...] = ()  #: files that were taken with another size than they should have, in words
    waits: bool = False  #: for those: what has no line is not answered yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Turn the lines of these orders into answers → a tuple of them, one for each order.

    `row` and the harvest tell what becomes of an order that has no line.
    """

    access: PoolAccess
    row: ProviderBatchRow
    harvest: Harvest
    orders: tuple[Order, ...]
    first: int  #: position of the first of them in the submission
    before: Places | None = None  #: lines that were read before, while a file was waited for: not answered again


Errand = Build | Upload | Create | LookUp | Poll | Cancel | Remove | Fetch | Read | Tidy


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The errand failed, and surely nothing came of it."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsure:
    """The errand failed, and may have been carried out all the same."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Something of this machine is away: the blob store, or room on the disk."""

    reason: str


Answers = tuple[AttemptAnswered, ...]
Failed = Refused | Unsure | Blocked
Outcome = Built | str | BatchSeen | TooLate | Absent | Undecided | Polled | Done | Harvest | Answers | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An errand that ended. `number` is what `start` returned for it."""

    number: int
    outcome: Outcome
    started_at_ms: int


class Runner(Protocol):
    """Carries errands out, several at a time; its threads take no decisions, and no method blocks but `close`."""

    def start(self, errand: Errand) -> int:
        """Begin, and return a number by which to know the end."""

    def completed(self) -> Sequence[Ended]:
        """Errands that ended since the last time. Raises if one ended by a defect."""

    def close(self) -> None:
        """Break off what is under way."""
