"""The records of a batch, laid out in one go: what they have in common is packed once.

    | size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | log offset 8 | common 48 | body length 4 |
    | body … | topic, and the length of all properties | properties of the message … | suffix … |

    common: sysFlag 4, born ms 8, born host 8, store ms 8, store host 8, reconsume times 4, prepared offset 8

These are the bytes that `protocol.record` makes of each message by itself. The parts are not joined here: the log joins those of
a whole turn when it writes them.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.properties import MAX_BYTES as MAX_PROPERTIES_BYTES
from pocketmq.protocol.batch import BatchItem
from pocketmq.protocol.record import CRC_MASK
from pocketmq.store.consume_queue import ENTRY, ConsumeQueue
from pocketmq.store.dispatch import tags_code_of

Common = tuple[int, int, bytes, int, bytes]
"""sysFlag, born ms, born host, store ms, store host."""

_pack_head = struct.Struct(">I4sI4siqq48si").pack
_pack_common = struct.Struct(">iq8sq8siq").pack
_pack_int = struct.Struct(">i").pack
_pack_magic = struct.Struct(">I").pack
_pack_short = struct.Struct(">H").pack
_pack_entry = ENTRY.pack


class RecordRun(NamedTuple):
    """Records that follow one another: their bytes, in parts, where these end in the log, and the entries of their queue."""

    parts: list[bytes]
    end: int
    entries: bytes
    log_offsets: list[int]


def with_suffix(properties: bytes, suffix: bytes) -> bytes:
    """Encoded properties with more of them behind."""
    return properties + suffix if properties[-1:] in (b"\x02", b"") else properties + b"\x02" + suffix


def lay_out(
    queue: ConsumeQueue,
    items: Iterable[BatchItem],
    suffix: bytes,
    common: Common,
    log_offset: int,
    max_body_bytes: int,
) -> RecordRun | None:
    """The records of `items` from `log_offset` on, with `suffix` behind the properties of each. Hosts are IPv4.

    None when one of them needs a closer look: it is too large, a number does not fit, or there are zeros in its properties.
    """
    parts: list[bytes] = []
    entries: list[bytes] = []
    log_offsets: list[int] = []
    overhead, queue_offset, suffix_bytes = queue.record_overhead, queue.next_offset, len(suffix)
    last_bytes, fields = -1, b""
    last_tag: bytes | None = None
    code = 0
    if 0 in suffix or b"TAGS\x01" in suffix:
        return None
    try:
        same = _pack_common(*common, 0, 0)
        magic, queue_id = _pack_magic(queue.record_magic), _pack_int(queue.queue_id)
        for flag, body, properties in items:
            if properties and properties[-1] != 2:
                properties += b"\x02"
            body_bytes, properties_bytes = len(body), len(properties) + suffix_bytes
            if body_bytes > max_body_bytes or properties_bytes > MAX_PROPERTIES_BYTES or 0 in properties:
                return None
            if properties_bytes != last_bytes:
                last_bytes, fields = properties_bytes, queue.topic_field + _pack_short(properties_bytes)
            size = overhead + body_bytes + properties_bytes
            crc = crc32(body) & CRC_MASK
            parts += (
                _pack_head(size, magic, crc, queue_id, flag, queue_offset, log_offset, same, body_bytes),
                body,
                fields,
                properties,
                suffix,
            )
            before, name, tag = properties.rpartition(b"TAGS\x01")
            if tag != last_tag or not name or (before and before[-1] != 2):
                # `tag` is the tag and all that follows it: in a batch that is mostly the same.
                code = tags_code_of(properties, False, 0, DELAY_LEVELS)
                last_tag = tag if name and (not before or before[-1] == 2) else None
            entries.append(_pack_entry(log_offset, size, code))
            log_offsets.append(log_offset)
            queue_offset += 1
            log_offset += size
    except struct.error:
        return None
    return RecordRun(parts, log_offset, b"".join(entries), log_offsets)
