"""One strict simulator for the folder, and clients of both providers."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from kit.simulator import Simulator

STRICT = {"dialect": "openai", "seed": 11}


@pytest.fixture(scope="session")
def process() -> Iterator[Simulator]:
    with Simulator(STRICT) as simulator:
        yield simulator


@pytest.fixture
def simulator(process: Simulator) -> Simulator:
    """A provider as strict as the real ones, with empty books."""
    process.set_scenario(STRICT)
    process.reset()
    return process


@pytest.fixture
def gpt(simulator: Simulator) -> Iterator[openai.OpenAI]:
    """A client that does not retry."""
    with openai.OpenAI(base_url=simulator.base_url, api_key="sk-test", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(simulator: Simulator) -> Iterator[anthropic.Anthropic]:
    """A client that does not retry."""
    with anthropic.Anthropic(base_url=simulator.root_url, api_key="sk-ant-test", max_retries=0) as client:
        yield client
