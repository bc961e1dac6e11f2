"""Bulk jobs of people, and the pools with a Batch API that they go to."""

from typing import TYPE_CHECKING, Any

from nightmill.kernel.domain.lifecycle import Lane
from nightmill.kernel.domain.settings import Config
from nightmill.provider_gateway.bulk.steps import Timing
from simulation.bulk.mix import FILES, INLINE, BulkShape
from simulation.user import Job, job_of, pipeline_of

if TYPE_CHECKING:
    from simulation.world import World

#: a day at the provider is some minutes here. Clocks of two hosts differ by up to 16 s (`skew`, `slew`)
TIMING = Timing(
    gather=1_000,
    submit_within=8_000,
    request=6_000,
    guard=20_000,
    list_lag=3_000,
    poll=1_500,
    longest_poll=15_000,
    retry=400,
    longest_retry=10_000,
    stuck=240_000,
    cancel_again=20_000,
    lost=60_000,
)
_PROVIDERS = {FILES: "openai", INLINE: "anthropic"}


def with_bulk(config: Config, shape: BulkShape) -> Config:
    """The config with a pool for each style of Batch API, at half the price."""
    document: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    for name, provider in _PROVIDERS.items():
        document["pools"][name] = {
            "provider": provider,
            "base_url": f"http://{name}/v1",
            "model": "simulated",
            "limits": {"slots": 1},
            "context_tokens": 4000,
            "call_deadline": "5s",
            "bulk": {"max_requests": shape.max_requests, "enqueued_tokens": shape.enqueued_tokens},
        }
    price = {"input_usd_per_million": 1, "output_usd_per_million": 2, "batch_discount": 0.5}
    document["prices"] = {"version": "1", "models": {"simulated": price}}
    return Config.model_validate(document)


def bulk_jobs(world: "World", shape: BulkShape) -> list[Job]:
    """Some over documents that the seed's realtime jobs have too, as the same pipeline in the other lane."""
    return [_job(world, shape, number, pool) for number, pool in enumerate(shape.pools)]


def _job(world: "World", shape: BulkShape, number: int, pool: str) -> Job:
    assert world.bulk is not None
    random = world.bulk.random
    name = random.choice(("label", "bulk"))
    pipeline = pipeline_of(world.shape, name, (pool,), lane=Lane.BULK)
    first = random.choice((0, 0, 500))
    documents = [f"d{index}" for index in range(first, first + max(1, shape.items // len(shape.pools)))]
    at_ms = world.now_ms + random.choice((0, 0, 2_000, 20_000))
    return job_of(world, pipeline, documents, number=500 + number, at_ms=at_ms)
