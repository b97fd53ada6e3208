"""Frames: cut out of any stream of bytes, and refused as soon as their prefix shows that they exceed a limit."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import ProtocolError
from pocketmq.protocol.frames import (
    DEFAULT_LIMITS,
    PREFIX_SIZE,
    Frame,
    FrameLimits,
    FrameSplitter,
    join_frame,
    split_frames,
)

pytestmark = pytest.mark.usefixtures("twin")

SMALL = FrameLimits(frame_bytes=64, header_bytes=16)
FRAMES = st.lists(st.tuples(st.sampled_from([0, 1]), st.binary(max_size=40), st.binary(max_size=200)), max_size=8)


def prefix(total: int, encoding: int = 0, header: int = 0) -> bytes:
    return struct.pack(">II", total, encoding << 24 | header)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of these sizes, again and again."""
    pieces = []
    at = 0
    while at < len(data):
        for size in sizes:
            pieces.append(data[at : at + size])
            at += size
    return [piece for piece in pieces if piece]


@given(FRAMES)
def test_joined_frames_are_split_again(frames: list[Frame]) -> None:
    stream = b"".join(join_frame(*frame) for frame in frames)

    assert split_frames(stream) == frames


@given(FRAMES, st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_the_size_of_reads_does_not_change_the_frames(frames: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(join_frame(*frame) for frame in frames)
    splitter = FrameSplitter()

    found = [frame for piece in cut(stream, sizes) for frame in splitter.feed(piece)]

    assert found == frames
    assert splitter.pending == 0
    assert splitter.failure is None


@given(st.lists(st.binary(max_size=100), max_size=12))
def test_arbitrary_bytes_never_raise_and_never_buffer_more_than_one_frame(reads: list[bytes]) -> None:
    splitter = FrameSplitter(SMALL)

    for read in reads:
        frames = splitter.feed(read)

        assert splitter.pending < SMALL.frame_bytes
        assert all(len(header) <= SMALL.header_bytes for _, header, _ in frames)
        assert all(PREFIX_SIZE + len(header) + len(body) <= SMALL.frame_bytes for _, header, body in frames)


@given(st.binary(max_size=300), st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_arbitrary_bytes_fail_equally_in_any_segmentation(data: bytes, sizes: list[int]) -> None:
    whole, pieces = FrameSplitter(SMALL), FrameSplitter(SMALL)

    frames = whole.feed(data)
    found = [frame for piece in cut(data, sizes) for frame in pieces.feed(piece)]

    assert found == frames
    assert str(pieces.failure) == str(whole.failure)
    assert pieces.pending == whole.pending


def test_a_frame_may_be_empty() -> None:
    assert split_frames(prefix(4)) == [(0, b"", b"")]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (prefix(0), "frame of 0 bytes: too short for its own length fields"),
        (prefix(3), "frame of 3 bytes: too short for its own length fields"),
        (prefix(16 * 1024 * 1024 - 3), "frame of 16777217 bytes exceeds the limit of 16777216"),
        (prefix(0xFFFFFFFF), "frame of 4294967299 bytes exceeds the limit of 16777216"),
        (prefix(2 * 1024 * 1024, 0, 1024 * 1024 + 1), "header of 1048577 bytes exceeds the limit of 1048576"),
        (prefix(2 * 1024 * 1024, 1, 1024 * 1024 + 1), "header of 1048577 bytes exceeds the limit of 1048576"),
        (prefix(100, 2, 10), "unknown header encoding 2"),
        (prefix(100, 255, 10), "unknown header encoding 255"),
        (prefix(100, 0, 97), "header of 97 bytes in a frame with 96"),
    ],
)
def test_an_invalid_prefix_ends_the_stream_at_once(start: bytes, words: str) -> None:
    splitter = FrameSplitter()

    frames = splitter.feed(join_frame(0, b"good") + start)

    assert frames == [(0, b"good", b"")]
    assert isinstance(splitter.failure, ProtocolError)
    assert str(splitter.failure) == words
    assert splitter.pending == 0
    assert splitter.feed(join_frame(0, b"never read")) == []


def test_a_too_large_length_is_refused_before_the_rest_of_the_prefix() -> None:
    splitter = FrameSplitter()

    for byte in prefix(0x7FFFFFFF)[:4]:
        assert splitter.failure is None
        splitter.feed(bytes([byte]))

    assert "exceeds the limit of 16777216" in str(splitter.failure)


def test_a_prefix_is_checked_before_later_bytes_are_buffered() -> None:
    splitter = FrameSplitter()

    for byte in prefix(10_000_000, encoding=7):
        assert splitter.failure is None
        splitter.feed(bytes([byte]))

    assert str(splitter.failure) == "unknown header encoding 7"
    assert splitter.pending == 0


def test_a_large_announced_frame_uses_only_the_memory_of_its_received_bytes() -> None:
    splitter = FrameSplitter()

    splitter.feed(prefix(DEFAULT_LIMITS.frame_bytes - 4))
    for _ in range(100):
        splitter.feed(b"x" * 10)

    assert splitter.pending == PREFIX_SIZE + 1000
    assert splitter.failure is None


@pytest.mark.parametrize("encoding", [0, 1])
def test_frame_and_header_may_have_the_maximum_size_and_no_more(encoding: int) -> None:
    largest = join_frame(encoding, bytes(16), bytes(40))
    assert len(largest) == SMALL.frame_bytes

    assert split_frames(largest, SMALL) == [(encoding, bytes(16), bytes(40))]
    with pytest.raises(ProtocolError, match="frame of 65 bytes exceeds the limit of 64"):
        split_frames(join_frame(encoding, bytes(16), bytes(41)), SMALL)
    with pytest.raises(ProtocolError, match="header of 17 bytes exceeds the limit of 16"):
        split_frames(join_frame(encoding, bytes(17)), SMALL)


def test_bytes_after_the_last_complete_frame_are_reported() -> None:
    with pytest.raises(ProtocolError, match="3 bytes after the last complete frame"):
        split_frames(join_frame(0, b"{}") + b"\0\0\0")


@pytest.mark.parametrize("header_bytes", [10, 40_000])
@pytest.mark.parametrize("piece", [1_000, 20_000, 65_536])
def test_a_large_frame_in_pieces_and_the_next_frame_are_complete(piece: int, header_bytes: int) -> None:
    large = join_frame(0, b"h" * header_bytes, bytes(range(256)) * 1_200)
    small = join_frame(0, b"{}", b"body")
    stream = small + large + small + large + small

    splitter = FrameSplitter()
    frames = [frame for at in range(0, len(stream), piece) for frame in splitter.feed(stream[at : at + piece])]

    assert frames == split_frames(stream)
    assert len(frames) == 5
    assert splitter.pending == 0
    assert all(type(part) is bytes for _, *parts in frames for part in parts)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "an HTTP response"),
        (b"GET / HTTP/1.1", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00", "begin a TLS connection"),
        (b"\x15\x03\x03\x00\x02", "a TLS alert"),
    ],
)
def test_the_first_bytes_of_another_protocol_are_recognised(start: bytes, words: str) -> None:
    splitter = FrameSplitter()

    assert splitter.feed(start) == []
    assert words in str(splitter.failure)
