"""The bytes of one file: sparse, shared between crash states, and seen through maps."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.testing.disk.contents import PAGE, Change, Contents, Image

GIB = 1 << 30


def test_unwritten_pages_are_absent() -> None:
    image = Image().after([Change("truncate", GIB), Change("write", 0, GIB // 2, b"x" * 10_000)])

    assert image.size == GIB
    assert len(image.pages) == 3


def test_a_large_sparse_file_is_mapped_without_allocating_it() -> None:
    contents = Contents(Image(), 0)
    contents.truncate(GIB)
    view = contents.map(GIB)

    contents.write(GIB - 5, b"later")

    assert bytes(view[-6:]) == b"\0later"
    assert contents.blocks == 1


def test_images_share_unchanged_pages() -> None:
    before = Image().after([Change("write", 3 * PAGE, 0, b"a" * 3 * PAGE)])

    after = before.after([Change("write", 2 * PAGE, PAGE, b"b" * PAGE)])

    assert after.pages[0] is before.pages[0]
    assert after.pages[2] is before.pages[2]
    assert before.pages[1] == b"a" * PAGE
    assert after.pages[1] == b"b" * PAGE


def test_data_beyond_the_size_is_invisible() -> None:
    image = Image().after([Change("write", 0, 10, b"hidden"), Change("write", 13)])

    grown = image.after([Change("truncate", 20)])

    assert image.pages[0][:20] == grown.pages[0][:20] == bytes(10) + b"hid" + bytes(7)


def test_a_map_follows_a_truncation_within_its_size() -> None:
    contents = Contents(Image(), 0)
    contents.write(0, b"a" * 9000)
    view = contents.map(9000)

    contents.truncate(10)
    contents.truncate(9000)
    contents.write(20, b"b")

    assert bytes(view) == b"a" * 10 + bytes(10) + b"b" + bytes(8979)


def test_a_map_keeps_its_bytes_when_the_file_grows() -> None:
    contents = Contents(Image(), 0)
    contents.write(0, b"a" * 100)
    view = contents.map(100)

    contents.write(100, b"b" * 100_000)

    assert bytes(view) == b"a" * 100
    assert contents.read(0, 102) == b"a" * 100 + b"bb"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 12_000), st.binary(min_size=1, max_size=6000)),
        st.tuples(st.just("truncate"), st.integers(0, 15_000), st.just(b"")),
        st.tuples(st.just("allocate"), st.integers(1, 15_000), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
        st.tuples(st.just("look"), st.just(0), st.just(b"")),
    ),
    max_size=20,
)


@given(STEPS)
def test_image_log_and_buffer_equal_a_plain_array(steps: list[tuple[str, int, bytes]]) -> None:
    contents, expected = Contents(Image(), 0), bytearray()
    for kind, number, data in steps:
        if kind == "write":
            contents.write(number, data)
            expected.extend(bytes(max(0, number + len(data) - len(expected))))
            expected[number : number + len(data)] = data
        elif kind == "truncate":
            contents.truncate(number)
            expected = expected[:number] + bytes(max(0, number - len(expected)))
        elif kind == "allocate":
            contents.allocate(number)
            expected.extend(bytes(max(0, number - len(expected))))
        elif kind == "sync":
            contents.sync(contents.issued, failed=False)
        else:
            assert contents.read(0, 99_999) == expected

    assert contents.size == len(expected)
    assert contents.copy().read(0, 99_999) == contents.read(0, 99_999) == bytes(contents.map(contents.size)) == expected
    assert contents.blocks * PAGE >= sum(any(expected[at : at + PAGE]) for at in range(0, len(expected), PAGE)) * PAGE


@pytest.mark.parametrize("size", [PAGE, 1 << 20, 3 << 20])
def test_buffers_of_every_kind_grow(size: int) -> None:
    contents = Contents(Image(), 0)
    contents.write(0, b"head")
    contents.map(4)

    contents.write(size, b"tail")

    assert contents.read(0, 5) == b"head\0"
    assert contents.read(size - 1, 10) == b"\0tail"


def test_a_sync_that_ends_after_a_later_one_changes_nothing() -> None:
    contents = Contents(Image(), 0)
    contents.write(0, b"a")
    early = contents.issued
    contents.write(1, b"b")

    contents.sync(contents.issued, failed=False)
    contents.sync(early, failed=True)

    assert contents.log == []
    assert contents.image.pages[0][:2] == b"ab"


def test_crash_states_of_a_large_sparse_file_need_little_memory() -> None:
    contents = Contents(Image(), 0)
    contents.truncate(GIB)
    contents.write(Random(0).randrange(GIB // 2), b"x" * 10_000)
    contents.sync(contents.issued, failed=False)

    states = [Contents(contents.image, 0) for _ in range(1000)]

    assert all(state.image is contents.image for state in states)
