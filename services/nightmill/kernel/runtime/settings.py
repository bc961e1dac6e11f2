"""What a process is told from outside, read once at start: the environment, and the config folder.

Errors name file, line, field, value and remedy.
"""

import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from platformdirs import user_data_path
from pydantic import BaseModel, ValidationError

from nightmill.kernel.domain.prices import OVERLAP, PriceFile
from nightmill.kernel.domain.settings import Config, LocalServers, Pool, Pools, Prices, Retry, Tenants, listing
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.price_list import price_list

_Model = TypeVar("_Model", bound=BaseModel)
_NAMESPACE = re.compile(r"^[a-z0-9][a-z0-9-]{0,40}\Z")
_SHOWN = 80
_VALUES = reprlib.Repr()  # a whole value may be long, nested too deeply for repr, or a number of too many digits
_VALUES.maxstring = _VALUES.maxother = 2 * _SHOWN
#: what a file may hold once its aliases are written out, and how deep
_MAX_NODES = 100_000
_MAX_DEPTH = 100
_YAML_KINDS = {dict: "fields", list: "a list", str: "a text", type(None): "nothing"}


class SettingsError(Exception):
    """A setting or config file that can not be used; the text names place, value and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one process of an installation."""

    home: Path
    bootstrap: str
    namespace: str = "nightmill"
    partitions: int = 2
    config_dir: Path
    instance: str = "0"
    blobs_url: str
    clickhouse_url: str | None = None  #: None: embedded, under the home
    local_servers: LocalServers = LocalServers()
    metrics_port: int | None = None
    environment: Mapping[str, str]  #: where named key variables are looked up

    @property
    def state_dir(self) -> Path:
        return self.home / "state"

    @property
    def outbox_dir(self) -> Path:
        return self.home / "outbox"

    @property
    def ledger_dir(self) -> Path:
        return self.home / "ledger"

    @property
    def results_dir(self) -> Path:
        return self.home / "results"

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    @property
    def token_file(self) -> Path:
        return self.home / "token"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from `NIGHTMILL_*` variables. Raises `SettingsError`."""
    home = Path(environment.get("NIGHTMILL_HOME") or user_data_path("nightmill")).absolute()
    namespace = environment.get("NIGHTMILL_NAMESPACE", "nightmill")
    if not _NAMESPACE.match(namespace):
        raise SettingsError(f"NIGHTMILL_NAMESPACE {namespace!r}: use at most 41 of a-z, 0-9 and '-'")
    return Settings(
        home=home,
        bootstrap=environment.get("NIGHTMILL_KAFKA", "127.0.0.1:9092"),
        namespace=namespace,
        partitions=_integer(environment, "NIGHTMILL_PARTITIONS", 1_000) or 2,
        config_dir=Path(environment.get("NIGHTMILL_CONFIG") or resource("deploy", "config")).absolute(),
        instance=environment.get("NIGHTMILL_INSTANCE", "0"),
        blobs_url=environment.get("NIGHTMILL_BLOBS") or str(home / "blobs"),
        clickhouse_url=environment.get("NIGHTMILL_CLICKHOUSE"),
        local_servers=LocalServers(
            model_url=environment.get("NIGHTMILL_MODEL_URL"),
            embeddings_url=environment.get("NIGHTMILL_EMBEDDINGS_URL"),
        ),
        metrics_port=_integer(environment, "NIGHTMILL_METRICS_PORT", 65_535),
        environment=dict(os.environ if environment is os.environ else environment),
    )


def load_config(folder: Path) -> Config:
    """The config folder, whole. Raises `SettingsError`."""
    if not (folder / "pools.yaml").exists():
        raise SettingsError(
            f"{folder}: no folder with pools.yaml, prices.yaml, retry.yaml and tenants.yaml; "
            f"copy the one that ships and change it: cp -r {resource('deploy', 'config')} my-config"
        )
    pools = load_yaml(folder / "pools.yaml", Pools).pools
    return Config(
        pools=pools,
        prices=_price_book(load_yaml(folder / "prices.yaml", PriceFile), pools),
        retry=load_yaml(folder / "retry.yaml", Retry),
        tenants=load_yaml(folder / "tenants.yaml", Tenants).tenants,
    )


def _price_book(file: PriceFile, pools: Mapping[str, Pool]) -> Prices:
    """prices.yaml on top of what the lists of providers say of the pools' models."""
    lists = price_list()
    listed = {listing(pool): periods for pool in pools.values() if (periods := lists.periods(pool))}
    version = lists.source if listed else None
    return Prices(version=file.version, models=file.models, listed=listed, list_version=version)


