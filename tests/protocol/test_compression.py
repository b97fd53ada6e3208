"""Compression: bodies of Java, our bodies, and compression bombs and invalid bodies."""

import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import captured, needs_golden

from pocketmq.codes import Compression, RequestCode, SysFlag
from pocketmq.errors import InvalidSetting, MissingLibrary, ProtocolError
from pocketmq.protocol import compression
from pocketmq.protocol.compression import (
    MIN_BODY_BYTES,
    compress,
    compression_of,
    decompress,
    decompress_start,
    with_compression,
)

KINDS = list(Compression)
MIB = 1024 * 1024
TEXT = b"".join(b"order %d of customer %d; " % (n, n * n % 97) for n in range(30_000))


def flag_of(kind: Compression) -> int:
    return with_compression(0, kind)


def inflated(body: bytes, kind: Compression, max_bytes: int = 16 * MIB) -> bytes:
    return decompress(body, flag_of(kind), max_bytes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body", [b"", b"a", TEXT[:MIN_BODY_BYTES], TEXT, bytes(3 * MIB), random.Random(7).randbytes(MIB)]
)
def test_a_body_is_decompressed_unchanged(kind: Compression, body: bytes) -> None:
    assert inflated(compress(body, kind), kind) == body


@given(st.binary(max_size=2000), st.sampled_from(KINDS))
def test_any_body_is_decompressed_unchanged(body: bytes, kind: Compression) -> None:
    assert inflated(compress(body, kind), kind) == body


@needs_golden
def test_bodies_compressed_by_java_are_inflated() -> None:
    sends = [frame.command for frame in captured("wire/*/*/send.jsonl")]
    compressed = [
        send
        for send in sends
        if send.code == RequestCode.SEND_MESSAGE_V2 and send.ext and int(send.ext["f"]) & SysFlag.COMPRESSED
    ]

    assert len(compressed) >= 8
    for send in compressed:
        assert send.ext
        plain = decompress(send.body, int(send.ext["f"]))
        assert len(plain) >= MIN_BODY_BYTES
        assert inflated(compress(plain, Compression.ZLIB), Compression.ZLIB) == plain
        assert compress(plain, Compression.ZLIB)[:2] == send.body[:2]


def test_an_uncompressed_body_of_any_size_is_returned() -> None:
    assert decompress(TEXT, 0, max_bytes=1) is TEXT
    assert decompress(TEXT, SysFlag.COMPRESSION_MASK, max_bytes=1) is TEXT


def test_a_compressed_body_without_a_type_is_zlib_as_from_old_clients() -> None:
    assert compression_of(SysFlag.COMPRESSED) is Compression.ZLIB
    assert decompress(zlib.compress(TEXT), SysFlag.COMPRESSED) == TEXT


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown compression type 4"):
        decompress(b"", SysFlag.COMPRESSED | 0x400)


def lz4_without_size(body: bytes) -> bytes:
    packed: bytes = lz4.frame.compress(body, store_size=False)
    return packed


def lz4_with_checksums(body: bytes) -> bytes:
    packed: bytes = lz4.frame.compress(
        body,
        block_size=lz4.frame.BLOCKSIZE_MAX4MB,
        content_checksum=True,
        block_checksum=True,
        compression_level=9,
    )
    return packed


def zstd_as_a_stream(body: bytes) -> bytes:
    """As Java's output stream writes it: no content size."""
    stream = zstandard.ZstdCompressor(level=5).compressobj()
    return stream.compress(body) + stream.flush()


def zstd_with_checksum(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=10, write_checksum=True, write_content_size=False).compress(body)


