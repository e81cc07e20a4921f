"""The embedded embedder: hashed character n-grams. It knows spelling, not meaning, and says so in its name."""

from __future__ import annotations

import asyncio
import unicodedata

import numpy as np
from numpy.typing import NDArray

from layers.ports import Task, Vector

DIMENSION = 1024
SIZES = (3, 4, 5)
"""Lengths of the n-grams, in characters."""

_INLINE_CHARS = 20_000
"""Longer texts are worked on in a thread."""


class LexicalEmbedder:
    """Turns a text into a unit vector, the same in every process.

    Texts that share most of their characters are near each other (transaction fingerprints that differ in one field);
    a paraphrase is not. Both tasks embed alike.
    """

    name = f"lexical-ngrams-1:{DIMENSION}"
    dimension = DIMENSION

    async def embed(self, text: str, task: Task) -> Vector:
        """The text's vector. Never fails."""
        if len(text) <= _INLINE_CHARS:
            return _embed(text)
        return await asyncio.to_thread(_embed, text)


def distinct_grams(text: str) -> NDArray[np.uint64]:
    """The hashes of the text's n-grams, each once, in ascending order; never empty."""
    return np.unique(_grams(text))


def _embed(text: str) -> Vector:
    grams, counts = np.unique(_grams(text), return_counts=True)
    weights = 1 + np.log(counts)
    # Half of the n-grams count negative, so that those that share a bucket cancel out instead of adding up.
    signed = np.where(grams >> np.uint64(63), -weights, weights)
    vector = np.bincount((grams % np.uint64(DIMENSION)).astype(np.int64), signed, minlength=DIMENSION)
    length = float(np.linalg.norm(vector))
    if length == 0:  # every bucket cancelled out; possible for tiny texts only
        vector[0], length = 1.0, 1.0
    return [float(x) for x in vector / length]


def _grams(text: str) -> NDArray[np.uint64]:
    """A 64-bit hash of every n-gram of the folded text, which is padded so that there is at least one."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    data = f"  {folded}  ".encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(data, dtype="<u4").astype(np.uint64)
    return np.concatenate([_mixed(_rolled(codes, size)) for size in SIZES if len(codes) >= size])


def _rolled(codes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    last = len(codes) - size + 1
    value = np.full(last, size, dtype=np.uint64)
    for offset in range(size):
        value = value * np.uint64(0x100000001B3) + codes[offset : last + offset]
    return value


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser (Steele, Lea and Flood 2014): every input bit reaches every output bit."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
