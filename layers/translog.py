"""The mathematics of an append-only Merkle log (RFC 9162, section 2.1): roots, proofs and their checks; no store.

Hashes are 32 raw bytes (SHA-256). A store keeps the leaf hashes and, for each full *tile* of 256 of them, the root of
the tile; roots of full tiles form the next level, and so on. Every proof then needs a few tiles, however large the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

TILE_BITS = 8
TILE = 1 << TILE_BITS
"""Hashes in a full tile."""

EMPTY_ROOT = hashlib.sha256(b"").digest()

ReadTile = Callable[[int, int], Sequence[bytes]]
"""`(level, tile)` -> the hashes stored in that tile, at most 256; level 0 holds leaves, level 1 roots of full tiles."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of one log entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def tree_root(leaves: Iterable[bytes], node: Callable[[bytes, bytes], bytes] = node_hash) -> bytes:
    """The root over leaf hashes in order; of none, the hash of the empty string. `node` joins two subtrees."""
    peaks: list[tuple[int, bytes]] = []  # (height, root) of perfect subtrees, heights strictly falling
    for digest in leaves:
        height = 0
        while peaks and peaks[-1][0] == height:
            digest = node(peaks.pop()[1], digest)
            height += 1
        peaks.append((height, digest))
    return _join([digest for _, digest in peaks], node)


def _join(peaks: list[bytes], node: Callable[[bytes, bytes], bytes] = node_hash) -> bytes:
    *rest, last = peaks or [EMPTY_ROOT]
    for digest in reversed(rest):
        last = node(digest, last)
    return last


def _split(size: int) -> int:
    """The largest power of two smaller than `size` (>= 2)."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """The leaf ranges [start, end) whose roots make the inclusion proof of leaf `index` in a tree of `size`, in order.

    Raises `ValueError` unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    ranges = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def consistency_ranges(first: int, second: int) -> list[tuple[int, int]]:
    """The leaf ranges whose roots prove that the tree of `first` leaves is the beginning of the tree of `second`.

    Empty when `first` is 0 or equal to `second`. Raises `ValueError` unless 0 <= first <= second.
    """
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {first} can't be the beginning of a tree of {second}")
    if first == 0:
        return []
    ranges = []
    start, end = 0, second
    while end != first:
        middle = start + _split(end - start)
        if first <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    if start:  # with start 0 the verifier already holds this root: it is the older one
        ranges.append((start, end))
    return ranges[::-1]


def range_root(start: int, end: int, tile: ReadTile) -> bytes:
    """The root of the leaves [start, end), a range as the two functions above give them (or any with start 0)."""
    peaks = []
    while start < end:
        height = (end - start).bit_length() - 1
        level, inside = divmod(height, TILE_BITS)
        number, offset = divmod(start >> (level * TILE_BITS), TILE)
        peaks.append(tree_root(tile(level, number)[offset : offset + (1 << inside)]))
        start += 1 << height
    return _join(peaks)


def closed_tiles(size: int) -> list[tuple[int, int]]:
    """The tiles `(level, number)` that became full when the log reached `size`, lowest level first."""
    closed = []
    level = 0
    while size and size % TILE == 0:
        size //= TILE
        closed.append((level, size - 1))
        level += 1
    return closed


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether `path` proves that the leaf hash stands at `index` in the tree of `size` with this root (2.1.3.2)."""
    if not 0 <= index < size:
        return False
    number, last, digest = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if number & 1 or number == last:
            digest = node_hash(sibling, digest)
            while not number & 1 and number:
                number >>= 1
                last >>= 1
        else:
            digest = node_hash(digest, sibling)
        number >>= 1
        last >>= 1
    return last == 0 and digest == root


def verify_consistency(first: int, second: int, first_root: bytes, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether `path` proves that the tree `second` only adds leaves to the tree `first` (2.1.4.2)."""
    if not 0 <= first <= second:
        return False
    if first == second:
        return not path and first_root == second_root
    if first == 0:
        return not path and first_root == EMPTY_ROOT
    return _walk_consistency(first, second, first_root, path) == (first_root, second_root)


def _walk_consistency(first: int, second: int, first_root: bytes, path: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    whole = first & (first - 1) == 0  # a perfect first tree is its own first step
    steps = [first_root, *path] if whole else list(path)
    if not steps:
        return None
    number, last = first - 1, second - 1
    while number & 1:
        number >>= 1
        last >>= 1
    older = newer = steps[0]
    for step in steps[1:]:
        if last == 0:
            return None
        if number & 1 or number == last:
            older, newer = node_hash(step, older), node_hash(step, newer)
            while not number & 1 and number:
                number >>= 1
                last >>= 1
        else:
            newer = node_hash(newer, step)
        number >>= 1
        last >>= 1
    return (older, newer) if last == 0 else None
