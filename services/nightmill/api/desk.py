"""What the routes work with: everything the api holds for its life, in one value."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from nightmill.api.estimating import Estimator
from nightmill.api.explaining import Explainer
from nightmill.api.ledger import Ledger
from nightmill.api.mirror import Mirror
from nightmill.api.results import ResultReader
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore


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
    results_dir: Path
    now_ms: Callable[[], int]


def open_desk(
    *, mirror: Mirror, blobs: BlobStore, config: Config, results_dir: Path, ledger: Ledger, now_ms: Callable[[], int]
) -> Desk:
    return Desk(
        mirror=mirror,
        blobs=blobs,
        config=config,
        ledger=ledger,
        estimator=Estimator(blobs, config),
        explainer=Explainer(ledger, blobs),
        results=ResultReader(results_dir, blobs),
        results_dir=results_dir,
        now_ms=now_ms,
    )


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]
