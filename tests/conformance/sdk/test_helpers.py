"""What the clients add to the wire: parsed answers, waiting for a file, the asynchronous twins."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import anthropic
import openai
from pydantic import BaseModel

from conformance.sdk.lines import jsonl, line, upload
from kit.simulator import Simulator


class Licence(StrEnum):
    MIT = "MIT"
    BSD = "BSD"


class Answer(BaseModel):
    licence: Licence
    reasons: list[str]


def test_parsed_answers(gpt: openai.OpenAI) -> None:
    """The schema that the client makes of a class is strict enough, and the answer fits into the class."""
    completion = gpt.chat.completions.parse(
        model="gpt-6-luna", messages=[{"role": "user", "content": "Which licence?"}], response_format=Answer
    )
    assert isinstance(completion.choices[0].message.parsed, Answer)
    response = gpt.responses.parse(model="gpt-6-luna", input="Which licence?", text_format=Answer)
    assert isinstance(response.output_parsed, Answer)


def test_waiting_for_a_file(gpt: openai.OpenAI) -> None:
    ident = upload(gpt, jsonl([line("a")]))
    assert gpt.files.wait_for_processing(ident, poll_interval=0.01).status == "processed"


def test_asynchronous_clients(simulator: Simulator) -> None:
    async def calls() -> list[str]:
        async with (
            openai.AsyncOpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as gpt,
            anthropic.AsyncAnthropic(base_url=simulator.root_url, api_key="k", max_retries=0) as claude,
        ):
            file = await gpt.files.create(file=("a.jsonl", jsonl([line("a")])), purpose="batch")
            batch = await gpt.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            listed = [one.id async for one in gpt.batches.list()]
            messages = await asyncio.gather(
                *(
                    claude.messages.create(
                        model="claude-haiku-5-5", max_tokens=20, messages=[{"role": "user", "content": f"n {n}"}]
                    )
                    for n in range(20)
                )
            )
            assert listed == [batch.id]
            return [message.id for message in messages]

    assert len(set(asyncio.run(calls()))) == 20
