"""Prompts that a server has shortened without a word, seen from what it counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.wire.messages import Usage
from nightmill.provider_gateway.truncation import is_cut


def used(input_tokens: int, output_tokens: int = 5) -> Usage:
    return Usage(input_tokens=input_tokens, cached_tokens=0, output_tokens=output_tokens)


def words(count: int, word: bytes = b"ticket") -> bytes:
    return b" ".join([word] * count)


@pytest.mark.parametrize(
    ("prompt", "usage", "cut"),
    [
        (words(4_000), used(2_048), True),  # half of it
        (words(4_000), used(3_999), True),  # fewer tokens than words
        (words(4_000), used(4_096), True),  # a context that is full to the last token, of a text of 4,600 and more
        (words(4_000), used(4_000, 96), True),  # the same with the answer in it
        (words(4_000), used(4_100), False),
        (words(4_000), used(5_200), False),  # 1.3 tokens a word, as English has
        (words(3_500), used(4_096), False),  # a sum that may be its own
        (words(500), used(20), False),  # short prompts fit everywhere
        ("漢字".encode() * 4_000, used(600), False),  # no words to count
        (b"{}" * 4_000, used(700), False),
    ],
)
def test_cut_prompts(prompt: bytes, usage: Usage, cut: bool) -> None:
    """E8: an answer about a part of a document is no answer about it."""
    assert is_cut(prompt, usage) is cut


@given(st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=12), max_size=1_500), st.integers(0, 400))
def test_a_prompt_that_was_read_is_never_called_cut(texts: list[str], extra: int) -> None:
    """A tokenizer counts at least one token for a word, and the words around the document more."""
    prompt = " ".join(texts).encode()
    counted = max(len(texts), (len(prompt) + 3) // 4) + extra
    full = any(each & (each - 1) == 0 for each in (counted, counted + 5))
    assert full or not is_cut(prompt, used(counted))