class _Loader(yaml.SafeLoader):
    """Says where a date, a number or the like is wrong, as it does of all else."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep=deep)
        except (ArithmeticError, ValueError) as error:
            text = f"{error}; put a text in quotes"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark) from error
        if isinstance(value, int) and value.bit_length() > 63:
            text = "a whole number of more than 64 bits; write a smaller one, or a text in quotes"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        return value


def load_yaml(path: Path, model: type[_Model]) -> _Model:
    """A YAML file as a model. Raises `SettingsError` that names file, line, field, value and remedy."""
    text = read_text(path)
    try:
        node = yaml.compose(text, Loader=_Loader)
        _refuse_floods(node, path)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 a SafeLoader
    except RecursionError as error:
        raise SettingsError(f"{path}: nested too deeply; write it flatter") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
        raise SettingsError(f"{path}{line}: not YAML: {reason}") from error
    if not isinstance(value, dict):
        found = _YAML_KINDS.get(type(value), "a single value")
        raise SettingsError(f"{path}: expected fields with values, found {found}")
    _refuse_repeats(node, path)
    return validated(value, model, path, node)


def _refuse_floods(root: Any, path: Path) -> None:
    """An alias may name what it stands in, or many that name many: who walks the value would come to no end."""
    sizes: dict[int, int] = {}  # of what is finished, aliases written out; 0 while it is open

    def size(node: Any, depth: int) -> int:
        known = sizes.get(id(node))
        if known == 0:
            raise SettingsError(f"{path}: an alias refers to what holds it; write the value out")
        if known is not None:
            return known
        line = node.start_mark.line + 1
        if depth > _MAX_DEPTH:
            raise SettingsError(f"{path}, line {line}: nested deeper than {_MAX_DEPTH} levels; write it flatter")
        sizes[id(node)] = 0
        total = 1 + sum(size(child, depth + 1) for child in _children(node))
        if total > _MAX_NODES:
            raise SettingsError(f"{path}, line {line}: holds more than {_MAX_NODES:,} values; remove aliases or fields")
        sizes[id(node)] = total
        return total

    if root is not None:
        size(root, 0)


def _children(node: Any) -> list[Any]:
    match node:
        case yaml.MappingNode():
            return [child for pair in node.value for child in pair]
        case yaml.SequenceNode():
            return list(node.value)
    return []


def validated(value: dict[str, Any], model: type[_Model], path: Path, node: Any) -> _Model:
    """`value` as a model; `node` is its YAML tree, for line numbers. Raises `SettingsError`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise SettingsError("\n".join(_problem(path, node, each) for each in error.errors()[:10])) from error


def read_text(path: Path) -> str:
    """A UTF-8 file. Raises `SettingsError`."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise SettingsError(f"{path}: is a folder, expected a file") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise SettingsError(f"{path}: can not be read: {error.strerror}") from error


def _refuse_repeats(node: Any, path: Path) -> None:
    """YAML keeps the last of two equal fields without a word."""
    seen: set[str] = set()
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if name.value in seen:
            line = name.start_mark.line + 1
            raise SettingsError(f"{path}, line {line}: field {name.value} stands twice; remove one")
        seen.add(name.value)
        _refuse_repeats(value, path)
    for value in node.value if isinstance(node, yaml.SequenceNode) else ():
        _refuse_repeats(value, path)


def _problem(path: Path, node: Any, error: Any) -> str:
    location, value = _as_written(error["loc"], node), error.get("input")
    if error["type"] == OVERLAP:
        entry = error["ctx"]["entry"]
        location, value = [*location, entry], value[entry]
    field = ".".join(str(part) for part in location)
    shown = _value_shown(value)
    if error["type"] == "extra_forbidden":
        return f"{path}, line {_line(node, location)}: unknown field {field}; remove it or mend its name"
    if error["type"] == "missing":
        return f"{path}, line {_line(node, location[:-1])}: field {field} is missing"
    # whoever wrote a key into the file should not find it in a log too
    told = "(not shown)" if "key" in location else shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
    return f"{path}, line {_line(node, location)}: {field} = {told}: {error['msg']}"


def _as_written(location: Sequence[Any], node: Any) -> list[Any]:
    """A place without the steps of the model that the file does not have: checks, and lists of a single value."""
    written: list[Any] = []
    for part in location:
        if isinstance(part, str) and part.startswith("function-"):
            continue
        if isinstance(part, int) and isinstance(node, yaml.MappingNode):
            continue
        written.append(part)
        node = _child(node, part)
    return written


def _child(node: Any, part: Any) -> Any:
    """What stands at a name or number in a node; None where nothing does."""
    match node:
        case yaml.MappingNode():
            return next((value for name, value in node.value if name.value == str(part)), None)
        case yaml.SequenceNode() if isinstance(part, int) and part < len(node.value):
            return node.value[part]
    return None


def _value_shown(value: Any) -> str:
    # short values whole, as they were written
    return repr(value) if isinstance(value, str) and len(value) <= _SHOWN else _VALUES.repr(value)


def _line(node: Any, location: list[Any]) -> int:
    """Line (from 1) of the node at `location`, or of the nearest one above it."""
    line: int = node.start_mark.line + 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = (node.value[part], node.value[part])
        else:
            found = None
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _integer(environment: Mapping[str, str], name: str, most: int) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
        raise SettingsError(f"{name} = {text!r}: expected a whole number from 1 to {most}")
    return int(text)
