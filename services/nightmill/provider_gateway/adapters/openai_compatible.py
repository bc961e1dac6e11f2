"""Chat completions and embeddings as vLLM, SGLang, llama.cpp, Ollama, TGI and their like serve them.

Request: `POST {base_url}/chat/completions` with `max_tokens`, the one name of that limit that all of them take. A
success is believed only when its JSON is strict and whole and an answer is in it: servers send cut JSON, web pages and
errors with status 200. Some of them shorten a long prompt without a word; `truncation` finds that from the usage.
"""

import re
from typing import Any

from nightmill.kernel.domain.parameters import sampling
from nightmill.kernel.domain.pipeline import Embedding, Pipeline
from nightmill.kernel.domain.settings import Pool
from nightmill.provider_gateway.adapters import openai
from nightmill.provider_gateway.adapters.chat import ListForm, reply_of_chat
from nightmill.provider_gateway.adapters.embeddings import (
    embedding_form,
    is_embeddings,
    reply_of_embeddings,
    vectors_of,
)
from nightmill.provider_gateway.adapters.errors import Words, failure_of_status
from nightmill.provider_gateway.adapters.reading import document_of, encode, members
from nightmill.provider_gateway.exchange import Form, Reply, Response, TextsForm, Vectors
from nightmill.provider_gateway.failures import Signal, failure

#: what these servers say besides OpenAI's own codes and types
CODES: dict[str, Signal] = {
    **openai.CODES,
    "overloaded_error": Signal.OVERLOADED,
    "overloaded": Signal.OVERLOADED,  # TGI, with 429
    "exceed_context_size_error": Signal.CONTEXT_TOO_LONG,  # llama.cpp
    "content_size_limit_exceeded": Signal.TOO_LARGE,  # AIBrix
    "authentication_error": Signal.KEY_REFUSED,
    "permission_error": Signal.MODEL_REFUSED,
}
#: llama.cpp names every server error so, `Loading model` among them: its texts and status say more
del CODES["server_error"]

TEXTS: tuple[tuple[re.Pattern[str], Signal], ...] = (
    (
        re.compile(
            r"prompt is too long|exceeds? the available context|longer than the model's context length"
            r"|`inputs` (tokens|must have)|too large to process",
            re.I,
        ),
        Signal.CONTEXT_TOO_LONG,
    ),
    (re.compile(r"Loading model", re.I), Signal.MODEL_LOADING),
    (re.compile(r"maximum pending requests exceeded|server busy|Model is overloaded", re.I), Signal.OVERLOADED),
    *openai.TEXTS,
)

WORDS = Words(codes=CODES, texts=TEXTS, reset_ms=openai.reset_ms)


class OpenAiCompatible:
    """Satisfies `Adapter` and `Embedder`."""

    def form(self, *, base_url: str, pool: Pool, pipeline: Pipeline) -> Form:
        settings: dict[str, Any] = sampling(pipeline.model, pool)
        if pool.structured_output:
            schema = openai.named_schema(pipeline, strict=True)
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        return ListForm(
            url=base_url.rstrip("/") + "/chat/completions",
            model=encode(pool.model),
            messages="messages",
            limit="max_tokens",
            settings=members(settings),
            may_cut=True,
        )

    def reply(self, response: Response, *, now_ms: int) -> Reply:
        if response.status != 200:
            return Reply(failure=failure_of_status(response, WORDS, now_ms))
        document = document_of(response)
        if isinstance(document, Signal):
            return Reply(failure=failure(document, status=200))
        if is_embeddings(document):
            return reply_of_embeddings(response, WORDS, now_ms)
        return reply_of_chat(document, response, WORDS, now_ms)

    def texts_form(self, *, base_url: str, pool: Pool, embedding: Embedding) -> TextsForm:
        return embedding_form(base_url, pool, embedding, may_cut=True)

    def vectors(self, response: Response, *, inputs: int, now_ms: int) -> Vectors:
        return vectors_of(response, WORDS, inputs=inputs, now_ms=now_ms)
