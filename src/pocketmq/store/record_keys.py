"""The keys of the messages in a stretch of the log. This runs over every message, so the usual record has a road of its own.

    | head 88 | body … | topic length 1 | topic | properties length 2 | … UNIQ_KEY 01 key 02 … |

    usual      version 1, IPv4 hosts, no transaction, a unique key ──► hashed where it lies
    any other  taken apart, then `KeyIndex.keys_of`

Both roads give the same keys.
"""

import struct
from typing import Final

from pocketmq.model.flags import SysFlag
from pocketmq.protocol.record import MAGIC_V1, MAGIC_V2
from pocketmq.store.index_file import PlacedKey
from pocketmq.store.key_hash import FACTORS, TAIL_FACTOR
from pocketmq.store.key_index import KeyIndex

_HOSTS_V6: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_UNUSUAL: Final = int(_HOSTS_V6 | SysFlag.TRANSACTION_MASK)
_UNIQUE: Final = b"UNIQ_KEY\x01"
_SHORTEST: Final = len(_UNIQUE) + 4
"""A unique key of fewer characters has no head, and is left to the other road."""
_MASK: Final = 0xFFFFFFFF
_unpack_head = struct.Struct(">II28xi16xq20xi").unpack_from
"""size, magic, sysFlag, store ms and body length of a record with IPv4 hosts."""


class RecordKeys:
    """Reads keys for an index, and hashes them with its memory."""

    def __init__(self, index: KeyIndex) -> None:
        self._keys_of = index.keys_of
        self._further_keys_of = index.further_keys_of
        self._hashes = index.hashes

    def read(self, chunk: bytes, base: int, most: int) -> tuple[list[PlacedKey], int, int]:
        """The keys of up to `most` records that lie whole in `chunk`, which begins at log offset `base`.

        With them, how many records these are and how many bytes they take. What is no whole record ends the reading.
        """
        keys: list[PlacedKey] = []
        append, find, rfind = keys.append, chunk.find, chunk.rfind
        topics, heads, tails, learn = self._hashes.topics, self._hashes.heads, self._hashes.tails, self._hashes.learn
        last_topic = last_head = b""
        at = done = before = 0
        whole = len(chunk)
        while done < most:
            try:
                size, magic, sys_flag, store_ms, body_bytes = _unpack_head(chunk, at)
                topic_at = at + 88 + body_bytes
                properties_at = topic_at + 3 + chunk[topic_at]
                end = at + size
                unique_at = rfind(_UNIQUE, properties_at, end)
                unique_end = find(b"\x02", unique_at, end)
                if (
                    magic == MAGIC_V1
                    and not sys_flag & _UNUSUAL
                    and body_bytes >= 0
                    and chunk[properties_at - 2] << 8 | chunk[properties_at - 1] == end - properties_at
                    and end <= whole
                    and (chunk[unique_at - 1] == 2 or unique_at == properties_at)
                    and unique_end - unique_at >= _SHORTEST
                    and unique_at >= 0
                ):
                    # What `KeyHashes.of` does, without its call, and at once when only the tail differs from the last key.
                    topic, head = chunk[topic_at + 1 : properties_at - 2], chunk[unique_at + 9 : unique_end - 3]
                    tail = tails.get(chunk[unique_end - 3 : unique_end])
                    if head != last_head or topic != last_topic:
                        of_topic, of_head = topics.get(topic), heads.get(head)
                        if of_topic is None or of_head is None:
                            tail = None
                        else:
                            last_topic, last_head = topic, head
                            before = of_topic * FACTORS[len(head) + 3] + of_head * TAIL_FACTOR & _MASK
                    value = learn(topic, chunk[unique_at + 9 : unique_end]) if tail is None else before + tail & _MASK
                    append((value if value < 0x80000000 else 0x100000000 - value & 0x7FFFFFFF, base + at, store_ms))
                    if find(b"KEYS\x01", properties_at, end) >= 0:
                        keys += self._further_keys_of(topic, chunk[properties_at:end], base + at, store_ms)
                    at = end
                    done += 1
                    continue
            except (struct.error, IndexError):
                pass
            parts = _parts_of(chunk, at)
            if parts is None:
                break
            size, sys_flag, store_ms, topic, properties = parts
            keys += self._keys_of(topic, properties, sys_flag, base + at, store_ms)
            at += size
            done += 1
        return keys, done, at


Parts = tuple[int, int, int, bytes, bytes]
"""Of a record: size, sysFlag, store ms, topic, properties."""


def _parts_of(data: bytes, at: int) -> Parts | None:
    """What the index needs of the record at `at`; None when there is none, or not all of it. The body is not looked at."""
    try:
        size, magic, sys_flag, store_ms, body_bytes = _unpack_head(data, at)
        body_at = at + 88
        if sys_flag & _HOSTS_V6:
            body_at, store_ms, body_bytes = _behind_long_hosts(data, at, sys_flag)
        body_end = body_at + body_bytes
        if magic == MAGIC_V1:
            topic_at, topic_bytes = body_end + 1, data[body_end]
        elif magic == MAGIC_V2:
            topic_at, topic_bytes = body_end + 2, data[body_end] << 8 | data[body_end + 1]
        else:
            return None
        topic_end = topic_at + topic_bytes
        end = topic_end + 2 + (data[topic_end] << 8 | data[topic_end + 1])
        if body_bytes < 0 or end != at + size or end > len(data):
            return None
        return size, sys_flag, store_ms, data[topic_at:topic_end], data[topic_end + 2 : end]
    except (struct.error, IndexError):
        return None


def _behind_long_hosts(data: bytes, at: int, sys_flag: int) -> tuple[int, int, int]:
    """Where the body begins, store ms and body length of a record with IPv6 hosts: each moves what follows by 12 bytes."""
    born = 12 if sys_flag & SysFlag.BORN_HOST_V6 else 0
    body_at = at + 88 + born + (12 if sys_flag & SysFlag.STORE_HOST_V6 else 0)
    (store_ms,) = struct.unpack_from(">q", data, at + 56 + born)
    (body_bytes,) = struct.unpack_from(">i", data, body_at - 4)
    return body_at, store_ms, body_bytes
