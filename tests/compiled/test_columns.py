"""Ranges of a buffer are copied as pyarrow does it, and ranges outside of the buffer are refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins import compiled_or_skip

np = pytest.importorskip("numpy", reason="the extra `spark` is not installed")

Pairs = list[tuple[int, int]]


def gathered(buffer: bytes | memoryview, pairs: Pairs) -> list[bytes]:
    ranges = np.array(pairs, np.int64).reshape(-1, 2)
    offsets, data = compiled_or_skip().gather(buffer, *(np.ascontiguousarray(ranges[:, side]) for side in (0, 1)))
    bounds = np.frombuffer(offsets, np.int32).tolist()
    assert bounds[-1] == len(data)
    return [bytes(data[start:end]) for start, end in pairwise(bounds)]


@given(st.data(), st.binary(max_size=200))
def test_rows_equal_the_records(data: st.DataObject, buffer: bytes) -> None:
    position = st.integers(0, len(buffer))
    pairs = data.draw(st.lists(st.tuples(position, position).map(lambda pair: (min(pair), max(pair))), max_size=20))

    expected = [buffer[start:end] for start, end in pairs]

    assert gathered(buffer, pairs) == expected
    assert gathered(memoryview(bytearray(buffer)), pairs) == expected


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5))
def test_rows_outside_the_buffer_are_refused(pairs: Pairs) -> None:
    buffer = b"a buffer"
    if all(0 <= start <= end <= len(buffer) for start, end in pairs):
        return

    with pytest.raises(ValueError, match="positions in the buffer"):
        gathered(buffer, pairs)


def test_wrong_arguments_are_refused() -> None:
    twin = compiled_or_skip()
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)

    for starts, ends in ((one, two), (b"abc", b"abc")):
        with pytest.raises(ValueError, match="pairs of positions"):
            twin.gather(b"a buffer", starts, ends)
    for wrong in (("a text", one, one), (b"a buffer", 1, one), (b"a buffer", one, None)):
        with pytest.raises(TypeError):
            twin.gather(*wrong)
    with pytest.raises(TypeError, match="takes 3 arguments"):
        twin.gather(b"a buffer")  # type: ignore[call-arg]


def test_more_rows_than_arrow_can_count_are_refused() -> None:
    """Overlapping rows may be more than the buffer."""
    buffer, rows = bytes(1 << 20), 2049

    with pytest.raises(ValueError, match="less than 2 GiB"):
        gathered(buffer, [(0, len(buffer))] * rows)
