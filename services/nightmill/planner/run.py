"""Assembles the planner from the settings of its process."""

import time

from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings, load_config
from nightmill.kernel.store.blobs import BlobStore
from nightmill.planner.lag import DispatcherLag
from nightmill.planner.service import Planner
from nightmill.planner.tokens import count_tokens, warm_up


def build(settings: Settings) -> Service:
    """The planner of an installation. Reads the config folder; raises `SettingsError`."""
    config = load_config(settings.config_dir)
    warm_up(pool.tokenizer for pool in config.pools.values())
    log = KafkaLog(settings.bootstrap, settings.namespace, settings.partitions)
    return Planner(
        blobs=BlobStore(settings.blobs_url),
        config=config,
        count=count_tokens,
        lag=DispatcherLag(log, time.monotonic),
    )
