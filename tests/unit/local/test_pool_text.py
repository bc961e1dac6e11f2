"""A pool put into the text of a pools.yaml: what was there stays, to the byte."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.local.pools.text import NotEditable, as_text, with_pool

POOL: dict[str, Any] = {
    "provider": "anthropic",
    "base_url": "https://api.anthropic.com/v1",
    "model": "claude-haiku-5-5",
    "key": {"env": "ANTHROPIC_API_KEY"},
    "limits": {"slots": 8, "requests_per_minute": 4000},
    "context_tokens": 200000,
    "anthropic_version": "2026-10-21",
}
ADDED = """\
  new:
    provider: anthropic
    base_url: https://api.anthropic.com/v1
    model: claude-haiku-5-5
    key: {env: ANTHROPIC_API_KEY}
    limits: {slots: 8, requests_per_minute: 4000}
    context_tokens: 200000
    anthropic_version: '2026-10-21'
"""
ONE = "pools:\n  a:\n    model: m   # why\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ONE, ONE + ADDED),
        (ONE.rstrip("\n"), ONE + ADDED),
        # a comment as deep as the fields is the pool's, one further out is of what follows
        (f"# head\n{ONE}    # of a\n\n# foot\n", f"# head\n{ONE}    # of a\n{ADDED}\n# foot\n"),
        (f"{ONE}  # of the next\n", f"{ONE}{ADDED}  # of the next\n"),
        (f"{ONE}other: 1\n", f"{ONE}{ADDED}other: 1\n"),
        (f"{ONE}...\n", f"{ONE}{ADDED}...\n"),
        ("pools: {}  # none yet\n# foot\n", f"pools:  # none yet\n{ADDED}# foot\n"),
        ("pools: {}", f"pools:\n{ADDED}"),
        ("pools:\n  a: {model: m,\n      limits: {slots: 1}}\n", None),
        (ONE.replace("\n", "\r\n"), (ONE + ADDED).replace("\n", "\r\n")),
    ],
)
def test_the_rest_stays_as_it_was_written(before: str, after: str | None) -> None:
    changed = with_pool(before, "new", POOL)
    assert changed == (before + ADDED if after is None else after)


def test_it_is_indented_as_the_others_are() -> None:
    before = "pools:\n    a:\n        model: m\n"
    assert "\n    new:\n        provider: anthropic\n" in with_pool(before, "new", POOL)


def test_pools_in_one_line() -> None:
    before = "{pools: {a: {model: m}}}  # all of it\n"
    changed = with_pool(before, "new", POOL)
    assert changed.endswith(", a: {model: m}}}  # all of it\n")
    assert yaml.safe_load(changed)["pools"]["new"] == POOL


@pytest.mark.parametrize(
    "text", ["pools: []\n", "- 1\n", "other: {}\n", "pools:\n  a: |\n    # text\n", "pools: {? a}\n"]
)
def test_what_can_not_be_edited_safely_is_left_alone(text: str) -> None:
    try:
        changed = with_pool(text, "new", POOL)
    except NotEditable:
        return
    assert yaml.safe_load(changed)["pools"] == {**yaml.safe_load(text)["pools"], "new": POOL}


_words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_pools = st.dictionaries(
    st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True),
    st.dictionaries(_words, st.one_of(_words, st.integers(), st.booleans(), st.dictionaries(_words, _words))),
    max_size=4,
)


@settings(max_examples=40)
@given(
    pools=_pools,
    flow=st.sampled_from([None, False, True]),
    tail=st.sampled_from(["", "# foot\n", "\n  # x\n", "z: 1\n"]),
    name=st.sampled_from(["new", "null", "1", "1e3", "yes", "2026-11-30"]),
)
def test_every_file_says_what_it_said_and_the_new_pool(pools: Any, flow: bool | None, tail: str, name: str) -> None:
    pools.pop(name, None)
    text = yaml.safe_dump({"pools": pools}, default_flow_style=flow, allow_unicode=True, sort_keys=False) + tail
    try:
        old = yaml.safe_load(text)
    except yaml.YAMLError:
        return  # a field after a document in one line
    try:
        new = yaml.safe_load(with_pool(text, name, POOL))
    except NotEditable:
        return
    assert new == {**old, "pools": {**old["pools"], name: POOL}}


def test_as_text_is_what_is_put_in() -> None:
    assert as_text("new", POOL) == ADDED
