"""Runs in the peer's environment: flexllm's batch with its checkpoint file. Prints one JSON object.

    python peer_flexllm.py BASE_URL REQUEST CHECKPOINT

REQUEST is a JSON file {model, in_flight, max_output_tokens, response_format, conversations}; CHECKPOINT the file to
which flexllm appends every answer, and from which it would go on.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from flexllm import LLMClient  # type: ignore[import-not-found]  # of another environment

_TIMEOUT_S = 60
#: None would be 1,000 a second
_NO_LIMIT = 0


async def main(base_url: str, request: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    client = LLMClient(
        base_url=base_url,
        api_key="none",
        model=request["model"],
        concurrency_limit=request["in_flight"],
        max_qps=_NO_LIMIT,
        timeout=_TIMEOUT_S,
        retry_times=0,
    )
    cpu_before_s, started_s = time.process_time(), time.perf_counter()
    async with client:
        batch = await client.chat_batch(
            request["conversations"],
            output_jsonl=str(checkpoint),
            show_progress=False,
            max_tokens=request["max_output_tokens"],
            temperature=0.0,
            response_format=request["response_format"],
        )
    elapsed_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_before_s
    return {"elapsed_s": elapsed_s, "cpu_s": cpu_s, "errors": [str(error) for error in batch.errors.values()][:3]}


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    json.dump(asyncio.run(main(sys.argv[1], given, Path(sys.argv[3]))), sys.stdout)
