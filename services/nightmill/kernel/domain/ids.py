"""Identities: datasets, jobs, batches, blocks, items and attempts (M1, M3).

A dataset id is `tenant.pipeline`; a job id begins with its dataset id, a batch id with its job id, so that everything
of a dataset can be told from its own id. Names are of `[a-z0-9-]`, so `.` and `/` separate safely.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime

NAME = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemIdentity:
    """Everything that makes an item's answer what it is (M3). Versions are digests of content."""

    tenant: str
    source_id: str
    source_version: str
    pipeline: str
    transform_version: str
    prompt_version: str
    model_policy_version: str
    output_schema_version: str


def digest(data: bytes) -> str:
    """sha256 of `data` in hex: the address of a blob and the version of a text."""
    return hashlib.sha256(data).hexdigest()


def fields_digest(*fields: str) -> bytes:
    """sha256 over length-prefixed fields, so that no two lists of fields share one digest by their separators."""
    state = hashlib.sha256()
    for field in fields:
        raw = field.encode()
        state.update(len(raw).to_bytes(4, "big"))
        state.update(raw)
    return state.digest()


def item_key(identity: ItemIdentity) -> str:
    """The idempotency key, base64url without padding (43 characters)."""
    raw = fields_digest(
        identity.tenant,
        identity.source_id,
        identity.source_version,
        identity.pipeline,
        identity.transform_version,
        identity.prompt_version,
        identity.model_policy_version,
        identity.output_schema_version,
    )
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def attempt_id(key: str, ordinal: int) -> str:
    """Id of one upstream call; also a provider's custom_id (at most 64 of `[A-Za-z0-9_-]`)."""
    return f"{key}-{ordinal}"


def dataset_id(tenant: str, pipeline: str) -> str:
    """Id of what readers read."""
    return f"{tenant}.{pipeline}"


def job_id(dataset: str, submitted_at_ms: int, suffix: str) -> str:
    """Id of a job; sorts by time within its dataset. `suffix` makes two jobs of one second differ."""
    stamp = datetime.fromtimestamp(submitted_at_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{dataset}.{stamp}-{suffix}"


def batch_id(job: str) -> str:
    """Id of the one batch of a job on files."""
    return f"{job}.1"


def job_of(batch: str) -> str:
    """Job of a batch id."""
    return batch.rsplit(".", 1)[0]


def dataset_of(id_: str) -> str:
    """Dataset of a job or batch id."""
    tenant, pipeline, *_ = id_.split(".")
    return dataset_id(tenant, pipeline)


def block_id(batch: str, generation: int, first_ordinal: int) -> str:
    """Id of a block's admission in one generation."""
    return f"{batch}/{generation}/{first_ordinal}"
