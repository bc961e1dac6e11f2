"""What the gateway and a provider's Batch API say to each other, without the provider's spelling. Pure.

A dialect knows its provider's paths, states and lines; it turns values into requests and bytes into values, and decides
nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from nightmill.kernel.domain.settings import Pool
from nightmill.provider_gateway.exchange import Request, Response

#: lines are unique by this, and joined by it
MOST_ID_CHARS = 64
#: keys of ours that travel with a batch where the provider takes any
SUBMISSION, FINGERPRINT = "nightmill_submission", "nightmill_fingerprint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request of a few bytes. The key is not in it."""

    method: str
    url: str
    body: bytes | None = None  #: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An upload: fields in order, then the file."""

    url: str
    fields: tuple[tuple[str, str], ...]
    filename: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where the requests travel in the create itself: its path below the pool's address, and what is around them."""

    path: str
    head: bytes
    between: bytes
    tail: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file at the provider."""

    id: str
    bytes: int | None  #: as the provider counts it; None: it does not say


class Stage(StrEnum):
    """How far a provider's batch is, whatever the provider calls it."""

    RUNNING = "running"
    ENDED = "ended"  #: there may be results, whatever the end was
    REFUSED = "refused"  #: it failed before anything of it ran


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFault:
    """Why a batch was refused, or one of its lines."""

    code: str
    line: int | None = None  #: from 1
    param: str | None = None
    text: str = ""  #: to be searched, never to be shown: it may repeat a document


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSeen:
    """A batch as the provider shows it."""

    id: str
    stage: Stage
    status: str  #: in the provider's own word
    absent_not_run: bool = False  #: what the results of this end do not list did not run, if no row of them is lost
    ran: int | None = None  #: requests that ran, as the provider counts; believed only where rows are fewer
    billed: int | None = None  #: requests that it is billed for, as the provider counts, when it has ended
    submission: str | None = None  #: our key, where it came back with the batch
    fingerprint: str | None = None
    requests: int | None = None
    created_at_ms: int | None = None
    output_id: str | None = None
    error_id: str | None = None
    faults: tuple[InputFault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of a list of batches, newest first."""

    batches: tuple[BatchSeen, ...]
    next_after: str | None  #: where the next part begins; None: this was the last


class Fate(StrEnum):
    """What a result line says of its request."""

    RESPONDED = "responded"  #: there is a response, good or bad
    EXPIRED = "expired"  #: it did not run in time
    CANCELLED = "cancelled"  #: it did not run
    TIMED_OUT = "timed_out"
    FAILED = "failed"  #: without a response; nobody knows whether it ran


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLine:
    """One line of a result file."""

    custom_id: str
    fate: Fate
    response: Response | None = None
    request_id: str | None = None
    code: str | None = None
    free: bool = False  #: the provider never bills what ended so

    @property
    def is_valid(self) -> bool:
        """Whether it carries an answer: of two lines for one request that one counts."""
        return self.response is not None and self.response.status == 200


class BulkDialect(Protocol):
    """The Batch API of one kind of provider.

    `frame` None: the input is a file that is uploaded, and the batch carries our keys. Otherwise there is no file, and
    a batch is known again by the custom ids in its results alone.
    """

    frame: Frame | None

    def headers(self, pool: Pool) -> Mapping[str, str]:
        """Headers of every request to the pool."""

    def line(self, custom_id: str, request: Request, base_url: str) -> bytes:
        """One request as a piece of the input."""

    def endpoint(self, request: Request, base_url: str) -> str:
        """What the batch is created for."""

    def upload(self, base_url: str, name: str) -> Form | None:
        """How an input is uploaded; None where it travels in the create."""

    def stored(self, body: bytes) -> StoredFile | None:
        """The uploaded file; None when the body is no such thing."""

    def uploads(self, base_url: str) -> Ask | None:
        """Lists inputs that were uploaded, newest first. None where it travels in the create."""

    def named(self, body: bytes, name: str) -> tuple[str, ...] | None:
        """Ids of the listed inputs that were uploaded under `name`; None when the body is no such list."""

    def create(self, base_url: str, *, file_id: str, endpoint: str, keys: Mapping[str, str]) -> Ask | None:
        """Creates the batch of an uploaded input. This is what costs money. None where the input is in it."""

    def retrieve(self, base_url: str, batch_id: str) -> Ask:
        """Shows one batch."""

    def seen(self, body: bytes) -> BatchSeen | None:
        """The batch of a response; None when the body is no such thing."""

    def listing(self, base_url: str, after: str | None) -> Ask:
        """Lists batches, newest first."""

    def page(self, body: bytes) -> Page | None:
        """The batches of a list; None when the body is no such thing."""

    def cancel(self, base_url: str, batch_id: str) -> Ask:
        """Asks for a batch to be cancelled."""

    def content(self, base_url: str, file_id: str) -> Ask:
        """Reads a result file."""

    def about(self, base_url: str, file_id: str) -> Ask | None:
        """Shows a file; None where nobody tells its size."""

    def remove(self, base_url: str, file_id: str) -> Ask:
        """Removes a file."""

    def read(self, line: bytes) -> ResultLine | None:
        """A result line; None when it is none."""
