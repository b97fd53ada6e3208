"""Packed keys: a sequence of keys like any other."""

import pytest

from pocketmq.store.index.growing_index_file import KEY_BYTES, PackedKeys
from pocketmq.store.index.index_file import KeyEntry

KEYS: list[KeyEntry] = [(0, 0, 0), (2**31 - 1, 2**40, -1), (5, 7, 1_700_000_000_000)]


def test_packed_keys_are_unpacked_unchanged() -> None:
    packed = PackedKeys.of(KEYS)

    assert list(packed) == KEYS
    assert len(packed) == 3
    assert len(packed.raw) == 3 * KEY_BYTES


@pytest.mark.parametrize("at", [0, 2, -1, -3])
def test_a_single_key_is_returned_as_a_tuple(at: int) -> None:
    assert PackedKeys.of(KEYS)[at] == KEYS[at]


@pytest.mark.parametrize("at", [3, -4])
def test_no_key_exists_beyond_the_end(at: int) -> None:
    with pytest.raises(IndexError):
        PackedKeys.of(KEYS)[at]


@pytest.mark.parametrize("cut", [slice(1, None), slice(None, 2), slice(-1, None), slice(2, 1), slice(0, 99)])
def test_a_slice_of_packed_keys_is_packed_too(cut: slice) -> None:
    assert list(PackedKeys.of(KEYS)[cut]) == KEYS[cut]


def test_packed_keys_are_sliced_without_a_copy() -> None:
    with pytest.raises(ValueError, match="no step"):
        PackedKeys.of(KEYS)[::2]


def test_an_empty_sequence_of_keys_is_falsy() -> None:
    assert not PackedKeys.of([])
