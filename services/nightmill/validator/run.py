"""Assembles the validator."""

from nightmill.kernel.runtime.settings import Settings
from nightmill.kernel.store.blobs import BlobStore
from nightmill.validator.service import Validator


def build(settings: Settings) -> Validator:
    return Validator(BlobStore(settings.blobs_url))
