"""The command, run in this process."""

from pathlib import Path

import pytest

from nightmill.cli import main as cli


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], home: Path) -> None:
        self._capsys, self._home = capsys, home

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error; --home is added."""
        code = cli.run([*arguments, "--home", str(self._home)])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err
