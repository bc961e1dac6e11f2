"""The work that every subject is given: the same documents, the same prompt, the same schema, and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.usage import Snapshot

#: calls in flight of each subject
IN_FLIGHT = 200
#: what a submission to a Batch API holds at most
BULK = {"max_requests": 10_000}
MODEL = "simulated"
SYSTEM_PROMPT = "Label the text."
MAX_OUTPUT_TOKENS = 32

_DOCUMENT_LETTERS = 250
_FILLER = "The tenant shall keep the premises in good repair and give notice of any damage without delay. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Documents for one run. Texts of different names differ, so that no result of another run can be reused."""

    name: str
    texts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One subject over one workload.

    `cpu_s` and `peak_rss_mib` are by process, None where it can not be told; `disk_bytes` is what folders grew by;
    `load_before` is the machine's load when it began. `problem` None: it was complete and correct.
    """

    subject: str
    items: int
    elapsed_s: float
    cpu_s: Mapping[str, float | None]
    load_before: float
    problem: str | None
    peak_rss_mib: Mapping[str, float | None] = field(default_factory=dict)
    disk_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def items_per_s(self) -> float:
        return self.items / self.elapsed_s


def workload(name: str, items: int) -> Workload:
    """`items` documents of about 250 letters."""
    return Workload(name=name, texts=[_document(name, number) for number in range(items)])


def finished(
    subject: str,
    work: Workload,
    *,
    elapsed_s: float,
    before: Snapshot,
    after: Snapshot,
    load_before: float,
    problem: str | None,
) -> Run:
    """The record of a run that ended."""
    return Run(
        subject=subject,
        items=len(work.texts),
        elapsed_s=elapsed_s,
        cpu_s=after.since(before),
        load_before=load_before,
        problem=problem,
    )


def _document(name: str, number: int) -> str:
    return (f"Clause {number} of {name}. " + _FILLER * 3)[:_DOCUMENT_LETTERS]
