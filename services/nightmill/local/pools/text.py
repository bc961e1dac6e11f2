"""One more pool in the text of a pools.yaml (pure). Everything else of the file stays as it was written.

A YAML library that writes a whole file would lose its comments and its layout, so the new lines are put in as text,
where the parser says that the list of pools ends. What comes out is read again before anybody gets it: the file must
say what it said before, and the new pool. A file that is written in a way for which this fails is left alone.
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml

_FIELD = "pools"
_STEP = 2
_UNFOLDED = 1 << 20  #: columns; the dumper folds longer lines


class NotEditable(Exception):
    """The text is written in a way into which no line can be put safely."""


def with_pool(text: str, name: str, pool: Mapping[str, Any]) -> str:
    """`text` with the pool `name` after those it has. Raises `NotEditable`.

    `text` is a mapping with a field `pools`, in which `name` does not stand yet.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    pools = _pools_of(yaml.compose(text, Loader=yaml.SafeLoader))
    if pools.flow_style and pools.value:
        after = pools.start_mark.index + 1
        changed = f"{text[:after]}{json.dumps(name)}: {json.dumps(pool)}, {text[after:]}"
    elif pools.flow_style:
        changed = _into_empty(text, pools, _lines(name, pool, _STEP, _STEP, newline), newline)
    else:
        changed = _into_block(text, pools, name, pool, newline)
    if not _says_the_same(text, changed, name, pool):
        raise NotEditable
    return changed


def as_text(name: str, pool: Mapping[str, Any]) -> str:
    """The pool as it stands in a pools.yaml below `pools:`."""
    return _lines(name, pool, _STEP, _STEP, "\n")


def _pools_of(root: Any) -> yaml.MappingNode:
    fields = root.value if isinstance(root, yaml.MappingNode) else ()
    found = next((value for name, value in fields if name.value == _FIELD), None)
    if not isinstance(found, yaml.MappingNode):
        raise NotEditable
    return found


def _into_empty(text: str, pools: yaml.MappingNode, lines: str, newline: str) -> str:
    """In the place of `{}`; what follows it in its line is a comment, and stays there."""
    start, end = pools.start_mark.index, pools.end_mark.index
    line_end = text.find("\n", end)
    rest, below = (text[end:], "") if line_end < 0 else (text[end : line_end + 1], text[line_end + 1 :])
    head = text[:start].rstrip(" ") + rest.rstrip("\r\n") + newline
    return head + lines + below


def _into_block(text: str, pools: yaml.MappingNode, name: str, pool: Mapping[str, Any], newline: str) -> str:
    first_name, first_pool = pools.value[0]
    indent = first_name.start_mark.column
    step = _STEP
    if isinstance(first_pool, yaml.MappingNode) and not first_pool.flow_style:
        step = first_pool.value[0][0].start_mark.column - indent
    at = _end_of_block(text, pools.end_mark.index, indent)
    head = text[:at]
    if not head.endswith("\n"):
        head += newline
    return head + _lines(name, pool, indent, step, newline) + text[at:]


def _end_of_block(text: str, next_at: int, indent: int) -> int:
    """Where the line after the last pool begins; `next_at` is where the next thing of the file does.

    Blank lines and comments in between belong to what follows, except comments as deep as the fields of a pool.
    """
    end = len(text) if next_at >= len(text) else text.rfind("\n", 0, next_at) + 1
    lines = text[:end].splitlines(keepends=True) if "\n" in text[:end] else [text[:end]]
    kept = len(lines)
    while kept and (not lines[kept - 1].strip() or lines[kept - 1].lstrip().startswith("#")):
        kept -= 1
    while kept < len(lines) and _depth_of_comment(lines[kept]) > indent:
        kept += 1
    return sum(map(len, lines[:kept]))


def _depth_of_comment(line: str) -> int:
    rest = line.lstrip(" ")
    return len(line) - len(rest) if rest.startswith("#") else -1


def _lines(name: str, pool: Mapping[str, Any], indent: int, step: int, newline: str) -> str:
    text: str = yaml.safe_dump(
        {name: dict(pool)},
        indent=step,
        width=_UNFOLDED,
        default_flow_style=None,  # what holds no further fields stands in one line, as in the files that are shipped
        sort_keys=False,
        allow_unicode=True,
    )
    return "".join(f"{' ' * indent}{line}{newline}" for line in text.splitlines())


def _says_the_same(before: str, after: str, name: str, pool: Mapping[str, Any]) -> bool:
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
    except (yaml.YAMLError, ValueError):
        return False
    return bool(new == {**old, _FIELD: {**old[_FIELD], name: dict(pool)}})
