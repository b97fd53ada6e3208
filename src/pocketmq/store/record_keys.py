"""The keys of the messages in a stretch of the log. It runs once over every message, so the usual record has a road of its own.

    | head 88 | body … | topic length 1 | topic | properties length 2 | … UNIQ_KEY 01 head of the key · tail 02 … |

    usual      version 1, IPv4 hosts, no transaction, a unique key whose parts are known ──► hashed where it lies
    any other  taken apart, and asked for its keys by `KeyIndex.keys_of` ──► which also makes the parts of its key known

Both roads give the same keys. What is no whole record ends the stretch.
"""

import struct
from typing import Final

from pocketmq.model.flags import SysFlag
from pocketmq.protocol.record import MAGIC_V1, MAGIC_V2
from pocketmq.store.index_file import PlacedKey
from pocketmq.store.key_hash import FACTORS, MAX_KNOWN_CHARS, TAIL_CHARS, TAIL_FACTOR
from pocketmq.store.key_index import KeyIndex

_HOSTS_V6: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_UNUSUAL: Final = int(_HOSTS_V6 | SysFlag.TRANSACTION_MASK)
_MASK: Final = 0xFFFFFFFF
_MARK: Final = b"UNIQ_KEY\x01"
_unpack_head = struct.Struct(">II28xi16xq20xI").unpack_from
"""size, magic, sysFlag, store ms and body length of a record with IPv4 hosts. A negative length reads as one beyond any record."""

Parts = tuple[int, int, int, bytes, bytes]
"""Of a record: size, sysFlag, store ms, topic, properties."""


class RecordKeys:
    """Reads keys for an index, and hashes them with its memory."""

    def __init__(self, index: KeyIndex) -> None:
        self._keys_of = index.keys_of
        self._hashes = index.hashes

    def read(self, chunk: bytes, base: int, most: int) -> tuple[list[PlacedKey], int, int]:
        """The keys of up to `most` records that lie whole in `chunk`, which begins at log offset `base`.

        With them how many bytes these records have, and how many records they are.
        """
        keys: list[PlacedKey] = []
        append, find, rfind = keys.append, chunk.find, chunk.rfind
        heads, tails = self._hashes.heads, self._hashes.tails
        last_topic = last_head = b""
        at = done = known = 0
        whole = len(chunk)
        while done < most:
            try:
                size, magic, sys_flag, store_ms, body_bytes = _unpack_head(chunk, at)
                topic_at = at + 88 + body_bytes
                properties_at = topic_at + 3 + chunk[topic_at]
                properties_bytes = chunk[properties_at - 2] << 8 | chunk[properties_at - 1]
            except (struct.error, IndexError):
                break
            end = at + size
            mark = rfind(_MARK, properties_at, end)
            if (
                magic == MAGIC_V1
                and not sys_flag & _UNUSUAL
                and properties_at + properties_bytes == end <= whole
                and mark >= 0
                and (mark == properties_at or chunk[mark - 1] == 2)
                and (tail_end := find(b"\x02", mark, end)) >= mark + 13
            ):
                tail_at = tail_end - 3
                head = chunk[mark + 9 : tail_at]
                topic = chunk[topic_at + 1 : properties_at - 2]
                tail = tails.get(chunk[tail_at:tail_end])
        return keys, at, done
