"""Cutting what one read brought into frames."""

from bench.method import Candidate, Subject
from bench.samples import COUNT, SAMPLES, send_frame
from pocketmq.protocol.frames import Frame, FrameSplitter

READ = b"".join(send_frame(sample) for sample in SAMPLES)
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_HEADER_BYTES = 1024 * 1024


def with_frame_splitter() -> list[Frame]:
    return FrameSplitter().feed(READ)


def with_a_naive_loop() -> list[Frame]:
    """The same checks, written as one would at first: one int at a time from a growing rest."""
    frames: list[Frame] = []
    rest = READ
    while len(rest) >= 8:
        total = int.from_bytes(rest[:4], "big")
        encoding = rest[4]
        header_size = int.from_bytes(rest[5:8], "big")
        if not 4 + header_size <= total <= MAX_FRAME_BYTES or header_size > MAX_HEADER_BYTES or encoding > 1:
            raise ValueError("not a frame")
        if len(rest) < 4 + total:
            break
        frames.append((encoding, rest[8 : 8 + header_size], rest[8 + header_size : 4 + total]))
        rest = rest[4 + total :]
    return frames


def with_a_loop_over_offsets() -> list[Frame]:
    """The same, without copying the rest."""
    frames: list[Frame] = []
    at, end = 0, len(READ)
    while end - at >= 8:
        total = int.from_bytes(READ[at : at + 4], "big")
        encoding = READ[at + 4]
        header_size = int.from_bytes(READ[at + 5 : at + 8], "big")
        if not 4 + header_size <= total <= MAX_FRAME_BYTES or header_size > MAX_HEADER_BYTES or encoding > 1:
            raise ValueError("not a frame")
        frame_end = at + 4 + total
        if frame_end > end:
            break
        header_end = at + 8 + header_size
        frames.append((encoding, READ[at + 8 : header_end], READ[header_end:frame_end]))
        at = frame_end
    return frames


def subjects() -> list[Subject]:
    assert with_frame_splitter() == with_a_naive_loop() == with_a_loop_over_offsets()
    candidates = [
        Candidate("FrameSplitter", with_frame_splitter, ours=True),
        Candidate("int.from_bytes at offsets", with_a_loop_over_offsets),
        Candidate("int.from_bytes, cut the rest", with_a_naive_loop),
    ]
    return [Subject("frame split", COUNT, candidates)]
