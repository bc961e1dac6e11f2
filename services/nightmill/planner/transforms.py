"""What the planner needs of a frozen pipeline, put together once and kept: its columns, its meter, its models."""

from dataclasses import dataclass
from functools import lru_cache

from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.kernel.store.blocks import PipelineReader
from nightmill.planner.estimate import usable_pools
from nightmill.planner.expand import models_of
from nightmill.planner.meter import ENCODINGS, Count, Meter
from nightmill.planner.rows import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A pipeline ready for planning, for one tenant."""

    pipeline: Pipeline
    columns: Columns
    meter: Meter
    models: tuple[str, ...]


class Transforms:
    """Transforms by pipeline digest and tenant, through a cache."""

    def __init__(self, blobs: BlobStore, config: Config, count: Count) -> None:
        self._pipelines = PipelineReader(blobs)
        self._config, self._count = config, count
        self._cached = lru_cache(maxsize=64)(self._build)

    def pipeline(self, digest: str) -> Pipeline:
        """Raises `BlobMissing`, `Unavailable`, and pydantic's ValidationError for a blob that is no pipeline."""
        return self._pipelines.get(digest)

    def get(self, digest: str, tenant: str) -> Transform:
        """Raises as `pipeline`, and `PromptError`."""
        return self._cached(digest, tenant)

    def _build(self, digest: str, tenant: str) -> Transform:
        pipeline = self.pipeline(digest)
        pools = usable_pools(pipeline, tenant, self._config).values()
        # admission refused any other tokenizer; one that was taken out of the config since counts nothing
        countable = [pool for pool in pools if pool.tokenizer in ENCODINGS]
        return Transform(
            pipeline=pipeline,
            columns=Columns.of(pipeline),
            meter=Meter(pipeline, countable, self._count),
            models=models_of(pipeline, self._config),
        )
