"""Assembles the dispatcher from its settings."""

from random import Random

from nightmill.dispatcher.service import Dispatcher
from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings, load_config
from nightmill.kernel.store.blobs import BlobStore


def build(settings: Settings) -> Service:
    """The dispatcher as a process runs it. Raises for a config folder that cannot be used."""
    return Dispatcher(config=load_config(settings.config_dir), blobs=BlobStore(settings.blobs_url), random=Random())
