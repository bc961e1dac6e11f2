"""A stage on each of the two logs, and a ledger over each of the two forms of its store."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.children import Children
from conformance.recorder import Stage
from kit import clickhouse as kit
from kit.broker import OwnBroker, bootstrap, namespace, own_broker
from kit.clickhouse import FORMS, Open
from nightmill.kernel.runtime.kafka import KafkaLog
from nightmill.kernel.runtime.kafka.admin import create_topics, delete_topics
from nightmill.kernel.runtime.memory import MemoryBroker


@pytest.fixture(params=["memory", "kafka"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "memory":
        yield Stage(MemoryBroker(partitions=2).log("test"), tmp_path)
        return
    name = namespace()
    create_topics(bootstrap(), name, partitions=2)
    yield Stage(KafkaLog(bootstrap(), name, 2), tmp_path, name)
    delete_topics(bootstrap(), name)


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Members in processes of their own, on the shared broker."""
    yield from _children(bootstrap(), tmp_path)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    """A broker to be killed."""
    with own_broker(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def fragile(broker: OwnBroker, tmp_path: Path) -> Iterator[Children]:
    """Members on the broker that will be killed. It must be up again at the end."""
    yield from _children(broker.bootstrap, tmp_path)


@pytest.fixture(params=FORMS)
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens a ledger process of the form under test; `name` chooses its home and database."""
    with ExitStack() as stack:
        url = stack.enter_context(kit.server(tmp_path / "server")) if request.param == "server" else None
        names: dict[str, str] = {}

        def open_(name: str = "one") -> kit.LedgerProcess:
            process = kit.LedgerProcess(tmp_path / name, names.setdefault(name, kit.namespace()), url)
            stack.callback(process.stop)
            return process

        yield open_


def _children(address: str, folder: Path) -> Iterator[Children]:
    name = namespace()
    create_topics(address, name, partitions=2)
    children = Children(address, name, folder)
    try:
        yield children
    finally:
        children.kill_all()
    delete_topics(address, name)
