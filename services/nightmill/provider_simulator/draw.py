"""Deterministic choices: everything that looks random is a function of the seed and of what is drawn for."""

from __future__ import annotations

import hashlib
from functools import lru_cache

_MASK = (1 << 64) - 1


def fraction(seed: int, purpose: str, digest: bytes, occurrence: int) -> float:
    """A number in [0, 1) that depends on all four arguments and on nothing else."""
    head = hashlib.sha256(f"{seed}\x00{purpose}\x00{occurrence}\x00".encode() + digest).digest()
    return (int.from_bytes(head[:8], "big") >> 11) / (1 << 53)


@lru_cache(maxsize=16)
def _seeded(seed: int) -> hashlib._Hash:
    """The beginning of each answer's digest; to be copied."""
    return hashlib.sha256(f"{seed}\x00answer\x00".encode())


class Draw:
    """A stream of choices from one digest: splitmix64 (https://prng.di.unimi.it/splitmix64.c, read 2026-11-29)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, digest: bytes) -> None:
        sha = _seeded(seed).copy()
        sha.update(digest)
        self._state = int.from_bytes(sha.digest()[:8], "big")

    def below(self, bound: int) -> int:
        """An integer in [0, bound); `bound` is at least 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % bound


def name(seed: int, kind: str, number: int) -> str:
    """The unique part of the n-th id of a kind: 24 hexadecimal digits."""
    return hashlib.sha256(f"{seed}\x00{kind}\x00{number}".encode()).hexdigest()[:24]
