"""The stored message: one layout for the commit log, pull responses and transaction check-backs.

    | size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | log offset 8 | sysFlag 4 |
    | born ms 8 | born host 8 or 20 | store ms 8 | store host 8 or 20 | reconsume times 4 | prepared offset 8 |
    | body length 4 | body … | topic length 1 (v2: 2) | topic … | properties length 2 | properties … |

    | rest of file 4 | blank magic 4 | anything … |      fills a log file whose end is too short for the next record

A host is an IP address of 4 or 16 bytes, depending on sysFlag, and a port of 4 bytes. Version 2 is only for topics of more than 127 bytes.
"""

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Final
from zlib import crc32

from pocketmq.codes import SysFlag
from pocketmq.errors import ProtocolError
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model import properties as names

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_SIZE: Final = 8
"""The space that a file must have left after each record, so that a blank fits."""

MAX_TOPIC_V1_BYTES = 127
CRC_MASK = 0x7FFFFFFF

SMALLEST_RECORD: Final = 91
"""The size of a record with IPv4 hosts and no body, topic or properties."""

HOSTS_V6: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
HEAD_FIELDS: Final = {
    "size": "I",
    "magic": "I",
    "body_crc": "I",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "log_offset": "q",
    "sys_flag": "i",
    "born_ms": "q",
    "born_host": "8s",
    "store_ms": "q",
    "store_host": "8s",
    "reconsume_times": "i",
    "prepared_offset": "q",
    "body_size": "i",
}
"""The fields before the body with IPv4 hosts, as `struct` codes. `RECORD_FIELDS` in `compiled/turn.h` is the same."""


def _head(flags: int) -> struct.Struct:
    """The head of a record with the host sizes of `flags`."""
    v6_hosts = {
        name: "20s"
        for name, flag in (("born_host", SysFlag.BORN_HOST_V6), ("store_host", SysFlag.STORE_HOST_V6))
        if flags & flag
    }
    return struct.Struct(">" + "".join((HEAD_FIELDS | v6_hosts).values()))


def _reader(*names: str) -> Callable[[bytes, int], tuple[int, ...]]:
    """A reader of some fields of a head with IPv4 hosts."""
    steps = (each if name in names else f"{struct.calcsize('>' + each)}x" for name, each in HEAD_FIELDS.items())
    return struct.Struct(">" + "".join(steps)).unpack_from


_HEADS = {flags: _head(flags) for flags in (0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, HOSTS_V6)}
_HEAD_SIZES = {flags: head.size for flags, head in _HEADS.items()}
_V4_SIZE: Final = _HEADS[0].size
_BLANK = struct.Struct(">II")
_SHORT = struct.Struct(">H")
_unpack_head = _reader("size", "magic", "body_crc", "queue_id", "queue_offset", "sys_flag", "body_size")
_unpack_int = struct.Struct(">i").unpack_from
pack_ipv4_head: Final = _HEADS[0].pack
"""Packs the fields before the body of a record with IPv4 hosts."""
pack_short: Final = _SHORT.pack

FIELD_AT: Final = dict(
    zip(
        HEAD_FIELDS, accumulate((struct.calcsize(f">{each}") for each in HEAD_FIELDS.values()), initial=0), strict=False
    )
)
"""The position of each field in a head with IPv4 hosts."""
FLAG_AT: Final = FIELD_AT["flag"]
LOG_OFFSET_AT: Final = FIELD_AT["log_offset"]
SYS_FLAG_AT: Final = FIELD_AT["sys_flag"]


def crc_of(body: bytes | memoryview) -> int:
    """The checksum of a stored body."""
    return crc32(body) & CRC_MASK


def host_flags(packed_born_host: bytes, packed_store_host: bytes) -> int:
    """The sysFlag bits for the sizes of both hosts."""
    born = SysFlag.BORN_HOST_V6 if len(packed_born_host) == 20 else 0
    return born | (SysFlag.STORE_HOST_V6 if len(packed_store_host) == 20 else 0)


def head_packer(sys_flag: int) -> Callable[..., bytes]:
    """`pack_ipv4_head`, or its variant for the host sizes of `sys_flag`."""
    return _HEADS[sys_flag & HOSTS_V6].pack


