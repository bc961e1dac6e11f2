"""What a process is made of: its service, and what stands in the places of threads, disks, provider and targets."""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from nightmill.dispatcher.service import Dispatcher
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings
from nightmill.ledger.service import Ledger
from nightmill.planner.service import Planner
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.run import access_of
from nightmill.provider_gateway.service import ProviderGateway
from nightmill.publisher.service import Publisher
from nightmill.rate_governor.service import RateGovernor
from nightmill.validator.service import Validator
from simulation.bulk.jobs import TIMING
from simulation.bulk.runner import IdleRunner
from simulation.caller import SimulatedCaller
from simulation.seams import SimulatedBlobs, SimulatedTargets, Turns

if TYPE_CHECKING:
    from simulation.process import Process


def service_of(process: "Process") -> Service:
    """A service as its run.py builds it, on this process's part of the world."""
    world = process.world
    blobs = SimulatedBlobs(world.blobs, lambda: world.happens("blobs_away"))
    match process.service:
        case "planner":
            lag = world.item_lag
            return Planner(blobs=blobs, config=world.config, count=_count, lag=lag, mark=world.shape.lag_mark)
        case "dispatcher":
            return Dispatcher(config=world.config, blobs=blobs, random=Random(world.random.random()))
        case "validator":
            return Validator(blobs)
        case "publisher":
            process.turns = Turns()
            targets = SimulatedTargets(world.results, blobs, process.point, lambda: world.staging_away, world.rival)
            return Publisher(blobs, targets, process.turns)
        case "rate_governor":
            return RateGovernor(world.config.pools)
        case "ledger":
            return Ledger(cast(Any, world.ledger_seen_by(process)))
    return _gateway(process, blobs)


def _gateway(process: "Process", blobs: SimulatedBlobs) -> Service:
    world = process.world
    settings = Settings(home=process.home, bootstrap="", config_dir=process.home, blobs_url="", environment={})
    config = world.config
    accesses = {name: access_of(name, pool, config.prices, settings)[0] for name, pool in config.pools.items()}
    outbox = Outbox(Path(process.outbox_path))
    process.caller = SimulatedCaller(
        outbox,
        world.provider,
        world.random,
        host=process.name,
        clock_ms=lambda: process.now_ms,
        put_blob=blobs.put,
        happens=world.happens,
    )
    if world.bulk is not None:
        process.runner = world.bulk.runner(process, str(process.bulk_folder), blobs)
    return ProviderGateway(
        instance=process.instance,
        pools=accesses,
        blobs=blobs,
        outbox=outbox,
        caller=process.caller,
        runner=process.runner or IdleRunner(),
        bulk_timing=TIMING,
        partitions=world.broker.partitions,
    )


def _count(texts: Any, encoding: str) -> list[int]:
    """Every text is ten tokens: the arithmetic of a simulation should be easy to follow."""
    return [10] * len(texts)
