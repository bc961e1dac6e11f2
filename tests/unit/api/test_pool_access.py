"""A job whose pools can not be used is refused, where it would wait for ever (P6)."""

from pathlib import Path
from typing import Any

import pytest

from kit.api_server import CONFIG
from nightmill.api.errors import ApiError
from nightmill.api.pool_access import check_access
from nightmill.api.requests import JobRequest, UploadedInput
from nightmill.kernel.domain.lifecycle import InputFormat
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config, EmbeddingLimits, KeySource, LocalServers


def config(folder: Path) -> Config:
    sim = CONFIG.pools["sim"]
    pools = {
        "open": sim,
        "by-env": sim.model_copy(update={"key": KeySource(env="SOME_KEY")}),
        "by-file": sim.model_copy(update={"key": KeySource(file=str(folder / "key"))}),
        "local": sim.model_copy(update={"base_url": "local-model"}),
        "nowhere": sim.model_copy(update={"base_url": "http://host:99999/v1"}),
        "vectors": sim.model_copy(update={"base_url": "local-model", "embeddings": EmbeddingLimits()}),
    }
    return CONFIG.model_copy(update={"pools": pools})


def request(*pools: str) -> JobRequest:
    fields: dict[str, Any] = {"name": "label", "input": {"id": "id", "fields": ["text"]}, "prompt": "{{ text }}"}
    model = {"pools": pools, "max_output_tokens": 5}
    pipeline = Pipeline.model_validate({**fields, "output": {"type": "object"}, "model": model})
    rows = UploadedInput(format=InputFormat.JSONL, blob="0" * 64, bytes=1, name="rows.jsonl")
    return JobRequest(pipeline=pipeline, input=rows)


@pytest.mark.parametrize(
    ("pools", "says", "remedy"),
    [
        (["by-env"], "pool by-env: environment variable SOME_KEY is not set", "export SOME_KEY, and start it again"),
        (["by-file"], "key can not be read: No such file", "and chmod 600 it, and start it again"),
        (["local"], "pool local: its local model server is not known here", "set NIGHTMILL_MODEL_URL"),
        (
            ["vectors"],
            "pool vectors: the local embeddings model does not run here",
            "make setup-model, or set NIGHTMILL_EMB",
        ),
        (["nowhere"], "pool nowhere: its base_url is no address", "mend base_url in pools.yaml"),
        (["local", "by-env"], "known here; pool by-env: environment variable", "set NIGHTMILL_MODEL_URL, or export"),
    ],
)
def test_every_pool_lacks_something(tmp_path: Path, pools: list[str], says: str, remedy: str) -> None:
    """P6: pool, place and remedy are named, never a key."""
    with pytest.raises(ApiError) as caught:
        check_access(request(*pools), config(tmp_path), {}, LocalServers())
    assert (caught.value.status, caught.value.code) == (422, "pool_unusable")
    assert says in caught.value.message
    assert remedy in caught.value.remedy


def test_a_file_that_others_may_read_is_no_key(tmp_path: Path) -> None:
    """P6"""
    (tmp_path / "key").write_text("sk-secret")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(ApiError, match="can be read by others") as caught:
        check_access(request("by-file"), config(tmp_path), {}, LocalServers())
    assert "sk-secret" not in caught.value.message
    (tmp_path / "key").chmod(0o600)
    check_access(request("by-file"), config(tmp_path), {}, LocalServers())


@pytest.mark.parametrize("pools", [["open"], ["by-file", "open"], ["by-env"], ["local"], ["vectors"]])
def test_one_usable_pool_is_enough(tmp_path: Path, pools: list[str]) -> None:
    servers = LocalServers(model_url="http://127.0.0.1:1/v1", embeddings_url="http://127.0.0.1:2/v1")
    check_access(request(*pools), config(tmp_path), {"SOME_KEY": "sk-1"}, servers)
