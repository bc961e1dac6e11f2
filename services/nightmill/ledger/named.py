"""The named queries of queries.sql: loaded once, checked against the parameters given."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HEAD = re.compile(r"^-- (\w+) --\n((?:-- .*\n)+)", re.MULTILINE)
_PARAMETER = re.compile(r"\{(\w+):")


class WrongParameters(ValueError):
    """The parameters given are not those the query names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQuery:
    """One question with its description."""

    name: str
    description: str
    sql: str

    @property
    def parameters(self) -> frozenset[str]:
        return parameters_of(self.sql)


def parameters_of(sql: str) -> frozenset[str]:
    """Names of the `{name:Type}` places of a query."""
    return frozenset(_PARAMETER.findall(sql))


def check_parameters(sql: str, given: Mapping[str, Any]) -> None:
    """Raises `WrongParameters` that names what is missing and what nobody asked for."""
    wanted = parameters_of(sql)
    missing, unknown = sorted(wanted - given.keys()), sorted(given.keys() - wanted)
    if missing:
        raise WrongParameters(f"parameter {missing[0]} is missing; the query names {', '.join(sorted(wanted))}")
    if unknown:
        raise WrongParameters(
            f"parameter {unknown[0]} is not in the query; write {{{unknown[0]}:String}} where it goes"
        )


def parse_queries(text: str) -> dict[str, NamedQuery]:
    """Queries of a file by name, in its order."""
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {
        head.group(1): NamedQuery(
            name=head.group(1),
            description=" ".join(line.removeprefix("-- ") for line in head.group(2).splitlines()),
            sql=text[head.end() : end].strip(),
        )
        for head, end in zip(heads, ends, strict=True)
    }


def load_queries() -> dict[str, NamedQuery]:
    """The queries that travel with this service."""
    return parse_queries(Path(__file__).with_name("queries.sql").read_text(encoding="utf-8"))
