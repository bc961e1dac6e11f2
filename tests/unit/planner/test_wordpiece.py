"""How many pieces a text is, by the vocabulary that ships (P4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.planner.tokens import count_tokens
from nightmill.planner.wordpiece import WordPieces

SMALL = WordPieces(["un", "##aff", "##able", "##a", "cafe", "a", "!", "##ff", "中", "文"])
TEXTS = st.text(max_size=60)


def count(text: str) -> int:
    return count_tokens([text], "bert_uncased")[0]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", 0),
        ("unaffable", 3),  # un aff able: the longest piece first, not a
        ("Unaffable UN", 4),
        ("unaffableb", 1),  # the last letter fits nowhere, so the word is unknown
        ("café cafe\u0301 CAFÉ", 3),
        ("a!a", 3),
        ("a\tun\u00a0a\u2028un", 4),
        ("un\u200bun\u0000", 1),  # signs without a width go: ununn has no piece
        ("中文", 2),
        ("a\ufffda", 2),  # a and ##a
    ],
)
def test_words_are_cut_into_the_longest_pieces(text: str, pieces: int) -> None:
    """P4: two more open and close the text."""
    assert SMALL.count(text) == pieces + 2


def test_the_vocabulary_that_ships_is_the_one_of_the_model() -> None:
    """P4: the counts that the model's authors show for these words."""
    assert count("") == 2
    assert count("embeddings") == 2 + 4  # em ##bed ##ding ##s
    assert count("Hello, world!") == 2 + 4


@given(TEXTS, TEXTS)
def test_texts_side_by_side_are_as_many_pieces_as_both(one: str, other: str) -> None:
    """P4: words are counted by themselves, so nothing depends on what stands around them or came before."""
    assert count(f"{one} {other}") == count(one) + count(other) - 2


@given(TEXTS)
def test_a_text_is_never_more_pieces_than_signs(text: str) -> None:
    """P4: so 510 characters always fit into 512 tokens."""
    assert count(text) <= len(text) + 2