def record_size(topic_bytes: int, body_bytes: int, properties_bytes: int, sys_flag: int = 0) -> int:
    """The size of a record."""
    wide_topic = topic_bytes > MAX_TOPIC_V1_BYTES
    return _HEADS[sys_flag & HOSTS_V6].size + 3 + wide_topic + topic_bytes + body_bytes + properties_bytes


def topic_field(topic: bytes) -> bytes:
    """The topic after its length: one byte up to 127 bytes, else two."""
    size = len(topic)
    return (size.to_bytes(1, "big") if size <= MAX_TOPIC_V1_BYTES else _SHORT.pack(size)) + topic


def magic_for(topic: bytes) -> int:
    """The magic of records of this topic."""
    return MAGIC_V1 if len(topic) <= MAX_TOPIC_V1_BYTES else MAGIC_V2


def encode_record(
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> bytes:
    """Encode a record. Hosts are packed; `sys_flag` must contain their sizes (see `host_flags`)."""
    return b"".join(
        (
            head_packer(sys_flag)(
                record_size(len(topic), len(body), len(properties), sys_flag),
                magic_for(topic),
                crc32(body) & CRC_MASK,
                queue_id,
                flag,
                queue_offset,
                log_offset,
                sys_flag,
                born_ms,
                born_host,
                store_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                len(body),
            ),
            body,
            topic_field(topic),
            pack_short(len(properties)),
            properties,
        )
    )


def encode_message(message: StoredMessage) -> bytes:
    """The record that `message` was decoded from, with a recomputed checksum."""
    return encode_record(
        message.topic.encode(),
        message.queue_id,
        message.queue_offset,
        message.log_offset,
        message.body,
        message.raw_properties,
        message.flag,
        message.sys_flag,
        message.born_ms,
        message.packed_born_host,
        message.store_ms,
        message.packed_store_host,
        message.reconsume_times,
        message.prepared_offset,
    )


def with_flag(head: bytes, flag: int) -> bytes:
    """The head of a record with another user flag."""
    return head[:FLAG_AT] + flag.to_bytes(4, "big", signed=True) + head[FLAG_AT + 4 :]


def encode_blank(size: int) -> bytes:
    """The head of a blank, which fills the last `size` bytes of a log file with any content."""
    return _BLANK.pack(size, MAGIC_BLANK)


def decode_record(
    buffer: bytes, at: int = 0, check_crc: bool = True, queue: MessageQueue | None = None
) -> StoredMessage:
    """Decode the record at `at`. ProtocolError if it is incomplete or its checksum is wrong.

    Accepts bytes only, not views: slicing bytes takes half the time, and this runs once per message.
    """
    try:
        size, magic, crc, queue_id, queue_offset, sys_flag, body_size = _unpack_head(buffer, at)
        body_at = at + _V4_SIZE
        if sys_flag & HOSTS_V6:
            body_at = at + _HEAD_SIZES[sys_flag & HOSTS_V6]
            body_size = _unpack_int(buffer, body_at - 4)[0]
        body_end = body_at + body_size
        body = buffer[body_at:body_end]
        topic_at = body_end + 1
        topic_end = topic_at + buffer[body_end]
        if magic != MAGIC_V1:
            topic_at, topic_end = _topic_v2(buffer, at, magic, body_end)
        properties_at = topic_end + 2
        end = properties_at + (buffer[topic_end] << 8 | buffer[topic_end + 1])
        if body_size < 0 or end != at + size or end > len(buffer):
            raise _damage(at, f"size {size}, but its fields end after {end - at} of {len(buffer) - at} bytes")
        if check_crc and crc32(body) & CRC_MASK != crc:
            raise _damage(at, "a wrong body checksum")
        topic = buffer[topic_at:topic_end].decode()
        return StoredMessage(
            topic, queue_id, queue_offset, sys_flag, body, buffer[properties_at:end], buffer[at:body_at], size, queue
        )
    except (struct.error, IndexError):
        raise _damage(at, f"only {len(buffer) - at} bytes") from None
    except UnicodeDecodeError:
        raise _damage(at, "a topic that is not UTF-8") from None


def _topic_v2(buffer: bytes, at: int, magic: int, body_end: int) -> tuple[int, int]:
    if magic != MAGIC_V2:
        raise _damage(at, f"magic {magic:#010x}")
    topic_at = body_end + 2
    return topic_at, topic_at + (buffer[body_end] << 8 | buffer[body_end + 1])


def properties_start(record: bytes) -> int:
    """The position of the properties in a record, which they end. For filters, which need nothing else."""
    try:
        head = _HEAD_SIZES[record[SYS_FLAG_AT + 3] & HOSTS_V6]
        body_size: int = _unpack_int(record, head - 4)[0]
        topic_at = head + body_size
        if record[7] == MAGIC_V1 & 0xFF:
            start = topic_at + 3 + record[topic_at]
        else:
            start = topic_at + 4 + (record[topic_at] << 8 | record[topic_at + 1])
    except (struct.error, IndexError):
        raise _damage(0, f"only {len(record)} bytes") from None
    if not head < start <= len(record):
        raise _damage(0, f"properties at {start} of {len(record)} bytes")
    return start


def decode_records(buffer: bytes, *, check_crc: bool = True, queue: MessageQueue | None = None) -> list[StoredMessage]:
    """Decode the records of a pull response. `queue` is the queue that was pulled.

    Records with IPv4 hosts and a topic length of one byte are decoded inline, without a call for each; `decode_record` decodes all
    others and reports damage. Topic and property length are mostly those of the record before, which one comparison shows.
    """
    messages: list[StoredMessage] = []
    append, at, end = messages.append, 0, len(buffer)
    seen, seen_size, topic, properties_size = b"nothing yet", 0, "", 0
    while at < end:
        try:
            size, magic, crc, queue_id, queue_offset, sys_flag, body_size = _unpack_head(buffer, at)
            if magic == MAGIC_V1 and not sys_flag & HOSTS_V6 and body_size >= 0:
                body_at = at + _V4_SIZE
                body_end = body_at + body_size
                if not buffer.startswith(seen, body_end):
                    seen, topic, properties_size = _after_body(buffer, body_end)
                    seen_size = len(seen)
                properties_at = body_end + seen_size
                record_end = properties_at + properties_size
                body = buffer[body_at:body_end]
                if record_end == at + size <= end and (not check_crc or crc32(body) & CRC_MASK == crc):
                    properties, head = buffer[properties_at:record_end], buffer[at:body_at]
                    append(StoredMessage(topic, queue_id, queue_offset, sys_flag, body, properties, head, size, queue))
                    at = record_end
                    continue
        except (struct.error, IndexError, UnicodeDecodeError):
            pass  # `decode_record` reports which one
        message = decode_record(buffer, at, check_crc, queue)
        append(message)
        at += message.size
    return messages


def _after_body(buffer: bytes, at: int) -> tuple[bytes, str, int]:
    """The bytes between body and properties, decoded: the topic and the length of the properties."""
    topic_end = at + 1 + buffer[at]
    properties_size = buffer[topic_end] << 8 | buffer[topic_end + 1]
    return buffer[at : topic_end + 2], buffer[at + 1 : topic_end].decode(), properties_size


def _damage(at: int, what: str) -> ProtocolError:
    return ProtocolError(f"record at {at} has {what}")


PROPERTY_CRC_SIZE: Final = len(names.CRC32) + 12
"""The size of the optional checksum of a record: its name, ten digits and two separators."""


def property_crc(record: bytes | memoryview) -> bytes:
    """The optional last property: the checksum of all bytes before it, least significant digit first."""
    digits = f"{crc32(record) & CRC_MASK:010d}"[::-1]
    return f"{names.CRC32}\x01{digits}\x02".encode()


def property_crc_matches(record: bytes | memoryview) -> bool:
    """Whether the optional checksum matches; True for a record without one."""
    tail = bytes(record[-PROPERTY_CRC_SIZE:])
    if not tail.startswith(names.CRC32.encode() + b"\x01"):
        return True
    return tail == property_crc(record[: len(record) - PROPERTY_CRC_SIZE])
