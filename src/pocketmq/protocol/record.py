"""The stored message: one layout for the commit log, for pull answers and for transaction check-backs.

    | size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | log offset 8 | sysFlag 4 |
    | born ms 8 | born host 8 or 20 | store ms 8 | store host 8 or 20 | reconsume times 4 | prepared offset 8 |
    | body length 4 | body … | topic length 1 (v2: 2) | topic … | properties length 2 | properties … |

    | rest of file 4 | blank magic 4 | anything … |      fills the end of a log file that the next record does not fit into

A host is 4 or 16 bytes of ip (sysFlag tells which) and 4 of port. Version 2 is written for topics of more than 127 bytes only.
"""

import struct
from collections.abc import Callable
from itertools import accumulate
from typing import Final
from zlib import crc32

from pocketmq.errors import ProtocolError
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
BLANK_SIZE: Final = 8
"""What a file must have left after every record, so that filler always fits."""

MAX_TOPIC_V1_BYTES = 127
CRC_MASK = 0x7FFFFFFF

SMALLEST_RECORD: Final = 91
"""A record with IPv4 hosts and no body, topic or properties."""

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
"""What stands before the body when both hosts are IPv4, as `struct` has it. `RECORD_FIELDS` of `compiled/turn.h` is the same."""


def _head(flags: int) -> struct.Struct:
    """The head of a record whose hosts are as `flags` tell."""
    v6_hosts = {
        name: "20s"
        for name, flag in (("born_host", SysFlag.BORN_HOST_V6), ("store_host", SysFlag.STORE_HOST_V6))
        if flags & flag
    }
    return struct.Struct(">" + "".join((HEAD_FIELDS | v6_hosts).values()))


def _reader(*names: str) -> Callable[[bytes, int], tuple[int, ...]]:
    """Reads some fields of a head with IPv4 hosts and steps over the others."""
    steps = (each if name in names else f"{struct.calcsize('>' + each)}x" for name, each in HEAD_FIELDS.items())
    return struct.Struct(">" + "".join(steps)).unpack_from


_HEADS = {flags: _head(flags) for flags in (0, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6, HOSTS_V6)}
_HEAD_SIZES = {flags: head.size for flags, head in _HEADS.items()}
_V4_SIZE: Final = _HEADS[0].size
_BLANK = struct.Struct(">II")
_SHORT = struct.Struct(">H")
_unpack_usual = _reader("size", "magic", "body_crc", "queue_id", "queue_offset", "sys_flag", "body_size")
_unpack_int = struct.Struct(">i").unpack_from
pack_usual_head: Final = _HEADS[0].pack
"""Packs what stands before the body of a record with IPv4 hosts: all fields in their order."""
pack_short: Final = _SHORT.pack

FIELD_AT: Final = dict(
    zip(
        HEAD_FIELDS, accumulate((struct.calcsize(f">{each}") for each in HEAD_FIELDS.values()), initial=0), strict=False
    )
)
"""Where each field of a head with IPv4 hosts begins."""
FLAG_AT: Final = FIELD_AT["flag"]
LOG_OFFSET_AT: Final = FIELD_AT["log_offset"]
SYS_FLAG_AT: Final = FIELD_AT["sys_flag"]


def crc_of(body: bytes | memoryview) -> int:
    """The checksum that a record keeps of its body, as stored."""
    return crc32(body) & CRC_MASK


def host_flags(packed_born_host: bytes, packed_store_host: bytes) -> int:
    """The sysFlag bits that say how long the two hosts are."""
    born = SysFlag.BORN_HOST_V6 if len(packed_born_host) == 20 else 0
    return born | (SysFlag.STORE_HOST_V6 if len(packed_store_host) == 20 else 0)


def head_packer(sys_flag: int) -> Callable[..., bytes]:
    """`pack_usual_head`, or its counterpart for the hosts that `sys_flag` tells of."""
    return _HEADS[sys_flag & HOSTS_V6].pack


def record_size(topic_bytes: int, body_bytes: int, properties_bytes: int, sys_flag: int = 0) -> int:
    """How long the record of such a message is."""
    wide_topic = topic_bytes > MAX_TOPIC_V1_BYTES
    return _HEADS[sys_flag & HOSTS_V6].size + 3 + wide_topic + topic_bytes + body_bytes + properties_bytes


