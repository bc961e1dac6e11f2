"""What the routes work with: everything the api holds for its life, in one value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from fastapi import Depends, Request

from nightmill.api.estimating import Estimator
from nightmill.api.explaining import Explainer
from nightmill.api.ledger import Ledger
from nightmill.api.mirror import Mirror
from nightmill.api.results import ResultReader
from nightmill.api.webhooks import Receiver
from nightmill.kernel.domain.settings import Config, LocalServers
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import PipelineReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Made once by run.py (or a test), kept in `app.state.desk`."""

    mirror: Mirror
    blobs: BlobStore
    config: Config
    ledger: Ledger
    estimator: Estimator
    explainer: Explainer
    results: ResultReader
    receiver: Receiver
    pipelines: PipelineReader
    results_dir: Path
    now_ms: Callable[[], int]
    environment: Mapping[str, str] = field(repr=False)  #: keys of pools may be in it
    local_servers: LocalServers


def open_desk(
    *,
    mirror: Mirror,
    blobs: BlobStore,
    config: Config,
    results_dir: Path,
    ledger: Ledger,
    now_ms: Callable[[], int],
    environment: Mapping[str, str] = MappingProxyType({}),
    local_servers: LocalServers | None = None,
) -> Desk:
    return Desk(
        mirror=mirror,
        blobs=blobs,
        config=config,
        ledger=ledger,
        estimator=Estimator(blobs, config),
        explainer=Explainer(ledger, blobs, config),
        results=ResultReader(results_dir, blobs),
        receiver=Receiver(config.pools, environment),
        pipelines=PipelineReader(blobs),
        results_dir=results_dir,
        now_ms=now_ms,
        environment=environment,
        local_servers=local_servers or LocalServers(),
    )


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]
