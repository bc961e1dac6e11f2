"""The token file: made once, for its owner alone."""

from pathlib import Path

import pytest

from nightmill.api.token import ensure_token
from nightmill.kernel.runtime.settings import SettingsError


def test_a_token_is_made_once_with_mode_600(tmp_path: Path) -> None:
    path = tmp_path / "home" / "token"
    token = ensure_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert ensure_token(path) == token
    assert [file.name for file in path.parent.iterdir()] == ["token"]


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    ensure_token(path)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match=r"mode 644.*chmod 600"):
        ensure_token(path)


def test_an_empty_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    with pytest.raises(SettingsError, match="empty; delete"):
        ensure_token(path)
