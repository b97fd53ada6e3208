"""Chunks that a task pulls on its own thread: several requests ahead, each body read from the socket into its final memory.

    start ──► request ─┐                            ┌─► the next chunk ──► complete ──► decoder
    start ──► request ─┼──► connections to brokers ─┤     its responses lie back to back in one buffer
    start ──► request ─┘                            └─► responses of other chunks go to their own buffers meanwhile

In the regular case this uses no event loop, no second thread and no copy before decoding. If a response makes no progress, or its
connection is lost, the whole chunk is pulled by the event loop instead, which handles and reports every failure.

A chunk is about a buffer of messages of one queue. If brokers send packs of bodies, a pack becomes a batch without a copy: its
parts are the buffers of an Arrow column.

    | head | starts │ bodies | head | starts │ bodies | …
               └────────┴──► a batch. Small packs, from brokers that return few messages, are copied together.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.client.consumer.direct_pulls import DirectPulls
from pocketmq.codes import PullFlag
from pocketmq.errors import PocketMQError, ProtocolError
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.protocol.body_pack import Pack, is_pack, packs_in
from pocketmq.spark.arrow import np, pa
from pocketmq.spark.decode.decoding import Pulled
from pocketmq.spark.read.offsets import Lost
from pocketmq.spark.read.planning import ReadPartition

SPARE_SHARE: Final = 32
"""One part in so many of a response is not counted on, as messages differ in size."""


class Chunk(NamedTuple):
    """The result of pulling a range: records, the rest of the range, and the messages that are lost."""

    pulled: Pulled
    rest: QueueRange | None
    lost: list[Lost]
    largest: int = 0
    """Messages in its largest response, if it took several; 0 if unknown."""


class AwaitedChunk(Protocol):
    """A chunk that is being pulled; a future of a chunk is one."""

    def result(self) -> Chunk:
        """Wait for the chunk, or raise its PocketMQError."""

    def cancel(self) -> object:
        """The chunk is not needed any more."""


def messages_of_next(chunk: Chunk, buffer_bytes: int, largest: int) -> int:
    """The number of messages that fill a buffer, by the average of this chunk, which has some. `largest` is the number of messages
    in the largest response so far, if known. If that is less than a buffer, the result is what whole responses bring: a few more
    messages would take another pull.
    """
    pulled, rest, _, _ = chunk
    done = (rest.start if rest is not None else pulled.wanted.end) - pulled.wanted.start
    count = max(1, buffer_bytes * done // len(pulled.records))
    if not 0 < largest < count:
        return count
    return (count + largest // 2) // largest * (largest - largest // SPARE_SHARE)


log = logging.getLogger("pocketmq.spark")

SPARE_BUFFER_SHARE: Final = 4
"""A chunk's buffer is larger by one part in so many, as its number of messages is an estimate."""


class DirectChunks:
    """The chunks of one task. `pull_by_loop` pulls by the event loop; `wire_queue` adds the namespace to a queue."""

    def __init__(
        self,
        pulls: DirectPulls,
        partition: ReadPartition,
        wire_queue: Callable[[MessageQueue], MessageQueue],
        pull_by_loop: Callable[[QueueRange], AwaitedChunk],
    ) -> None:
        self._pulls = pulls
        self._partition = partition
        self._wire_queue = wire_queue
        self._pull_by_loop = pull_by_loop
        self._wanted = {one.queue.topic: partition.subscription(one.queue.topic) for one in partition.slices}
        self._only_bodies = partition.needs_only_bodies
        self._uses_loop = False
        self._last_count = 0

    def start(self, wanted: QueueRange) -> AwaitedChunk:
        """Start to pull a range, or as much of it as fills a buffer."""
        if self._uses_loop:
            return self._pull_by_loop(wanted)
        chunk = DirectChunk(self, wanted, self._only_bodies)
        self.ask(chunk)
        return chunk

    def close(self) -> None:
        self._pulls.close()

    # for the chunks

    @property
    def buffer_bytes(self) -> int:
        return self._partition.buffer_bytes

    def ask(self, chunk: "DirectChunk") -> None:
        limit = self._limit(chunk.wanted.end - chunk.offset)
        queue = self._wire_queue(chunk.wanted.queue)
        subscription = self._wanted[chunk.wanted.queue.topic]
        flags = PullFlag.ONLY_BODIES if chunk.only_bodies else 0
        self._pulls.send(chunk, queue, chunk.offset, subscription, limit, flags)

    def _limit(self, left: int) -> int:
        """At most `left`. A broker that returns much less gets the same limit each time, so that the request is encoded once."""
        most = self._partition.pull_messages
        if left >= most:
            return most
        return 2 * self._last_count if 0 < self._last_count <= left // 2 else left

    def pump(self, chunk: "DirectChunk") -> None:
        self._pulls.receive(chunk)

    def record_count(self, count: int) -> None:
        """Record the number of messages in the last response."""
        self._last_count = count

    def require_records(self) -> None:
        """Request records from now on: a change between bodies and records costs another pull each time."""
        self._only_bodies = False

    def fall_back(self, wanted: QueueRange, reason: str) -> AwaitedChunk:
        """Pull this chunk, and all later ones of the task, by the event loop."""
        if not self._uses_loop:
            self._uses_loop = True
            log.info("Pulling %s by the event loop from offset %d: %s", wanted.queue, wanted.start, reason)
        return self._pull_by_loop(wanted)


