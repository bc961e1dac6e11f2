"""A gateway's calling side as a process that waits to be killed: `calling_program.py FOLDER BASE_URL UNTIL`."""

import sys
import time
from pathlib import Path

from nightmill.provider_gateway.caller import Call, Permit
from nightmill.provider_gateway.http import HttpCaller
from nightmill.provider_gateway.outbox import Outbox
from nightmill.provider_gateway.render import Renderer
from unit.provider_gateway.makers import make_access, make_documents, make_order, make_shard

LANE = "sim@0-0"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main(folder: Path, base_url: str, until: str) -> None:
    documents = make_documents(folder / "blobs")
    outbox = Outbox(folder / "outbox-0")
    caller = HttpCaller(outbox, put_blob=documents.blobs.put, authorizations={}, clock_ms=now_ms)
    shard, renderer = make_shard(documents, range(2)), Renderer(documents.blobs)
    calls = [renderer.call(make_order(shard, index), make_access(base_url), LANE) for index in range(2)]
    caller.start([call for call in calls if isinstance(call, Call)])
    if until != "accepted":
        caller.permit(LANE, Permit(slots=2, until_ms=now_ms() + 60_000))
    while until == "in flight" and len(outbox.marks()) < 2:
        time.sleep(0.005)
    if until == "in flight":
        time.sleep(0.3)  # both have reached the provider
    while until == "landed" and len(outbox.answers()) < 2:
        time.sleep(0.005)
    print(until, flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
