"""The api over real HTTP, with the memory log behind it, and a client that has its token."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kit.api_server import ServedApi


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ServedApi]:
    with ServedApi(tmp_path / "home") as served:
        yield served


@pytest.fixture
def http(api: ServedApi) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {api.token}"}
    with httpx.Client(base_url=api.url, headers=headers, timeout=30, trust_env=False) as client:
        yield client