def zstd_flushed_often(body: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    parts = [
        stream.compress(body[at : at + 1000]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, len(body), 1000)
    ]
    return b"".join(parts) + stream.flush()


FOREIGN: list[tuple[Callable[[bytes], bytes], Compression]] = [
    (lz4_without_size, Compression.LZ4),
    (lz4_with_checksums, Compression.LZ4),
    (zstd_as_a_stream, Compression.ZSTD),
    (zstd_with_checksum, Compression.ZSTD),
    (zstd_flushed_often, Compression.ZSTD),
    (lambda body: zlib.compress(body, 0), Compression.ZLIB),
]


@pytest.mark.parametrize(("write", "kind"), FOREIGN)
@pytest.mark.parametrize("body", [b"", b"a", TEXT, bytes(MIB)])
def test_output_of_other_compressors_is_inflated(
    write: Callable[[bytes], bytes], kind: Compression, body: bytes
) -> None:
    assert inflated(write(body), kind) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_of_the_maximum_size_is_inflated_and_a_larger_one_is_refused(kind: Compression) -> None:
    packed = compress(TEXT, kind)

    assert inflated(packed, kind, len(TEXT)) == TEXT
    with pytest.raises(ProtocolError, match=f"{kind.name} body .* inflates to more than the limit of {len(TEXT) - 1}"):
        inflated(packed, kind, len(TEXT) - 1)


def zstd_that_claims_little(size: int) -> bytes:
    """A frame of 128 KiB blocks of one repeated byte, without its size."""
    blocks = size >> 17
    head = bytes.fromhex("28B52FFD 00 58")
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return head + block * (blocks - 1) + last


def zlib_of_zeros(size: int) -> bytes:
    stream = zlib.compressobj(9)
    return b"".join(stream.compress(bytes(MIB)) for _ in range(size // MIB)) + stream.flush()


def lz4_of_zeros(size: int) -> bytes:
    with lz4.frame.LZ4FrameCompressor(block_linked=False) as frame:
        packed: bytes = frame.begin() + b"".join(frame.compress(bytes(MIB)) for _ in range(size // MIB)) + frame.flush()
    return packed


@pytest.mark.parametrize(
    ("bomb", "kind"),
    [
        (zlib_of_zeros(64 * MIB), Compression.ZLIB),
        (lz4_of_zeros(64 * MIB), Compression.LZ4),
        (zstd_that_claims_little(1024 * MIB), Compression.ZSTD),
    ],
    ids=["zlib", "lz4", "zstd"],
)
def test_a_compression_bomb_uses_no_more_than_the_limit_and_one_chunk(bomb: bytes, kind: Compression) -> None:
    cap = 2 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="inflates to more than"):
            inflated(bomb, kind, cap)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < cap + MIB


def lz4_that_claims_a_gigabyte() -> bytes:
    with lz4.frame.LZ4FrameCompressor() as frame:
        packed: bytes = frame.begin(source_size=1024 * MIB)
    stored_block_of_one_byte = bytes.fromhex("01000080 61")
    return packed + stored_block_of_one_byte + bytes(4)


@pytest.mark.parametrize(
    ("liar", "kind"),
    [
        (lz4_that_claims_a_gigabyte(), Compression.LZ4),
        (bytes.fromhex("28B52FFD 80 58 00000040 090000 61"), Compression.ZSTD),
        (bytes.fromhex("28B52FFD A0 00000040 090000 61"), Compression.ZSTD),
    ],
    ids=["lz4", "zstd", "zstd in one segment"],
)
def test_the_declared_size_of_a_frame_is_not_trusted(liar: bytes, kind: Compression) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=f"{kind.name} body: "):
            inflated(liar, kind)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MIB


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_truncated_at_any_byte_is_refused(kind: Compression) -> None:
    packed = compress(TEXT[:6000], kind)

    for kept in range(len(packed)):
        with pytest.raises(ProtocolError, match=kind.name):
            inflated(packed[:kept], kind)


@pytest.mark.parametrize(("write", "kind"), FOREIGN)
def test_a_truncated_long_body_is_refused_for_every_compressor(
    write: Callable[[bytes], bytes], kind: Compression
) -> None:
    packed = write(TEXT)

    for kept in (*range(0, len(packed), len(packed) // 50), *range(len(packed) - 20, len(packed))):
        with pytest.raises(ProtocolError, match=kind.name):
            inflated(packed[:kept], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"abc", TEXT])
@pytest.mark.parametrize("tail", [b"x", bytes(200_000)])
def test_bytes_after_the_end_are_refused(kind: Compression, body: bytes, tail: bytes) -> None:
    with pytest.raises(ProtocolError, match="followed by other bytes"):
        inflated(compress(body, kind) + tail, kind)


def test_a_second_zstd_frame_is_refused() -> None:
    frame = zstd_with_checksum(b"abc")

    with pytest.raises(ProtocolError, match="followed by other bytes"):
        inflated(frame + zstd_that_claims_little(1024 * MIB), Compression.ZSTD)


def test_a_zstd_body_of_many_empty_blocks_is_refused() -> None:
    empty = bytes.fromhex("28B52FFD 00 58") + bytes(3) * 70_000

    with pytest.raises(ProtocolError, match="more than 65536 blocks"):
        inflated(empty, Compression.ZSTD)


def test_a_zstd_window_above_the_limit_is_refused() -> None:
    window_of_128_mib = bytes.fromhex("28B52FFD 00 88") + bytes.fromhex("090000 61")

    with pytest.raises(ProtocolError, match="ZSTD body"):
        inflated(window_of_128_mib, Compression.ZSTD)


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.integers(0, 400))
def test_arbitrary_bytes_raise_only_a_protocol_error(body: bytes, kind: Compression, cap: int) -> None:
    for candidate in (body, compress(b"", kind)[:6] + body):
        with suppress(ProtocolError):
            assert len(inflated(candidate, kind, cap)) <= cap


@given(st.binary(max_size=300), st.sampled_from(KINDS), st.data())
def test_a_changed_byte_raises_only_a_protocol_error(body: bytes, kind: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(body, kind))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))

    with suppress(ProtocolError):
        assert len(inflated(bytes(packed), kind, 1000)) <= 1000


@pytest.mark.parametrize(
    ("kind", "level", "range_text"),
    [(Compression.ZLIB, 10, "0 to 9"), (Compression.ZLIB, -1, "0 to 9"), (Compression.ZSTD, 23, "1 to 22")],
)
def test_a_level_that_does_not_exist_is_refused(kind: Compression, level: int, range_text: str) -> None:
    with pytest.raises(InvalidSetting, match=f"no compression level {level}; choose {range_text}"):
        compress(b"a", kind, level)


def test_the_level_is_used_and_lz4_has_none() -> None:
    short = TEXT[:20_000]

    assert len(compress(short, Compression.ZLIB, 9)) < len(compress(short, Compression.ZLIB, 1))
    assert len(compress(short, Compression.ZSTD, 19)) < len(compress(short, Compression.ZSTD, 1))
    assert compress(short, Compression.LZ4, 99) == compress(short, Compression.LZ4, 0)


@pytest.mark.parametrize(
    ("kind", "module", "library"),
    [(Compression.LZ4, "lz4.frame", "lz4"), (Compression.ZSTD, "zstandard", "zstandard")],
)
def test_a_missing_library_is_reported_with_the_command_that_installs_it(
    kind: Compression, module: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(b"a", kind)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingLibrary, match=rf"{library}; run .* -m pip install 'lz4"):
        compress(b"a", kind)
    with pytest.raises(MissingLibrary, match=rf"{library}; run .* -m pip install 'lz4"):
        inflated(packed, kind)


def test_the_defaults_are_those_of_the_java_client() -> None:
    assert (compression.MIN_BODY_BYTES, compression.LEVEL) == (4096, 5)


@pytest.mark.parametrize("kind", Compression)
def test_only_the_needed_part_of_a_body_is_decompressed(kind: Compression) -> None:
    body = bytes(range(256)) * 4096
    packed, flag = compress(body, kind), with_compression(0, kind)

    assert decompress_start(packed, flag, 1_000) == (body[:1_000], False)
    assert decompress_start(packed, flag, len(body)) == (body, True)
    assert decompress_start(packed, flag, len(body) - 1) == (body[:-1], False)
    assert decompress_start(b"plain", 0, 3) == (b"pla", False)
    assert decompress_start(b"plain", 0, 5) == (b"plain", True)
    with pytest.raises(ProtocolError):
        decompress_start(b"damaged", flag, 10)
