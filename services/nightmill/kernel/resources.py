"""Where the files that travel with the code lie: schemas, contracts and deploy.

In a wheel they are package data; in a checkout they stand beside `services/`.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def resource(*parts: str) -> Path:
    """Path of a shipped file or folder, for example `resource("schemas")`."""
    packaged = _PACKAGE / "_data"
    root = packaged if packaged.is_dir() else _PACKAGE.parents[1]
    return root.joinpath(*parts)
