"""What a verb says of itself: an example below its options, and every example can be typed."""

import shlex
import sys

import pytest

from kit.commands import VERBS, parsed
from nightmill.cli import main as cli
from nightmill.cli.examples import EXAMPLES
from nightmill.cli.program import as_called


def test_every_verb_has_examples_and_nothing_else_has() -> None:
    assert sorted(EXAMPLES) == sorted(VERBS)


@pytest.mark.parametrize("example", [each for examples in EXAMPLES.values() for each in examples])
def test_an_example_can_be_typed(example: str) -> None:
    """O1: names, options and values are those of the verb."""
    assert parsed(shlex.split(example)) in EXAMPLES


def test_help_shows_the_examples_of_its_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, examples in EXAMPLES.items():
        assert cli.run([*verb.split(), "-h"]) == 0
        said = capsys.readouterr().out
        assert all(example in said for example in examples)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nightmill status lists the jobs", "bin/nightmill status lists the jobs"),
        ("nightmill ps; nightmill logs broker", "bin/nightmill ps; bin/nightmill logs broker"),
        ("pip install 'nightmill[jre]'", "pip install 'nightmill[jre]'"),
        ("cp -r /srv/nightmill my-config", "cp -r /srv/nightmill my-config"),
        ("", ""),
    ],
)
def test_a_remedy_is_said_as_it_can_be_typed_here(monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    """O1: a remedy names the program as it was called, and nothing else is changed."""
    monkeypatch.setattr(sys, "argv", ["bin/nightmill"])
    assert as_called(text) == expected
