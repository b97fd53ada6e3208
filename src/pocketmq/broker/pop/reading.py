"""What a pop reads: its queues in turn, and the answer as RocketMQ's clients expect it.

    of a hundred pops, so many ──► retry topic first ──► the topic: one queue, or all in rotation ─┐
    all others ──────────────────────────────────────► the topic ──► the retry topic, if there is space ─┴─► answer

Each queue is read from the group's position. A group without one begins by the pop's own rule. Messages of a retry topic
are encoded again under the topic that was asked for, with their receipt handle: clients derive handles only for the
others. Nothing changes here before the check points are written (`journal`).
"""

import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from pocketmq.broker.pop.journal import Journal, Popped
from pocketmq.broker.reads.filters import EVERYTHING, Filter
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Perm
from pocketmq.model import properties as names
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.protocol.pop import NORMAL, Handle, QueuePart, flag_of, pop_retry_topic
from pocketmq.protocol.record import FIELD_AT, decode_record, encode_record
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.reading import ReadResult, ReadStatus

FILTER_SECONDS: Final = 0.01
"""Time limit of one read with an SQL92 expression; the next pop continues."""
INIT_MAX: Final = 1
"""The init mode of groups that begin at the end of a queue."""

_MOVED: Final = frozenset({ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OVERFLOW_BADLY})
_size_at = struct.Struct(">i").unpack_from
_offset_at = struct.Struct(">q").unpack_from
_QUEUE_OFFSET_AT: Final = FIELD_AT["queue_offset"]


class PopQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a pop asks for. `queue_id` -1: all queues."""

    group: str
    topic: str
    queue_id: int
    max_count: int
    init_mode: int
    filter: Filter
    order: bool = False
    attempt_id: str | None = None


class Source(NamedTuple):
    """A queue, where the group reads it, and the messages in the other queues that a pop visits."""

    queue: ConsumeQueue
    start: int
    rest: int


class Read(msgspec.Struct):
    """What was read from one queue. `positions` are set; the messages are not leased yet."""

    popped: Popped
    bodies: list[memoryview | bytes]


class Found(msgspec.Struct):
    """All that a pop reads. `rest` are the messages after it, in the queues that it visited."""

    reads: list[Read] = []
    count: int = 0
    size: int = 0
    rest: int = 0
    pop_ms: int = 0

    @property
    def popped(self) -> list[Popped]:
        return [read.popped for read in self.reads]


class Reading:
    """Reads for pops. Sets positions of new groups, and of queues whose messages were deleted."""

    def __init__(self, state: BrokerState, journal: Journal, chance: Random) -> None:
        self._state = state
        self._journal = journal
        self._chance = chance

    def chance(self) -> int:
        """A number below 100 for the next pop: which queue is first, and whether retries are."""
        return self._chance.randrange(100)

    def only_source(self, query: PopQuery, chance: int) -> Source | None:
        """The queue that has all messages of a pop; None if there may be others, or none, or if messages are filtered."""
        settings, store = self._state.settings.now.pop, self._state.store
        if query.order or query.filter is not EVERYTHING or settings.limits_in_flight or query.max_count < 1:
            return None
        retries_first = chance < settings.retry_percent
        if retries_first and self._has_retries(query, chance):
            return None
        found: ConsumeQueue | None = None
        start = rest = 0
        for queue_id in self._queues(query, chance):
            position = self.position(query.group, query.topic, queue_id, query.init_mode)
            queue = store.find_queue(query.topic, queue_id)
            if queue is None:
                continue
            if not queue.min_offset <= position <= queue.max_offset:
                return None
            if found is not None:
                rest += queue.max_offset - position
            elif position < queue.max_offset:
                found, start = queue, position
        if found is None:
            return None
        is_full = found.max_offset - start >= query.max_count
        if not is_full and (rest or (not retries_first and self._has_retries(query, chance))):
            return None
        return Source(found, start, rest)

    def _has_retries(self, query: PopQuery, chance: int) -> bool:
        """Whether the retry topic has messages for the group, or its position is not in its queue."""
        name = self.retry_topic(query.group, query.topic, chance)
        for queue_id in range(self._state.topics.require(name).read_queue_nums) if name else ():
            assert name is not None
            position = self.position(query.group, name, queue_id, query.init_mode)
            if position != self._state.store.max_offset(name, queue_id):
                return True
        return False

    def read(self, query: PopQuery, chance: int) -> Found:
        """Messages for a pop."""
        found = Found()
        retries_first = not query.order and chance < self._state.settings.now.pop.retry_percent
        if retries_first:
            self._read_retries(query, chance, found)
        for queue_id in self._queues(query, chance):
            self._read_queue(query, query.topic, queue_id, found)
        if not retries_first and not query.order and found.count < query.max_count:
            self._read_retries(query, chance, found)
        return found

    def _queues(self, query: PopQuery, chance: int) -> Iterator[int]:
        if query.queue_id >= 0:
            yield query.queue_id
            return
        topic = self._state.topics.require(query.topic)
        for step in range(topic.read_queue_nums):
            yield (chance + step) % topic.read_queue_nums

    def retry_topic(self, group: str, topic: str, chance: int) -> str | None:
        """The retry topic that a pop reads; None if there is none."""
        settings = self._state.settings.now.pop
        v2 = settings.retry_topic_v2 and not (settings.read_retry_topic_v1 and chance % 2 == 0)
        name = pop_retry_topic(group, topic, v2=v2)
        row = self._state.topics.get(name)
        return name if row is not None and row.perm & Perm.READ else None

    def _read_retries(self, query: PopQuery, chance: int, found: Found) -> None:
        name = self.retry_topic(query.group, query.topic, chance)
        for queue_id in range(self._state.topics.require(name).read_queue_nums) if name else ():
            assert name is not None
            self._read_queue(query, name, queue_id, found)

    def _read_queue(self, query: PopQuery, topic: str, queue_id: int, found: Found) -> None:
        position = self.position(query.group, topic, queue_id, query.init_mode)
        if self._is_blocked(query, topic, queue_id):
            return
        store, settings = self._state.store, self._state.settings.now
        limit = settings.store.hot_read_bytes
        if found.count >= query.max_count or found.size >= limit or self._is_full((query.group, topic, queue_id)):
            found.rest += max(0, store.max_offset(topic, queue_id) - position)
            return
        result = self._read(topic, queue_id, position, query.max_count - found.count, query.filter)
        if result.status in _MOVED:
            position = max(result.min_offset, min(position, result.max_offset))
            self._state.positions.set((query.group, topic, queue_id), position)
            result = self._read(topic, queue_id, position, query.max_count - found.count, query.filter)
        next_offset = max(result.next_offset, position)
        found.rest += max(0, result.max_offset - next_offset)
        if next_offset > position:
            bodies, offsets = _split(result, position)
            found.reads.append(Read(Popped(topic, queue_id, position, next_offset, offsets), bodies))
            found.count += result.count
            found.size += result.size

    def _read(self, topic: str, queue_id: int, offset: int, count: int, wanted: Filter) -> ReadResult:
        monotonic = self._state.clock.monotonic
        began = monotonic()
        has_time = (lambda: monotonic() - began < FILTER_SECONDS) if wanted.matches else None
        result = self._state.store.read(topic, queue_id, offset, count, wanted.tag_codes, wanted.matches, has_time)
        self._state.stats.get_times.record(monotonic() - began)
        return result

    def _is_blocked(self, query: PopQuery, topic: str, queue_id: int) -> bool:
        """Whether an orderly queue waits for its last batch."""
        queue, now_ms = (query.group, topic, queue_id), self._state.clock.steady_ms()
        return query.order and self._state.orders.is_blocked(queue, query.attempt_id, now_ms)

    def _is_full(self, queue: tuple[str, str, int]) -> bool:
        settings = self._state.settings.now.pop
        return settings.limits_in_flight and self._state.leases.in_flight[queue] >= settings.max_in_flight

    # positions

    def position(self, group: str, topic: str, queue_id: int, init_mode: int) -> int:
        """Where the group reads the queue. A reset applies now; a group that is new to the queue gets a position."""
        positions, queue = self._state.positions, (group, topic, queue_id)
        reset = self._state.offsets.pop_reset(group, topic, queue_id)
        if reset is not None:
            positions.set(queue, reset)
            self._state.orders.forget_queue(queue)
            return reset
        position = positions.get(queue)
        if position is None:
            position = self._first(topic, queue_id, init_mode)
            positions.set(queue, position)
        return position

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        store = self._state.store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if init_mode != INIT_MAX or flag_of(topic) != NORMAL:
            return low
        may_be_zero = self._state.settings.now.pop.begin_at_first_in_memory and low <= 0
        if may_be_zero and (high <= 0 or store.is_in_memory(topic, queue_id, 0)):
            return 0
        return max(high - 1, 0)

    def has_messages(self, query: PopQuery) -> bool:
        """Whether a pop would visit a queue with messages, whatever their tags. Changes nothing."""
        topics = [pop_retry_topic(query.group, query.topic, v2=v2) for v2 in (False, True)] if not query.order else []
        queues = [(query.topic, queue_id) for queue_id in self._queues(query, 0)]
        for topic in topics:
            row = self._state.topics.get(topic)
            queues += [(topic, queue_id) for queue_id in range(row.read_queue_nums if row else 0)]
        return any(self._has_more(query, topic, queue_id) for topic, queue_id in queues)

    def _has_more(self, query: PopQuery, topic: str, queue_id: int) -> bool:
        if self._is_blocked(query, topic, queue_id):
            return False
        position = self._state.positions.get((query.group, topic, queue_id))
        if position is None:
            position = self._first(topic, queue_id, query.init_mode)
        return self._state.store.max_offset(topic, queue_id) > position

    # answers

    def parts(self, found: Found) -> list[QueuePart]:
        """The queues of the answer that have messages."""
        return [
            QueuePart(flag_of(popped.topic), popped.queue_id, popped.start, list(popped.offsets))
            for popped in found.popped
            if popped.offsets
        ]

    def body(
        self, query: PopQuery, found: Found, invisible_ms: int, revive_queue: int
    ) -> tuple[list[memoryview | bytes], int]:
        """The records of the answer, and their size. Those of a retry topic get their handle."""
        pieces: list[memoryview | bytes] = []
        for read in found.reads:
            if read.popped.topic == query.topic:
                pieces += read.bodies
            else:
                pieces += self._renamed(query.topic, read, found.pop_ms, invisible_ms, revive_queue)
        return pieces, sum(map(len, pieces))

    def _renamed(self, topic: str, read: Read, pop_ms: int, invisible_ms: int, revive_queue: int) -> Iterator[bytes]:
        popped, data = read.popped, b"".join(read.bodies)
        flag, broker = flag_of(popped.topic), self._state.settings.now.broker_name
        at = 0
        for offset in popped.offsets:
            message = decode_record(data, at)
            at += message.size
            handle = Handle(popped.start, pop_ms, invisible_ms, revive_queue, flag, broker, popped.queue_id, offset)
            properties = _with_handle(message.raw_properties, handle)
            yield encode_record(
                topic.encode(),
                message.queue_id,
                message.queue_offset,
                message.log_offset,
                message.body,
                properties,
                message.flag,
                message.sys_flag,
                message.born_ms,
                message.packed_born_host,
                message.store_ms,
                message.packed_store_host,
                message.reconsume_times,
                message.prepared_offset,
            )


def _with_handle(properties: bytes, handle: Handle) -> bytes:
    """Encoded properties with a receipt handle. If they become too long, some of the broker's own are left out."""
    mark = b"" if properties.endswith(b"\x02") or not properties else b"\x02"
    longer = properties + mark + f"{names.POP_CK}\x01{handle.text()}\x02".encode()
    if len(longer) <= names.MAX_BYTES:
        return longer
    parsed = parse_properties(longer.decode("utf-8", "replace"))
    for name in (names.POP_RETURNED, names.FIRST_POP_TIME, names.TRACE_ON, names.REGION, names.CLUSTER):
        parsed.pop(name, None)
    return format_properties(parsed).encode()


def _split(result: ReadResult, position: int) -> tuple[list[memoryview | bytes], Sequence[int]]:
    """The records of a read, and their queue offsets."""
    if result.count == result.next_offset - position:
        return result.pieces, range(position, result.next_offset)
    offsets: list[int] = []
    for piece in result.pieces:
        at = 0
        while at < len(piece):
            offsets.append(_offset_at(piece, at + _QUEUE_OFFSET_AT)[0])
            at += _size_at(piece, at)[0]
    return result.pieces, offsets
