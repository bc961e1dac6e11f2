"""What the doctor says of open transactions: which broker is asked, and what is to be done (E1, E11)."""

from pathlib import Path

import pytest

from nightmill.cli import main as cli
from nightmill.kernel.runtime.kafka.lasting import Lasting, led_by
from nightmill.kernel.runtime.kafka.requests import Cluster
from nightmill.local.errors import LaptopError
from nightmill.local.home import Home
from nightmill.local.processes import free_port
from nightmill.local.transactions import check_transactions, configured_broker, remedy_of

B = "kafka.example:9092"


def open_one(*, hangs: bool, commit: bool | None = None) -> Lasting:
    return Lasting(topic="item-planned", partition=3, first_offset=17, age_ms=61_000, hangs=hangs, commit=commit)


@pytest.mark.parametrize(
    ("each", "is_mended", "says"),
    [
        (open_one(hangs=False), True, "its coordinator ends it"),
        (open_one(hangs=False), False, "its coordinator ends it"),
        (open_one(hangs=True, commit=True), True, "up ends it within a minute"),
        (open_one(hangs=True, commit=True), False, "do not abort it"),
        (
            open_one(hangs=True, commit=False),
            False,
            "kafka-transactions.sh --bootstrap-server kafka.example:9092 abort --topic item-planned --partition 3 "
            "--start-offset 17",
        ),
        (open_one(hangs=True), False, "if its writer did not commit it: kafka-transactions.sh"),
    ],
)
def test_the_remedy(each: Lasting, is_mended: bool, says: str) -> None:
    assert remedy_of(each, B, is_mended=is_mended).startswith(says)


@pytest.mark.parametrize(
    ("kafka", "environment", "expected"),
    [
        ("local", {}, None),
        ("docker", {}, None),
        (B, {}, (B, False)),
        (B, {"NIGHTMILL_KAFKA": "other:1"}, (B, False)),
        ("local", {"NIGHTMILL_KAFKA": B}, (B, False)),
    ],
)
def test_which_broker_is_asked(
    tmp_path: Path, kafka: str, environment: dict[str, str], expected: tuple[str, bool] | None
) -> None:
    """One that does not run is not asked."""
    assert configured_broker(Home(root=tmp_path), kafka, environment) == expected
    with pytest.raises(LaptopError):
        configured_broker(Home(root=tmp_path), "nowhere", {})


@pytest.mark.parametrize("place", ["127.0.0.1:{}", "nowhere"])
def test_a_broker_that_is_away_is_a_note(place: str) -> None:
    bootstrap = place.format(free_port())
    (check,) = check_transactions(bootstrap, is_mended=False)
    assert (check.ok, check.fatal) == (False, False)
    assert check.detail.startswith(f"{bootstrap} can not be asked: ")


def test_the_doctor_asks_the_broker_that_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = f"127.0.0.1:{free_port()}"
    cli.run(["doctor", "--kafka", place, "--home", str(tmp_path / "home")])
    assert f"transactions: {place} can not be asked" in capsys.readouterr().out


def led(**leaders: dict[int, int]) -> Cluster:
    return Cluster(brokers={1: "a:1", 2: "b:1"}, leaders=leaders)


@pytest.mark.parametrize(
    ("cluster", "broker", "partitions"),
    [
        (led(t={0: 1, 1: 2, 2: 1}, u={0: 2}), 1, {"t": [0, 2]}),
        (led(t={0: 1, 1: 2, 2: 1}, u={0: 2}), 2, {"t": [1], "u": [0]}),
        (led(t={0: -1}), 1, {}),  # nobody leads it now: nobody can be asked
        (led(), 1, {}),
    ],
)
def test_each_broker_is_asked_for_its_own(cluster: Cluster, broker: int, partitions: dict[str, list[int]]) -> None:
    assert led_by(broker, cluster) == partitions
