"""The Merkle log's mathematics against the definitions of RFC 9162 (2.1) written down naively."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers import translog as log

# The inputs of the test vectors that Certificate Transparency implementations share, and the roots after each append.
INPUTS = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def h(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def mth(leaves: list[bytes]) -> bytes:
    """MTH of section 2.1.1, over leaf hashes."""
    if not leaves:
        return h(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return h(b"\x01" + mth(leaves[:k]) + mth(leaves[k:]))


def path(m: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """SUBPROOF of section 2.1.4.1."""
    if m == len(leaves):
        return [] if whole else [mth(leaves)]
    k = split(len(leaves))
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


def leaves_of(size: int) -> list[bytes]:
    return [log.leaf_hash(b"%d" % i) for i in range(size)]


def tiles(leaves: list[bytes]) -> log.ReadTile:
    """A store in memory: it keeps leaves, and the roots of full tiles as they fill."""
    levels: dict[int, list[bytes]] = {0: []}

    def tile(level: int, number: int) -> list[bytes]:
        return levels[level][number * log.TILE : (number + 1) * log.TILE]

    for size, leaf in enumerate(leaves, 1):
        levels[0].append(leaf)
        for level, number in log.closed_tiles(size):
            levels.setdefault(level + 1, []).append(log.tree_root(tile(level, number)))
    return tile


def test_known_roots():
    leaves = [log.leaf_hash(bytes.fromhex(entry)) for entry in INPUTS]
    assert [log.tree_root(leaves[: n + 1]).hex() for n in range(8)] == ROOTS
    assert log.tree_root([]) == log.EMPTY_ROOT == h(b"")


@given(st.integers(0, 70))
def test_root_is_the_recursive_definition(size):
    assert log.tree_root(leaves_of(size)) == mth(leaves_of(size))


@given(st.data())
def test_inclusion_proof_is_the_recursive_definition_and_verifies(data):
    size = data.draw(st.integers(1, 600))
    index = data.draw(st.integers(0, size - 1))
    leaves = leaves_of(size)
    tile = tiles(leaves)
    proof = [log.range_root(start, end, tile) for start, end in log.inclusion_ranges(index, size)]
    assert proof == path(index, leaves)
    root = log.range_root(0, size, tile)
    assert root == mth(leaves)
    assert log.verify_inclusion(leaves[index], index, size, proof, root)


@given(st.data())
def test_consistency_proof_is_the_recursive_definition_and_verifies(data):
    second = data.draw(st.integers(1, 600))
    first = data.draw(st.integers(1, second))
    leaves = leaves_of(second)
    tile = tiles(leaves)
    proof = [log.range_root(start, end, tile) for start, end in log.consistency_ranges(first, second)]
    assert proof == subproof(first, leaves, True)
    assert log.verify_consistency(first, second, mth(leaves[:first]), mth(leaves), proof)


@settings(max_examples=200)
@given(st.data())
def test_a_wrong_step_leaf_index_size_or_root_never_verifies_inclusion(data):
    size = data.draw(st.integers(1, 40))
    index = data.draw(st.integers(0, size - 1))
    leaves = leaves_of(size)
    proof, root = path(index, leaves), mth(leaves)
    other = log.leaf_hash(b"other")
    assert not log.verify_inclusion(other, index, size, proof, root)
    assert not log.verify_inclusion(leaves[index], index, size, proof, other)
    assert not log.verify_inclusion(leaves[index], index, size, [*proof, other], root)
    assert not log.verify_inclusion(leaves[index], size, size, proof, root)
    assert not log.verify_inclusion(leaves[index], -1, size, proof, root)
    for wrong in set(range(size)) - {index}:
        assert not log.verify_inclusion(leaves[index], wrong, size, proof, root)
    for i in range(len(proof)):
        assert not log.verify_inclusion(leaves[index], index, size, [*proof[:i], other, *proof[i + 1 :]], root)
        assert not log.verify_inclusion(leaves[index], index, size, [*proof[:i], *proof[i + 1 :]], root)


@settings(max_examples=200)
@given(st.data())
def test_a_rewritten_log_never_verifies_as_grown(data):
    """Change one leaf that the older tree already had: no proof made from the new leaves fits the older root."""
    second = data.draw(st.integers(2, 40))
    first = data.draw(st.integers(1, second))
    changed = data.draw(st.integers(0, first - 1))
    old = leaves_of(second)
    new = [*old[:changed], log.leaf_hash(b"rewritten"), *old[changed + 1 :]]
    proof = subproof(first, new, True)
    assert not log.verify_consistency(first, second, mth(old[:first]), mth(new), proof)


@settings(max_examples=200)
@given(st.data())
def test_a_wrong_step_never_verifies_consistency(data):
    second = data.draw(st.integers(2, 40))
    first = data.draw(st.integers(1, second - 1))
    leaves = leaves_of(second)
    proof = subproof(first, leaves, True)
    older, newer = mth(leaves[:first]), mth(leaves)
    other = log.leaf_hash(b"other")
    assert not log.verify_consistency(first, second, older, newer, [*proof, other])
    assert not log.verify_consistency(first, second, older, newer, proof[:-1])
    assert not log.verify_consistency(second, first, newer, older, proof)
    for i in range(len(proof)):
        assert not log.verify_consistency(first, second, older, newer, [*proof[:i], other, *proof[i + 1 :]])


def test_from_nothing_to_something_needs_no_proof_but_the_empty_root():
    leaves = leaves_of(3)
    assert log.consistency_ranges(0, 3) == []
    assert log.verify_consistency(0, 3, log.EMPTY_ROOT, mth(leaves), [])
    assert not log.verify_consistency(0, 3, leaves[0], mth(leaves), [])
    assert not log.verify_consistency(0, 3, log.EMPTY_ROOT, mth(leaves), [leaves[0]])
    assert log.verify_consistency(3, 3, mth(leaves), mth(leaves), [])
    assert not log.verify_consistency(3, 3, mth(leaves), leaves[0], [])


@pytest.mark.parametrize(("index", "size"), [(0, 0), (3, 3), (-1, 3)])
def test_a_leaf_outside_the_tree_has_no_proof(index, size):
    with pytest.raises(ValueError, match="not in a tree"):
        log.inclusion_ranges(index, size)


def test_a_tree_is_not_the_beginning_of_a_smaller_one():
    with pytest.raises(ValueError, match="beginning"):
        log.consistency_ranges(4, 3)


def test_tiles_close_at_powers_of_their_width():
    assert log.closed_tiles(255) == []
    assert log.closed_tiles(256) == [(0, 0)]
    assert log.closed_tiles(512) == [(0, 1)]
    assert log.closed_tiles(65536) == [(0, 255), (1, 0)]


def test_proofs_cross_three_levels_of_tiles_with_few_reads():
    """A log of 140,000 leaves: every proof reads a handful of tiles, not the log."""
    size = 140_000
    leaves = leaves_of(size)
    stored = tiles(leaves)
    read: set[tuple[int, int]] = set()

    def tile(level: int, number: int):
        read.add((level, number))
        return stored(level, number)

    root = log.range_root(0, size, tile)
    assert root == log.tree_root(leaves)
    proof = [log.range_root(*span, tile) for span in log.inclusion_ranges(70_001, size)]
    assert log.verify_inclusion(leaves[70_001], 70_001, size, proof, root)
    first = 66_000
    proof = [log.range_root(*span, tile) for span in log.consistency_ranges(first, size)]
    assert log.verify_consistency(first, size, log.tree_root(leaves[:first]), root, proof)
    assert len(read) <= 10
