"""Reads the log behind its writers and adds every message to the key index, a slice at a time.

    log:  start ─────────── indexed_to ─────────────── written
                            └─ work ──► ├── backlog ──┤

A send does not wait for its keys: adding them costs more than storing the message. The owner calls `work` when it is
idle, and more often when the backlog grows. After a restart the work continues at the end of the index.

Reading keys runs for every message, so records that resemble earlier ones are not decoded:

    | head 88 | body … | topic and properties, up to the unique key's end │ middle 9 │ tail 3 │ properties behind it |
                         └─ front: seen before, hash known ──────────────┘                    └─ rest: seen before ──┘
                           7 Orders … UNIQ_KEY 01 7F00000100012A139A55     14E1B2C30  0A1      02 WAIT 01 true 02 …

Messages of one producer to one topic differ in their bodies and in the last twelve characters of their unique keys: a
time and a counter. The hash of a text is the hash of its first part × 31ⁿ plus the hash of the n characters behind it,
so the hashes of a known front, the middle and the tail add up to the hash of the key. A mould is what records of one
length have in common. Records that fit no mould, or have other keys too, are decoded, and `KeyIndex.keys_of` returns
their keys, with the same result.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq import compiled
from pocketmq.codes import SysFlag
from pocketmq.model.java_hash import java_hash
from pocketmq.protocol.record import HOSTS_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MAX_TOPIC_V1_BYTES
from pocketmq.store.index.growing_index_file import PackedKeys
from pocketmq.store.index.index_file import KeyEntry
from pocketmq.store.index.key_index import KeyIndex

KNOWN_PARTS: Final = 4096
"""The limit on remembered fronts and rests; above it, all are dropped. The same for middles, and for tails."""
MAX_KNOWN_BYTES: Final = 1024
"""Records with a longer topic and properties are never remembered, so that they cannot fill the memory."""
LEARN_EVERY: Final = 8
"""One in so many records that fit no mould is remembered: most never recur."""

_MIDDLE_BYTES: Final = 9
_TAIL_BYTES: Final = 3
_VARYING_BYTES: Final = _MIDDLE_BYTES + _TAIL_BYTES
_MASK: Final = 0xFFFFFFFF
_UNUSUAL: Final = HOSTS_V6 | SysFlag.TRANSACTION_MASK
_NAME: Final = b"UNIQ_KEY\x01"
_unpack_head = struct.Struct(">II28xi16xq20xI").unpack_from
"""size, magic, sysFlag, store ms and body length of a record with IPv4 hosts. A negative length is one that no record has."""

_Mould = tuple[int, dict[bytes, int], set[bytes]]
"""The bytes of the record after the front, the hashes of fronts, and the rests. A plain tuple: it is unpacked per
message.
"""


class _PartHashes(dict[bytes, int]):
    """Hashes of parts of keys, all of one length, times 31ⁿ for the n characters behind them. Raises KeyError for
    other parts.
    """

    def __init__(self, part_bytes: int, behind: int) -> None:
        super().__init__()
        self._part_bytes = part_bytes
        self._factor: int = 31**behind

    def __missing__(self, part: bytes) -> int:
        if len(part) != self._part_bytes or not part.isascii() or b"\x02" in part:
            raise KeyError(part)
        if len(self) >= KNOWN_PARTS:
            self.clear()
        self[part] = value = java_hash(part.decode("ascii")) * self._factor & _MASK
        return value


class RecordKeys:
    """Reads keys for an index."""

    def __init__(self, index: KeyIndex) -> None:
        self._keys_of = index.keys_of
        self._twin = compiled.twin()
        self._moulds: dict[int, _Mould] = {}
        self._middles = _PartHashes(_MIDDLE_BYTES, behind=_TAIL_BYTES)
        self._tails = _PartHashes(_TAIL_BYTES, behind=0)
        self._known = self._decoded = 0

    def read(self, chunk: bytes | memoryview, base: int, most: int) -> tuple[Sequence[KeyEntry], int, int]:
        """The keys of up to `most` complete records in `chunk`, which begins at log offset `base`.

        Also returns the number of these records and of their bytes. Reading ends at the first incomplete record.
        """
        if self._twin is not None:
            return self._read_compiled(self._twin, chunk, base, most)
        chunk = bytes(chunk)
        keys: list[KeyEntry] = []
        append, mould_of, middles, tails = keys.append, self._moulds.get, self._middles, self._tails
        at = done = 0
        while done < most:
            try:
                size, magic, sys_flag, store_ms, body_bytes = _unpack_head(chunk, at)
                topic_at, end = at + 88 + body_bytes, at + size
                mould = mould_of(end - topic_at)
                if mould is not None:
                    behind, fronts, rests = mould
                    key_at = end - behind
                    tail_at, rest_at = key_at + 9, key_at + 12
                    # A record that ends beyond the chunk has no rest here, or no tail.
                    if chunk[rest_at:end] in rests and magic == MAGIC_V1 and not sys_flag & _UNUSUAL:
                        value = (
                            fronts[chunk[topic_at:key_at]]
                            + middles[chunk[key_at:tail_at]]
                            + tails[chunk[tail_at:rest_at]]
                        ) & _MASK
                        append((value if value < 0x80000000 else 0x100000000 - value & 0x7FFFFFFF, base + at, store_ms))
                        at = end
                        done += 1
                        continue
            except (struct.error, KeyError):
                pass
            size = self._read_one(chunk, at, base, keys)
            if not size:
                break
            at += size
            done += 1
        return keys, done, at

    def _read_compiled(
        self, twin: compiled.Twin, chunk: bytes | memoryview, base: int, most: int
    ) -> tuple[PackedKeys, int, int]:
        """The same with the C twin, which is fast without a memory of earlier records."""
        raw, done, at = twin.read_keys(chunk, 0, base, most)
        while done < most and at < len(chunk):
            irregular: list[KeyEntry] = []
            expected = int.from_bytes(chunk[at : at + 4], "big")
            size = self._read_one(bytes(chunk[at : at + expected]), 0, base + at, irregular)
            if not size:
                break
            more, read, at = twin.read_keys(chunk, at + size, base, most - done - 1)
            raw += PackedKeys.of(irregular).raw + more
            done += 1 + read
        return PackedKeys(raw), done, at

    def _read_one(self, chunk: bytes, at: int, base: int, keys: list[KeyEntry]) -> int:
        """Add the keys of any record. Returns its size; 0 if there is no complete record."""
        parts = parts_of(chunk, at)
        if parts is None:
            return 0
        size, sys_flag, store_ms, topic, properties = parts
        keys += self._keys_of(topic, properties, sys_flag, base + at, store_ms)
        self._decoded += 1
        if not self._decoded % LEARN_EVERY and len(topic) <= MAX_TOPIC_V1_BYTES:
            self._remember(chunk[at : at + size], topic, properties)
        return size

    def _remember(self, record: bytes, topic: bytes, properties: bytes) -> None:
        """Remember records like this one, if its only key is a unique key that is not short."""
        alike = 3 + len(topic) + len(properties)
        if alike > MAX_KNOWN_BYTES or b"KEYS\x01" in properties:
            return
        name_at = (b"\x02" + properties).rfind(b"\x02" + _NAME)
        key_at = name_at + len(_NAME)
        key_end = properties.find(b"\x02", key_at)
        rest = properties[key_end:] if key_end >= 0 else b""
        behind = _VARYING_BYTES + len(rest)
        family = properties[key_at : len(properties) - behind]
        if name_at < 0 or key_at + behind > len(properties) or not family.isascii():
            return
        if self._known >= KNOWN_PARTS:
            self._moulds.clear()
            self._known = 0
        self._known += 1
        mould = self._moulds.get(alike)
        if mould is None or mould[0] != behind:
            mould = self._moulds[alike] = (behind, {}, set())
        before = java_hash(f"{topic.decode('utf-8', 'replace')}#{family.decode('ascii')}")
        mould[1][record[-alike:-behind]] = before * 31**_VARYING_BYTES & _MASK
        mould[2].add(rest)


Parts = tuple[int, int, int, bytes, bytes]
"""Size, sysFlag, store ms, topic and properties of a record."""


def parts_of(data: bytes, at: int) -> Parts | None:
    """The fields for the index of the record at `at`; None if there is no complete record. Does not read the body."""
    try:
        size, magic, sys_flag, store_ms, body_bytes = _unpack_head(data, at)
        body_at = at + 88
        if sys_flag & HOSTS_V6:
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
        if end != at + size or end > len(data):
            return None
        return size, sys_flag, store_ms, data[topic_at:topic_end], data[topic_end + 2 : end]
    except (struct.error, IndexError):
        return None


def _behind_long_hosts(data: bytes, at: int, sys_flag: int) -> tuple[int, int, int]:
    """The start of the body, store ms and body length of a record with IPv6 hosts: each host is 12 bytes longer."""
    born = 12 if sys_flag & SysFlag.BORN_HOST_V6 else 0
    body_at = at + 88 + born + (12 if sys_flag & SysFlag.STORE_HOST_V6 else 0)
    (store_ms,) = struct.unpack_from(">q", data, at + 56 + born)
    (body_bytes,) = struct.unpack_from(">I", data, body_at - 4)
    return body_at, store_ms, body_bytes


log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 64 * 1024
"""The bytes of one read. One call processes fewer small messages, and the rest is read again."""


class IndexBuilder:
    """Feeds a `KeyIndex` from a log.

    `read(offset, size)` returns up to `size` bytes of the log, all from the file that contains `offset`.
    """

    def __init__(self, index: KeyIndex, read: Callable[[int, int], bytes | memoryview], log_file_bytes: int) -> None:
        self._index = index
        self._keys = RecordKeys(index)
        self._read = read
        self._file_bytes = log_file_bytes
        self.indexed_to = max(0, index.indexed_to)
        """Every message before this log offset is in the index."""
        self.waits = False
        """Whether the last call stopped because the index needs a write: `KeyIndex.next_write`."""
        self.skipped_bytes = 0
        """Bytes of the log without a valid record, so without keys."""

    def backlog_bytes(self, written: int) -> int:
        """Bytes of the log up to `written` that are not indexed yet."""
        return max(0, written - self.indexed_to)

    def work(self, start: int, written: int, budget: int) -> bool:
        """Index up to `budget` messages of a log with offsets `start` to `written`. Returns whether there are more.

        Stops when the index needs a write first, see `waits`. The next call continues at the same offset.
        """
        self.indexed_to = max(self.indexed_to, start)
        self.waits = False
        while budget > 0 and self.indexed_to < written and not self.waits:
            at = self.indexed_to
            end = min((at // self._file_bytes + 1) * self._file_bytes, written)
            budget -= self._index_records(self._read(at, min(CHUNK_BYTES, end - at)), budget)
            if self.indexed_to == at and not self.waits:
                budget -= self._index_or_skip(end)
        return self.indexed_to < written

    def _index_records(self, chunk: bytes | memoryview, budget: int) -> int:
        """Index the messages with complete records in `chunk`, which begins at `indexed_to`. Returns their number."""
        keys, done, passed_bytes = self._keys.read(chunk, self.indexed_to, budget)
        if not self._index.add(keys):
            self.waits = True
            return 0
        self.indexed_to += passed_bytes
        return done

    def _index_or_skip(self, end: int) -> int:
        """Skip a large record (after adding it), filler, or damage. Returns how many messages were added."""
        at = self.indexed_to
        head = bytes(self._read(at, min(8, end - at)))
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if CHUNK_BYTES < size <= end - at and (self._index_records(self._read(at, size), 1) or self.waits):
            return 1
        self.indexed_to = end
        if magic != MAGIC_BLANK:
            self.skipped_bytes += end - at
            log.error("no valid record at log offset %d; keys of messages from there to %d are not indexed", at, end)
        return 0
