"""How large a submission may be: the pool's limits, what the provider taught, and what it counts as enqueued. Pure.

Providers count the input tokens of all unfinished batches of a model and fail a batch that goes beyond, after it was
created; and some take less than they document. What a refusal teaches is kept until submissions of the smaller size
went well.

Several processes share a limit by their partitions: each leaves the others their shares, so that nobody need ask, and
takes of its own no more than is left beside what the others have out, which may be more than their share for a while
after partitions have moved.
"""

from dataclasses import dataclass, replace

from nightmill.kernel.domain.settings import BulkLimits

#: our count of tokens differs from the provider's, and one too many fails the whole file
_HEADROOM_PERCENT = 90
#: with less room than this share of what is wanted, it is better to wait for a submission to end
_WORTH_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What one submission holds, or may hold. `tokens` None: nobody counts them."""

    requests: int
    bytes: int
    tokens: int | None


def configured(limits: BulkLimits) -> Size:
    """What pools.yaml allows a submission."""
    tokens = limits.enqueued_tokens
    return Size(
        requests=limits.max_requests,
        bytes=limits.max_bytes,
        tokens=None if tokens is None else max(1, tokens * _HEADROOM_PERCENT // 100),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """Input tokens of unfinished submissions, and how many of the installation's partitions are this process's."""

    here: int
    elsewhere: int = 0
    owned: int = 1
    partitions: int = 1


def room(most: Size, enqueued: Enqueued, *, next_tokens: int, wanted_tokens: int) -> Size | None:
    """What the next submission of this process may hold beside those that are out; None: wait for one of them.

    `next_tokens` are those of the next request, which goes whole, `wanted_tokens` those of all that wait. A request
    larger than the share goes alone when nothing of this process is out; one larger than the limit, when nothing of
    anybody is, and the provider decides.
    """
    if most.tokens is None:
        return most
    share = max(1, most.tokens * enqueued.owned // enqueued.partitions)
    left = most.tokens - enqueued.here - enqueued.elsewhere
    if next_tokens > share and not enqueued.here:
        fits = next_tokens <= left or not enqueued.elsewhere
        return replace(most, tokens=next_tokens) if fits else None
    left = min(left, share - enqueued.here)
    is_out = enqueued.here or enqueued.elsewhere
    worth = min(wanted_tokens, share // _WORTH_SHARE) if is_out else 0
    return replace(most, tokens=left) if left >= max(1, next_tokens, worth) else None


def shrunk(most: Size, refused: Size, *, in_tokens: bool) -> Size:
    """Half of what was refused, in the dimension that was too large."""
    if in_tokens:
        return replace(most, tokens=max(1, (refused.tokens or 1) // 2))
    return replace(most, requests=max(1, refused.requests // 2), bytes=max(1, refused.bytes // 2))


def grown(most: Size, limit: Size) -> Size:
    """Twice as much after a submission that was taken, up to what pools.yaml allows.

    A token limit that only a refusal taught doubles without end: pools.yaml knows none.
    """
    tokens = most.tokens
    if tokens is not None:
        tokens = tokens * 2 if limit.tokens is None else min(tokens * 2, limit.tokens)
    return Size(requests=min(most.requests * 2, limit.requests), bytes=min(most.bytes * 2, limit.bytes), tokens=tokens)
