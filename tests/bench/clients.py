"""The baselines: what a script would do. Each sends the body that the line's gateway sends and reads the answer.

They keep nothing: no retry, no validation beyond the label, no file. That is the point of the comparison.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
import openai

from bench.usage import load_now, snapshot
from bench.workload import IN_FLIGHT, MAX_OUTPUT_TOKENS, MODEL, SYSTEM_PROMPT, Run, Workload, finished
from kit.laptop import SCHEMA
from kit.simulator import Simulator

BARE_POOL = "bare aiohttp pool"
SDK = "openai SDK + semaphore"

_LABELS = frozenset("abc")
_SCHEMA_NAME = "label"

#: base url and texts -> contents of the answers
Caller = Callable[[str, Sequence[str]], Coroutine[Any, Any, list[str]]]


def run_client(subject: str, work: Workload, simulator: Simulator) -> Run:
    """Send the whole workload through one baseline. A failed call ends the run, and is its problem."""
    pids = {"client": os.getpid(), "simulator": simulator.pid}
    load_before = load_now()
    before, started_s = snapshot(pids), time.perf_counter()
    contents: list[str] = []
    problem: str | None = None
    try:
        contents = asyncio.run(_CALLERS[subject](simulator.base_url, work.texts))
    except* (aiohttp.ClientError, openai.OpenAIError, TimeoutError) as group:
        problem = f"a call failed: {type(group.exceptions[0]).__name__}: {group.exceptions[0]}"
    right = sum(json.loads(content)["label"] in _LABELS for content in contents)
    elapsed_s = time.perf_counter() - started_s
    if problem is None and right != len(work.texts):
        problem = f"{right} of {len(work.texts)} answers are right"
    return finished(
        subject,
        work,
        elapsed_s=elapsed_s,
        before=before,
        after=snapshot(pids),
        load_before=load_before,
        problem=problem,
    )


async def _bare_pool(base_url: str, texts: Sequence[str]) -> list[str]:
    """Workers that share one iterator and one session."""
    todo, contents = iter(texts), list[str]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def work() -> None:
            for text in todo:
                async with session.post(f"{base_url}/chat/completions", json=body_of(text)) as response:
                    response.raise_for_status()
                    contents.append((await response.json())["choices"][0]["message"]["content"])

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work())
    return contents


def body_of(text: str) -> dict[str, object]:
    """The body that asks for a document's label."""
    schema = {"name": _SCHEMA_NAME, "schema": SCHEMA, "strict": True}
    return {
        "model": MODEL,
        "messages": [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}],
        "max_tokens": MAX_OUTPUT_TOKENS,
        "temperature": 0.0,
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


async def _sdk(base_url: str, texts: Sequence[str]) -> list[str]:
    """One task a document behind a semaphore, as the SDK is commonly used for many calls."""
    room = asyncio.Semaphore(IN_FLIGHT)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

        async def call(text: str) -> str:
            async with room:
                answer = await client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}],
                    max_tokens=MAX_OUTPUT_TOKENS,
                    temperature=0.0,
                    response_format={
                        "type": "json_schema",
                        "json_schema": {"name": _SCHEMA_NAME, "schema": dict(SCHEMA), "strict": True},
                    },
                )
            return answer.choices[0].message.content or "{}"

        return await asyncio.gather(*map(call, texts))


_CALLERS: dict[str, Caller] = {BARE_POOL: _bare_pool, SDK: _sdk}
CLIENTS = tuple(_CALLERS)
