"""Compression of bodies: zlib, and LZ4 and zstd if the extra `compression` is installed.

    compress ──► zlib stream | LZ4 frame | zstd frame ──► decompress, in chunks, up to the limit

The size that a body declares is not trusted. Decompressors produce chunks, which are counted, so a small body that would inflate to
fill the memory costs at most the limit plus one chunk.
"""

import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final

from pocketmq.codes import Compression, SysFlag
from pocketmq.errors import InvalidSetting, MissingLibrary, ProtocolError, install_command

MIN_BODY_BYTES: Final = 4096
"""Clients compress bodies of at least this size, even when that makes them longer."""
LEVEL: Final = 5
"""The default level of clients."""
MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024
"""The default limit: the most that a frame can contain uncompressed."""

_LEVELS = {Compression.ZLIB: range(10), Compression.ZSTD: range(1, 23)}
_CHUNK_BYTES = 128 * 1024
"""The largest chunk of output; a zstd block is never larger."""
_PIECE_BYTES = 64 * 1024
"""Input goes to a decompressor in parts, because it copies unused input at each step."""
_MAX_ZSTD_BLOCKS = 65_536
"""Far more than any writer produces. Even an empty block costs time."""
_MIN_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""The window of zstd's level 19. Pages that a body does not fill are never touched."""


def compression_of(sys_flag: int) -> Compression | None:
    """The compression of a body, None for a plain one. Clients before 4.9.5 leave the type bits 0 and mean zlib."""
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    kind = (sys_flag & SysFlag.COMPRESSION_MASK) >> SysFlag.COMPRESSION_SHIFT or Compression.ZLIB
    if kind > Compression.ZLIB:
        raise ProtocolError(f"unknown compression type {kind} in sysFlag {sys_flag:#x}")
    return Compression(kind)


def with_compression(sys_flag: int, compression: Compression) -> int:
    """`sys_flag` of a body that was compressed this way."""
    plain = sys_flag & ~SysFlag.COMPRESSION_MASK
    return plain | SysFlag.COMPRESSED | compression << SysFlag.COMPRESSION_SHIFT


def compress(body: bytes, kind: Compression, level: int = LEVEL) -> bytes:
    """Compress `body`. LZ4 has no level in RocketMQ. Set the kind in sysFlag with `with_compression`."""
    if kind in _LEVELS and level not in _LEVELS[kind]:
        levels = _LEVELS[kind]
        raise InvalidSetting(f"{kind.name} has no compression level {level}; choose {levels[0]} to {levels[-1]}")
    packed: bytes
    match kind:
        case Compression.ZLIB:
            packed = zlib.compress(body, level)
        case Compression.LZ4:
            packed = _lz4_frame().compress(body)
        case Compression.ZSTD:
            packed = _zstandard().ZstdCompressor(level=level).compress(body)
    return packed


def decompress(body: bytes, sys_flag: int, max_bytes: int = MAX_INFLATED_BYTES) -> bytes:
    """Decompress a body if `sys_flag` says that it is compressed.

    ProtocolError if it is damaged, truncated, followed by other bytes, or inflates to more than `max_bytes`.
    """
    kind = compression_of(sys_flag)
    if kind is None:
        return body
    chunks: list[bytes] = []
    total = 0
    for chunk in _CHUNKS[kind](body, max_bytes):
        total += len(chunk)
        if total > max_bytes:
            raise ProtocolError(f"{kind.name} body of {len(body)} bytes inflates to more than the limit of {max_bytes}")
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decompress_start(body: bytes, sys_flag: int, wanted_bytes: int) -> tuple[bytes, bool]:
    """At most the first `wanted_bytes` of a body, and whether that is all of it. Decompresses no more than necessary.

    ProtocolError if it is damaged before that.
    """
    kind = compression_of(sys_flag)
    if kind is None:
        return body[:wanted_bytes], len(body) <= wanted_bytes
    chunks: list[bytes] = []
    total = 0
    for chunk in _CHUNKS[kind](body, MAX_INFLATED_BYTES):
        chunks.append(chunk)
        total += len(chunk)
        if total > wanted_bytes:
            return b"".join(chunks)[:wanted_bytes], False
    return b"".join(chunks), True


