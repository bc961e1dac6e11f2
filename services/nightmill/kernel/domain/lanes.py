"""Which lane a batch takes, which pools it may use there, and when its deadline is in danger (P5, P6).

The planner asks before anything is spent, the dispatcher while the work goes on, the api to explain both. Everything
is a function of values that are given; times are milliseconds.

A pipeline fixes its lane, or lets the deadline decide (`by deadline`, `{bulk: over 2h}`). Then bulk is chosen as long
as more time is left than that, a provider's day for `by deadline`, and real time could still do all of it if bulk came
to nothing. With

    need = items / items a second that real time does
    safe = 2 * need + longest call + grace, grace = an eighth of "over", at most 15 minutes

the deadline is in danger when `need + longest call <= left <= safe`: real time can still meet it, but with little to
spare. Twice, for a pool may give a batch half of what it gave before; the grace is what a provider takes to cancel a
batch and to hand out its results. With less left than `need + longest call`, nothing is won by giving up a batch that
may end any moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Pool, Tenant

_GRACE_MS = 900_000
_GRACE_SHARE = 8
_SPARE = 2
#: stated assumption: seconds that a call takes, until the pool's own are known
ASSUMED_CALL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is left of a batch, and how fast real time would do it."""

    left_ms: int | None  #: until the deadline; None: there is none
    items: int  #: unanswered
    per_s: float  #: items that real time does in a second
    call_ms: int  #: the longest that a call may take

    @property
    def need_ms(self) -> int:
        """How long real time takes for all that is left."""
        return 0 if self.items == 0 else round(self.items * 1000 / self.per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A lane, and why."""

    lane: Lane
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Pools of a pipeline: those that may be used, in its order, and why the others may not."""

    usable: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def words(self) -> str:
        """For people."""
        used = ", ".join(self.usable) or "none"
        return f"pools: {used}" + "".join(f"; not {name}: {why}" for name, why in self.left_out)


def choose(pipeline: Pipeline, *, has_bulk: bool, outlook: Outlook) -> Choice:
    """The lane of what is not dispatched yet. `has_bulk`: a pool that may be used has a bulk lane."""
    if isinstance(pipeline.lane, Lane):
        return Choice(lane=pipeline.lane, reason=f"the pipeline says lane: {pipeline.lane}")
    over_ms = round((pipeline.bulk_over_s or 0) * 1000)
    if not has_bulk:
        return Choice(lane=Lane.REALTIME, reason="none of the pools that may be used has a bulk lane")
    if outlook.left_ms is None:
        return Choice(lane=Lane.BULK, reason="there is no deadline")
    left, over = span(outlook.left_ms), span(over_ms)
    if outlook.left_ms <= over_ms:
        return Choice(lane=Lane.REALTIME, reason=f"{left} left until the deadline, bulk is for more than {over}")
    if in_danger(pipeline, outlook):
        return Choice(lane=Lane.REALTIME, reason=danger_words(outlook))
    return Choice(lane=Lane.BULK, reason=f"{left} left until the deadline, more than {over}")


def in_danger(pipeline: Pipeline, outlook: Outlook) -> bool:
    """Whether real time must begin now to meet the deadline, and still can; see the module's formula."""
    over_s, left_ms = pipeline.bulk_over_s, outlook.left_ms
    if over_s is None or left_ms is None or outlook.items == 0:
        return False
    least_ms = outlook.need_ms + outlook.call_ms
    grace_ms = min(_GRACE_MS, round(over_s * 1000) // _GRACE_SHARE)
    return least_ms <= left_ms <= least_ms + (_SPARE - 1) * outlook.need_ms + grace_ms


def danger_words(outlook: Outlook) -> str:
    """Why the deadline is in danger."""
    need, left = span(outlook.need_ms), span(outlook.left_ms or 0)
    items = f"{outlook.items:,} item{'' if outlook.items == 1 else 's'}"
    return (
        f"the deadline is in danger: {left} left, and {items} at {outlook.per_s:.3g} a second take {need} in real time"
    )


def pools_for(pipeline: Pipeline, lane: Lane, pools: Mapping[str, Pool], rights: Tenant) -> Selection:
    """Pools that may see the pipeline's documents for a tenant with these rights, and have this lane."""
    usable, left_out = [], []
    for name in pipeline.model.pools:
        why = _against(pipeline, lane, name, pools.get(name), rights)
        if why is None:
            usable.append(name)
        else:
            left_out.append((name, why))
    return Selection(usable=tuple(usable), left_out=tuple(left_out))


def _against(pipeline: Pipeline, lane: Lane, name: str, pool: Pool | None, rights: Tenant) -> str | None:
    documents = pipeline.sensitivity
    if pool is None:
        return "not in pools.yaml"
    if not rights.sensitivity.allows(documents):
        return f"the tenant may not submit {documents} documents"
    if rights.pools is not None and name not in rights.pools:
        return f"the tenant may use {', '.join(rights.pools) or 'none'} only"
    if not pool.sensitivity.allows(documents):
        return f"may see {pool.sensitivity} documents at most, these are {documents}"
    if lane is Lane.BULK and pool.bulk is None:
        return "has no bulk lane"
    return None


def realtime_per_s(pool: Pool, *, input_tokens: float, output_tokens: int, call_s: float = ASSUMED_CALL_S) -> float:
    """Items a second by the pool's limits, where an item has so many tokens of input and output.

    A call is for one item; a call of a pool that embeds is for as many as it may hold.
    """
    limits, embeds = pool.limits, pool.embeddings
    together = 1.0 if embeds is None else min(embeds.max_inputs, max(1.0, embeds.max_tokens / max(input_tokens, 1.0)))
    rates = [limits.slots / call_s * together]
    for per_minute, amount in (
        (limits.requests_per_minute, 1 / together),
        (limits.input_tokens_per_minute, max(input_tokens, 1.0)),
        (limits.output_tokens_per_minute, max(float(output_tokens), 1.0)),
    ):
        if per_minute is not None:
            rates.append(per_minute / 60 / amount)
    return min(rates)


def span(ms: int) -> str:
    """A time span in its two greatest units."""
    if ms < 0:
        return f"-{span(-ms)}"
    if ms < 10_000:
        return f"{ms / 1000:.3g} s"
    whole = ms // 1000
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            rest = whole % unit_s // part_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"
