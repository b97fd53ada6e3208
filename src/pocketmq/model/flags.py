"""Bit sets of the protocol and the store.

They are int constants, not enum.IntFlag: they are tested once per message, and an IntFlag takes ten times as long.
"""

from enum import IntEnum

from pocketmq.errors import ProtocolError


class SysFlag:
    """Bits of a message's sysFlag."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    TRANSACTION_MASK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_MASK = 0x700
    COMPRESSION_SHIFT = 8
    OF_CLIENTS = COMPRESSED | MULTI_TAGS | COMPRESSION_MASK
    """The bits that a broker accepts from a client. It sets all others itself: transaction bits from properties and decisions, host
    bits from addresses, inner-batch bits from the topic type. A client that could set them would hide messages from
    consumers."""


class Compression(IntEnum):
    """How a body is compressed: bits 8 to 10 of sysFlag, meaningful only with `SysFlag.COMPRESSED`."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


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


class PullFlag:
    """Bits of a pull request's sysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16
    ONLY_BODIES = 1 << 20
    """PocketMQ's own bit, which RocketMQ's brokers ignore: see `protocol.body_pack`."""


class Perm:
    """Bits of a topic's or broker's permission."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
    READ_WRITE = READ | WRITE


def perm_text(perm: int) -> str:
    """The permission as mqadmin prints it: `RWX`, with `-` for a missing bit."""
    bits = ((Perm.READ, "R"), (Perm.WRITE, "W"), (Perm.INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


class TopicFlag:
    """Bits of topicSysFlag."""

    UNIT = 1
    UNIT_SUB = 2


class TransactionState(IntEnum):
    """A producer's decision about a transaction: the transaction bits of sysFlag."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12