def _zlib_chunks(body: bytes, _max_bytes: int) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    try:
        for piece in _pieces(body):
            _check_continues(Compression.ZLIB, stream.eof)
            rest: bytes | memoryview = piece
            while rest and not stream.eof:
                yield stream.decompress(rest, _CHUNK_BYTES)
                rest = stream.unconsumed_tail
    except zlib.error as error:
        raise ProtocolError(f"ZLIB body: {error}") from None
    _check_ended(Compression.ZLIB, stream.eof, stream.unused_data)


def _lz4_chunks(body: bytes, _max_bytes: int) -> Iterator[bytes]:
    frame = _lz4_frame().LZ4FrameDecompressor()
    try:
        for piece in _pieces(body):
            _check_continues(Compression.LZ4, frame.eof)
            yield frame.decompress(piece, _CHUNK_BYTES)
            while not (frame.eof or frame.needs_input):
                yield frame.decompress(b"", _CHUNK_BYTES)
    except RuntimeError as error:
        raise ProtocolError(f"LZ4 body: {error}") from None
    _check_ended(Compression.LZ4, frame.eof, frame.unused_data)


def _zstd_chunks(body: bytes, max_bytes: int) -> Iterator[bytes]:
    """One block at a time: the decompressor has no output limit, but a block has a maximum size."""
    library = _zstandard()
    window_bytes = max(max_bytes, _MIN_ZSTD_WINDOW_BYTES)
    frame = library.ZstdDecompressor(max_window_size=window_bytes).decompressobj()
    try:
        start = 0
        for end in _zstd_block_ends(body, library.frame_header_size(body)):
            _check_continues(Compression.ZSTD, frame.eof)
            yield frame.decompress(body[start:end])
            start = end
    except library.ZstdError as error:
        raise ProtocolError(f"ZSTD body: {error}") from None
    _check_ended(Compression.ZSTD, frame.eof, frame.unused_data)


def _zstd_block_ends(body: bytes, first_at: int) -> Iterator[int]:
    """The ends of all blocks, then the end of the body: a checksum may follow the last block.

    | last block? 1 bit | type 2 bits | size 21 bits |  little-endian; type 1 is one byte, repeated `size` times
    """
    at = first_at
    for _ in range(_MAX_ZSTD_BLOCKS):
        head = int.from_bytes(body[at : at + 3], "little")
        at += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
        if head & 1 or at >= len(body):
            break
        yield at
    else:
        raise ProtocolError(f"ZSTD body of more than {_MAX_ZSTD_BLOCKS} blocks")
    yield at
    if at < len(body):
        yield len(body)


def _check_continues(kind: Compression, ended: bool) -> None:
    if ended:
        raise ProtocolError(f"{kind.name} body is followed by other bytes")


def _check_ended(kind: Compression, ended: bool, unused: bytes | None) -> None:
    if not ended:
        raise ProtocolError(f"{kind.name} body is truncated")
    _check_continues(kind, bool(unused))


def _pieces(body: bytes) -> Iterator[memoryview]:
    view = memoryview(body)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES))


_CHUNKS: dict[Compression, Callable[[bytes, int], Iterator[bytes]]] = {
    Compression.ZLIB: _zlib_chunks,
    Compression.LZ4: _lz4_chunks,
    Compression.ZSTD: _zstd_chunks,
}


def _lz4_frame() -> ModuleType:
    try:
        import lz4.frame  # type: ignore[import-untyped]
    except ImportError:
        raise _missing("lz4") from None
    found: ModuleType = lz4.frame
    return found


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError:
        raise _missing("zstandard") from None
    return zstandard


def _missing(library: str) -> MissingLibrary:
    return MissingLibrary(f"this compression needs the library {library}; run {install_command('compression')}")
