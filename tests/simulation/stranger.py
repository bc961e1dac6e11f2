"""Another installation that publishes into the same folder: it takes a version's number just before ours does.

Within one installation the log gives a number to one batch. Two that share a folder by mistake, or one whose broker was
made anew beside old results, have only the pointer between them.
"""

import json
from pathlib import Path


class Strangers:
    """What others have published, by dataset and version."""

    def __init__(self) -> None:
        self.pointers: dict[tuple[str, int], bytes] = {}

    def publish(self, root: Path, version: int) -> bool:
        """Publish a version of this number; False when somebody has it."""
        path, batch = root / f"pointer-{version:010d}.json", f"{root.name}.stranger"
        if path.exists():
            return False
        location = f"versions/{version:010d}-{batch}-g1/manifest.json"
        known = {"version": version, "batch_id": batch, "generation": 1}
        (root / location).parent.mkdir(parents=True)
        (root / location).write_text(json.dumps({**known, "files": []}))
        pointer = json.dumps({**known, "manifest": location}).encode()
        path.write_bytes(pointer)
        self.pointers[root.name, version] = pointer
        return True
