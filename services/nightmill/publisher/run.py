"""Assembles the publisher from the settings of its process."""

from concurrent.futures import ThreadPoolExecutor

from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings
from nightmill.kernel.store.blobs import BlobStore
from nightmill.publisher.service import Publisher
from nightmill.publisher.targets import Targets


def build(settings: Settings) -> Service:
    """The publisher, with its files under the results folder and one thread for slow work."""
    blobs = BlobStore(settings.blobs_url)
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="publisher")
    return Publisher(blobs, Targets(settings.results_dir, blobs), executor)
