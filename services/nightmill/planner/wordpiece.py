"""WordPiece, the tokenizer of BERT without letter case: how many pieces a text is. Pure.

A text is spelt plainly first: accents go, letters become small, each mark of punctuation and each Chinese sign is a
word of its own. A word is cut into the longest pieces of the vocabulary, from left to right; a word that can not be
cut is one unknown piece. One more piece opens and one closes the text. Sources: Schuster and Nakajima 2012; Devlin et
al. 2018, https://github.com/google-research/bert (read 2026-11-30). Where servers differ this counts as llama.cpp does.
"""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

#: opens and closes every text
_FRAME = 2
_CONTINUES = "##"
_KEPT_WORDS = 65_536
_LONGEST_KEPT = 40
_REPLACEMENT = 0xFFFD
_BLANK_CONTROLS = "\t\n\v\f\r\x85"
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _Spelling(dict[int, str]):
    """What `str.translate` puts in the place of each sign; worked out when a sign is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = spelt = _spelt(chr(code))
        return spelt


class WordPieces:
    """Counts by one vocabulary."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        pieces = set(vocabulary)
        self._begin = {piece for piece in pieces if not piece.startswith(_CONTINUES)}
        self._continue = {piece.removeprefix(_CONTINUES) for piece in pieces - self._begin}
        self._longest = max(map(len, pieces))
        self._spelling = _Spelling()
        self._kept = lru_cache(maxsize=_KEPT_WORDS)(self._cut)

    def count(self, text: str) -> int:
        """Pieces of a text, with those that open and close it."""
        words = text.translate(self._spelling).split()
        return _FRAME + sum(self._kept(word) if len(word) <= _LONGEST_KEPT else self._cut(word) for word in words)

    def _cut(self, word: str) -> int:
        place, count, pieces = 0, 0, self._begin
        while place < len(word):
            ends = range(min(len(word), place + self._longest), place, -1)
            end = next((end for end in ends if word[place:end] in pieces), None)
            if end is None:
                return 1
            place, count, pieces = end, count + 1, self._continue
        return count


def _spelt(sign: str) -> str:
    base = unicodedata.normalize("NFD", sign)[0]
    category, code = unicodedata.category(base), ord(base)
    if category[0] == "Z" or base in _BLANK_CONTROLS:
        return " "
    if (category[0] in "CM" and category != "Cn") or code == _REPLACEMENT:
        return ""
    stands_alone = category[0] == "P" or (code < 0x7F and category[0] == "S")
    if stands_alone or any(first <= code <= last for first, last in _CHINESE):
        return f" {base} "
    return base.lower()