def topic_field(topic: bytes) -> bytes:
    """The topic as it stands in a record, behind its length: one byte up to 127 bytes, two beyond."""
    size = len(topic)
    return (size.to_bytes(1, "big") if size <= MAX_TOPIC_V1_BYTES else _SHORT.pack(size)) + topic


def magic_for(topic: bytes) -> int:
    """The version of records of this topic."""
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
    """The record of a message. Hosts are packed; `sys_flag` must tell their lengths (see `host_flags`)."""
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
    """The record that `message` was decoded from; its checksum is computed anew."""
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
    """The head of a record, with another flag of the user."""
    return head[:FLAG_AT] + flag.to_bytes(4, "big", signed=True) + head[FLAG_AT + 4 :]


def encode_blank(size: int) -> bytes:
    """The head of the filler that takes the last `size` bytes of a log file; what follows it does not matter."""
    return _BLANK.pack(size, MAGIC_BLANK)


def decode_record(
    buffer: bytes, at: int = 0, check_crc: bool = True, queue: MessageQueue | None = None
) -> StoredMessage:
    """The message whose record begins at `at`; ProtocolError when it is not whole, or its body's checksum is wrong.

    Takes bytes only, not views: slicing bytes is half the price, and this runs once per message.
    """
    try:
        size, magic, crc, queue_id, queue_offset, sys_flag, body_size = _unpack_usual(buffer, at)
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
            raise _damage(at, f"size {size}, but its parts end after {end - at} of {len(buffer) - at} bytes")
        if check_crc and crc32(body) & CRC_MASK != crc:
            raise _damage(at, "a body whose checksum is wrong")
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
    """Where the properties of one whole record begin; they end with it. For filters, which need nothing else of a record."""
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
    """The messages of a pull answer: records back to back. `queue` is where they were pulled.

    Usual records, which have IPv4 hosts and a topic of one length byte, are read here, without a call for each; what is unusual
    or damaged about a record `decode_record` knows. Topic and length of the properties are mostly those of the record before: one
    comparison of their bytes says so.
    """
    messages: list[StoredMessage] = []
    append, at, end = messages.append, 0, len(buffer)
    seen, seen_size, topic, properties_size = b"nothing yet", 0, "", 0
    while at < end:
        try:
            size, magic, crc, queue_id, queue_offset, sys_flag, body_size = _unpack_usual(buffer, at)
            if magic == MAGIC_V1 and not sys_flag & HOSTS_V6 and body_size >= 0:
                body_at = at + _V4_SIZE
                body_end = body_at + body_size
                if not buffer.startswith(seen, body_end):
                    seen, topic, properties_size = _behind_body(buffer, body_end)
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
            pass  # which of them it was, `decode_record` says
        message = decode_record(buffer, at, check_crc, queue)
        append(message)
        at += message.size
    return messages


def _behind_body(buffer: bytes, at: int) -> tuple[bytes, str, int]:
    """The bytes between body and properties, and what they say: the topic, and how long the properties are."""
    topic_end = at + 1 + buffer[at]
    properties_size = buffer[topic_end] << 8 | buffer[topic_end + 1]
    return buffer[at : topic_end + 2], buffer[at + 1 : topic_end].decode(), properties_size


def _damage(at: int, what: str) -> ProtocolError:
    return ProtocolError(f"record at {at} has {what}")


PROPERTY_CRC_SIZE: Final = len(names.CRC32) + 12
"""What the optional checksum of the whole record takes: its name, ten digits and the two separators."""


def property_crc(record: bytes | memoryview) -> bytes:
    """The optional last property of a record: the checksum of all bytes before it, digits from the least significant."""
    digits = f"{crc32(record) & CRC_MASK:010d}"[::-1]
    return f"{names.CRC32}\x01{digits}\x02".encode()


def with_property_crc(record: bytes) -> bytes:
    """`record`, which must end in PROPERTY_CRC_SIZE bytes reserved for it, with its checksum in place."""
    return record[:-PROPERTY_CRC_SIZE] + property_crc(memoryview(record)[:-PROPERTY_CRC_SIZE])


def property_crc_holds(record: bytes | memoryview) -> bool:
    """Whether a record that carries the optional checksum is unharmed; True for one that carries none."""
    tail = bytes(record[-PROPERTY_CRC_SIZE:])
    if not tail.startswith(names.CRC32.encode() + b"\x01"):
        return True
    return tail == property_crc(record[: len(record) - PROPERTY_CRC_SIZE])
