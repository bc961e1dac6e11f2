"""What a response means, and whether its server has read the whole prompt. Pure.

Ollama and its like shorten a prompt that is longer than their context without a word and answer the rest: an answer
about half of a document, under status 200 (ollama #17889; `num_ctx` is 4096 unless told otherwise and can not be set
through the OpenAI routes). The usage gives it away. Every tokenizer counts at least one token for a word, so fewer
tokens than words are a cut prompt; so are a sum at a server's context size that a text of so many words does not fit.
Short prompts are left alone, they fit any server. Languages written without spaces have few words: there the check
stays silent rather than wrong.
"""

import dataclasses

from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.caller import Call
from nightmill.provider_gateway.exchange import Reply, Response
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.unreadable import with_body

#: prompts of fewer words fit every server
_LEAST_WORDS = 512
#: a text has at least so many bytes per token as a rule; what has fewer is not counted word by word
_BYTES_PER_TOKEN = 5
_CONTEXT_SIZES = frozenset(1 << power for power in range(10, 21))
#: tokens of a hundred words, at the least, in the texts that people write
_TOKENS_PER_100_WORDS = 115


def meaning(call: Call, response: Response, *, now_ms: int) -> Reply:
    """What `response` means to `call`: the adapter's reading, unless the server has cut the prompt."""
    return unless_cut(call, with_body(call.adapter.reply(response, now_ms=now_ms), response))


def unless_cut(call: Call, reply: Reply) -> Reply:
    """The reply, or the failure that the server has cut the prompt."""
    prompt_bytes = call.request.prompt_bytes
    if not prompt_bytes or reply.failure is not None or reply.usage is None:
        return reply
    if not is_cut(call.request.body[:prompt_bytes], reply.usage):
        return reply
    cut = failure(Signal.PROMPT_CUT, detail=f"{reply.usage.input_tokens} tokens counted")
    return dataclasses.replace(reply, failure=cut)


def is_cut(prompt: bytes, usage: Usage) -> bool:
    """Whether a server that counted `usage` can not have read all of `prompt`."""
    counted = usage.input_tokens
    if counted * _BYTES_PER_TOKEN >= len(prompt):
        return False
    words = len(prompt.split())
    if words < _LEAST_WORDS:
        return False
    full = counted in _CONTEXT_SIZES or counted + usage.output_tokens in _CONTEXT_SIZES
    return words > counted or (full and words * _TOKENS_PER_100_WORDS > counted * 100)
