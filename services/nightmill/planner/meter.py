"""Input tokens and shared prefix of each row's prompt, before anything is sent (P3, P4).

Where a pool's tokenizer names an encoding the count is that encoding's; else it is the o200k count times the pool's
`token_factor`, rounded up. Every message costs 4 tokens more and the reply 3 (OpenAI cookbook, "How to count tokens
with tiktoken", read 2026-11-29), and a pool with structured output is sent the schema too. A row's count is the
greatest over the pools, since the pool is chosen only when it is dispatched.

A text to embed is counted as it is: it has no frame and no schema, and an empty one is refused by every provider.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightmill.kernel.domain.pipeline import Pipeline, canonical_json
from nightmill.kernel.domain.prompt import ChatMessage, Prompt, PromptError, parse_prompt
from nightmill.kernel.domain.settings import Pool

ESTIMATE = "estimate"
#: what a pool's `tokenizer` may name, and the encoding that counts it
ENCODINGS = {
    ESTIMATE: "o200k_base",
    "o200k": "o200k_base",
    "o200k_base": "o200k_base",
    "o200k_harmony": "o200k_harmony",
    "cl100k": "cl100k_base",
    "cl100k_base": "cl100k_base",
    "qwen3.5": "qwen3.5",
    "bert_uncased": "bert_uncased",
}
MESSAGE_TOKENS = 4
REPLY_TOKENS = 3

#: tokens of each text by an encoding
Count = Callable[[Sequence[str], str], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What one row's first call takes in."""

    input_tokens: int
    prefix: str  #: digest of the shared prefix, 16 hex


class Meter:
    """Measures the rows of one pipeline for the pools that may answer it (at least one, with known tokenizers)."""

    def __init__(self, pipeline: Pipeline, pools: Sequence[Pool], count: Count) -> None:
        self._prompt: Prompt = parse_prompt(pipeline.prompt)
        self._fields = pipeline.input.fields
        self._pools, self._count = tuple(pools), count
        self._embeds = pipeline.embedding is not None
        encodings = sorted({ENCODINGS[p.tokenizer] for p in self._pools})
        schema = canonical_json(pipeline.output).decode()
        self._schema_tokens = {encoding: 0 if self._embeds else count((schema,), encoding)[0] for encoding in encodings}

    def measure(self, rows: Sequence[Mapping[str, Any]]) -> list[Measure | str]:
        """A measure per row, or what kept its prompt from being rendered (without document text)."""
        rendered = [self._render(row) for row in rows]
        good = [messages for messages in rendered if not isinstance(messages, str)]
        tokens = iter(self._tokens(good))
        prefixes: dict[str, str] = {}
        measures: list[Measure | str] = []
        for row, messages in zip(rows, rendered, strict=True):
            if isinstance(messages, str):
                measures.append(messages)
                continue
            head = messages[0].content if len(messages) > 1 else ""
            if head not in prefixes:
                prefixes[head] = self._prompt.prefix(self._visible(row))
            measures.append(Measure(input_tokens=next(tokens), prefix=prefixes[head]))
        return measures

    def _visible(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Only what is part of the item's version may show in its prompt."""
        return {name: row[name] for name in self._fields}

    def _render(self, row: Mapping[str, Any]) -> tuple[ChatMessage, ...] | str:
        try:
            messages = self._prompt.render(self._visible(row))
        except PromptError as error:
            return f"the prompt can not be rendered: {str(error).removeprefix('prompt: ')}"
        return "the text to embed is empty" if self._embeds and not messages[-1].content else messages

    def _tokens(self, prompts: Sequence[tuple[ChatMessage, ...]]) -> list[int]:
        greatest = [0] * len(prompts)
        texts = list({message.content: None for messages in prompts for message in messages})
        for encoding, schema_tokens in self._schema_tokens.items():
            tokens = dict(zip(texts, self._count(texts, encoding), strict=True))
            plain = [sum(tokens[message.content] for message in messages) for messages in prompts]
            for pool in (pool for pool in self._pools if ENCODINGS[pool.tokenizer] == encoding):
                extra = schema_tokens if pool.structured_output else 0
                for index, messages in enumerate(prompts):
                    frame = 0 if self._embeds else MESSAGE_TOKENS * len(messages) + REPLY_TOKENS
                    greatest[index] = max(greatest[index], _of_pool(pool, plain[index] + extra) + frame)
        return greatest


def _of_pool(pool: Pool, counted: int) -> int:
    return math.ceil(counted * pool.token_factor) if pool.tokenizer == ESTIMATE else counted