class DirectChunk:
    """One chunk that is being pulled; see `chunks.AwaitedChunk` and `direct_pulls.PullReceiver`."""

    def __init__(self, chunks: DirectChunks, wanted: QueueRange, only_bodies: bool) -> None:
        self._chunks = chunks
        self.wanted = wanted
        self.only_bodies = only_bodies
        self.offset = wanted.start
        self._memory: Any = None
        self._size = 0
        self._answer_at = 0
        self._is_packed: bool | None = None
        self._largest = 0
        self._is_complete = False
        self._failure: str | None = None

    def result(self) -> Chunk:
        while not self._is_complete and self._failure is None:
            self._chunks.pump(self)
        if self._failure is not None:
            return self._chunks.fall_back(self.wanted, self._failure).result()
        done, rest = self.wanted.split(self.offset)
        records = b"" if self._memory is None else memoryview(self._memory)[: self._size]
        is_of_several = self._largest < self.offset - self.wanted.start
        return Chunk(Pulled(done, records), rest, [], self._largest if is_of_several else 0)

    def cancel(self) -> None:
        """Its response may still arrive; closing the task's connections discards it."""

    def buffer(self, size: int) -> memoryview:
        needed = self._size + size
        if self._memory is None:
            regular = self._chunks.buffer_bytes
            self._memory = np.empty(max(needed, regular + regular // SPARE_BUFFER_SHARE), np.uint8)
        elif needed > len(self._memory):
            before = self._memory
            self._memory = np.empty(needed + self._chunks.buffer_bytes // SPARE_BUFFER_SHARE, np.uint8)
            self._memory[: self._size] = before[: self._size]
        self._answer_at, self._size = self._size, needed
        return memoryview(self._memory)[self._answer_at : needed]

    def received(self, next_offset: int, min_offset: int, max_offset: int) -> None:
        if not min_offset <= self.offset < max_offset or next_offset <= self.offset:
            self._failure = f"the queue has offsets {min_offset} to {max_offset}, and the next offset is {next_offset}"
            return
        if self.only_bodies and not self._has_same_form(next_offset):
            self._restart()
            return
        given = next_offset - self.offset
        self._chunks.record_count(given)
        self._largest = max(self._largest, given)
        self.offset = next_offset
        if next_offset < self.wanted.end and self._size < self._chunks.buffer_bytes:
            self._chunks.ask(self)
        else:
            self._is_complete = True

    def _has_same_form(self, next_offset: int) -> bool:
        """Whether this response has bodies or records like those before it, and no body outside the range."""
        if self._answer_at == self._size:
            return True
        is_packed = is_pack(memoryview(self._memory)[self._answer_at : self._size])
        if self._is_packed is None:
            self._is_packed = is_packed
        return is_packed == self._is_packed and not (is_packed and next_offset > self.wanted.end)

    def _restart(self) -> None:
        """Start again with records: some responses have no bodies, or bodies outside the range, which carry no offsets."""
        self._chunks.require_records()
        self.only_bodies = False
        self.offset, self._size, self._largest = self.wanted.start, 0, 0
        self._chunks.ask(self)

    def fail(self, error: PocketMQError) -> None:
        self._failure = str(error) or type(error).__name__


LARGE_ROWS: Final = 2048
"""Packs with at least this average number of rows are batches of their own."""


def unpacked(pulled: Pulled, schema: Any) -> Iterator[Any]:
    """Record batches of `schema`, which has one column; ProtocolError for bytes that are no packs."""
    buffer = pa.py_buffer(pulled.records)
    columns = [_column(buffer, pack) for pack in packs_in(pulled.records)]
    rows = sum(map(len, columns))
    if rows > len(pulled.wanted):
        raise ProtocolError(f"{pulled.wanted.queue} returned {rows} bodies for {len(pulled.wanted)} messages")
    if rows < len(columns) * LARGE_ROWS:
        columns = [pa.concat_arrays(columns)]
    for column in columns:
        yield pa.RecordBatch.from_arrays([column], schema=schema)


def _column(buffer: Any, pack: Pack) -> Any:
    starts, bodies = buffer[pack.starts : pack.bodies], buffer[pack.bodies : pack.end]
    numbers = np.frombuffer(starts, "<i4")
    # Arrow does not check offsets, and would read other memory.
    if numbers[0] or numbers[-1] > bodies.size or (numbers[1:] < numbers[:-1]).any():
        raise ProtocolError("the offsets of a body pack are not in ascending order")
    return pa.Array.from_buffers(pa.binary(), pack.rows, [None, starts, bodies])
