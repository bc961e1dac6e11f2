"""Which failures the official clients call again by themselves, and how often: it is theirs to say, and the simulator's
part that they see each failure as the real one (E9).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import anthropic
import openai

from kit.simulator import Simulator

AGAIN: dict[str, dict[str, Any]] = {
    "408": {"kind": "client_error", "status": 408},
    "409": {"kind": "client_error", "status": 409},
    "429": {"kind": "rate_limited", "retry_after": "milliseconds"},
    "429 seconds": {"kind": "rate_limited", "retry_after_s": 1},
    "429 date": {"kind": "rate_limited", "retry_after": "http_date", "retry_after_s": 1},
    "429 garbage": {"kind": "rate_limited", "retry_after": "garbage"},
    "429 quota": {"kind": "quota_exhausted"},  # real ones are called again, too: no client looks at the code
    "500": {"kind": "server_error"},
    "502 page": {"kind": "html", "status": 502},
    "overloaded": {"kind": "overloaded"},
    "slow down": {"kind": "slow_down", "status": 503},
    "closed": {"kind": "disconnect"},
    "reset": {"kind": "reset_before_billing"},
    "reset, billed": {"kind": "reset_after_billing"},
    "hang": {"kind": "hang"},
    "told to": {"kind": "client_error", "status": 400, "should_retry": True},
}
ONCE: dict[str, dict[str, Any]] = {
    "400": {"kind": "client_error", "status": 400},
    "401": {"kind": "unauthorized"},
    "403": {"kind": "client_error", "status": 403},
    "404": {"kind": "client_error", "status": 404},
    "413": {"kind": "client_error", "status": 413},
    "422": {"kind": "client_error", "status": 422},
    "425": {"kind": "client_error", "status": 425},
    "context": {"kind": "context_length_exceeded"},
    "told not to": {"kind": "server_error", "should_retry": False},
}


def headers(name: str, fault: dict[str, Any]) -> dict[str, str]:
    return {"x-sim-fault": json.dumps(fault), "X-Client-Request-Id": name}


async def all_fail(simulator: Simulator, *, gpt: bool) -> None:
    """Every failure at once, each told by the header of its own calls; a hang is cut off by the client's own time."""
    messages: Any = [{"role": "user", "content": "Which licence?"}]
    async with (
        openai.AsyncOpenAI(base_url=simulator.base_url, api_key="k", max_retries=1) as openai_client,
        anthropic.AsyncAnthropic(base_url=simulator.root_url, api_key="k", max_retries=1) as anthropic_client,
    ):

        async def call(name: str, fault: dict[str, Any]) -> None:
            sent, timeout = headers(name, fault), 2.0 if fault["kind"] == "hang" else 30.0
            if gpt:
                with_time = openai_client.with_options(timeout=timeout)
                await with_time.chat.completions.create(model="m", messages=messages, extra_headers=sent)
            else:
                limited = anthropic_client.with_options(timeout=timeout)
                await limited.messages.create(model="m", max_tokens=9, messages=messages, extra_headers=sent)

        failed = await asyncio.gather(*(call(*each) for each in (AGAIN | ONCE).items()), return_exceptions=True)
    kinds = (openai.OpenAIError, anthropic.AnthropicError)
    assert [one for one in failed if not isinstance(one, kinds)] == []


def test_what_the_openai_client_calls_again(simulator: Simulator) -> None:
    asyncio.run(all_fail(simulator, gpt=True))
    calls = Counter(row["attempt_id"] for row in simulator.attempts(refused=True))
    assert calls == {**dict.fromkeys(AGAIN, 2), **dict.fromkeys(ONCE, 1)}


def test_what_the_anthropic_client_calls_again(simulator: Simulator) -> None:
    asyncio.run(all_fail(simulator, gpt=False))
    calls = Counter(row["attempt_id"] for row in simulator.attempts(refused=True))
    assert calls == {**dict.fromkeys(AGAIN, 2), **dict.fromkeys(ONCE, 1)}
