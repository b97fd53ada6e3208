"""Chunks of a task, pulled by the task itself: several requests ahead, each body from the socket to its place.

    start ──► request ─┐                          ┌─► the chunk that is wanted next ──► whole ──► decoder
    start ──► request ─┼──► lines to brokers ─────┤       its answers lie back to back in memory of its own
    start ──► request ─┘                          └─► others' answers go to theirs meanwhile

So long as everything is usual, no loop and no second thread takes part, and nothing is copied before it is decoded. A chunk with an answer
that does not lead on, or whose line is lost, is left to the loop, all of it: it knows what to do, and says what is wrong.

What a task pulls at once: about a buffer of messages of one queue.

Packs of bodies become batches as they are: their parts are the buffers of an Arrow column.

| head | starts │ bodies | head | starts │ bodies | …
           └────────┴──► a batch, and nothing is copied. Small packs, of brokers that answer with few messages, are copied together.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.client.consumer.direct_pulls import DirectPulls
from pocketmq.errors import PocketMQError, ProtocolError
from pocketmq.model.flags import PullFlag
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.protocol.body_pack import Pack, is_pack, packs_in
from pocketmq.spark.arrow import np, pa
from pocketmq.spark.decode.decoding import Pulled
from pocketmq.spark.read.offsets import Lost
from pocketmq.spark.read.planning import ReadPartition

SPARE_SHARE: Final = 32
"""Of the messages of an answer: so much less are counted on, as messages differ in size."""


class Chunk(NamedTuple):
    """What pulling a range brought: records, where the rest of it begins, and what of it is gone."""

    pulled: Pulled
    rest: QueueRange | None
    lost: list[Lost]
    largest: int = 0
    """Messages of its largest answer, where it took several; 0 where nobody has counted them."""


class AwaitedChunk(Protocol):
    """A chunk that is being pulled; a future of one is."""

    def result(self) -> Chunk:
        """Wait for it; the PocketMQError that it came to."""

    def cancel(self) -> object:
        """Nobody wants it any more."""


def messages_of_next(chunk: Chunk, buffer_bytes: int, largest: int) -> int:
    """How many messages fill a buffer, by the average of this chunk, which has some. `largest` is what brokers answered with so far, if known.

    Where that is less than a buffer, as many as whole answers bring: a few more would take a pull of their own.
    """
    pulled, rest, _, _ = chunk
    done = (rest.start if rest is not None else pulled.wanted.end) - pulled.wanted.start
    count = max(1, buffer_bytes * done // len(pulled.records))
    if not 0 < largest < count:
        return count
    return (count + largest // 2) // largest * (largest - largest // SPARE_SHARE)


log = logging.getLogger("pocketmq.spark")

SPARE_BUFFER_SHARE: Final = 4
"""Of a buffer: so much more room a chunk has from the start, as its messages are counted by an average."""


class DirectChunks:
    """Of one task. `otherwise` is the way over the loop; `wire_queue` gives queues the names of the wire."""

    def __init__(
        self,
        pulls: DirectPulls,
        partition: ReadPartition,
        wire_queue: Callable[[MessageQueue], MessageQueue],
        otherwise: Callable[[QueueRange], AwaitedChunk],
    ) -> None:
        self._pulls = pulls
        self._partition = partition
        self._wire_queue = wire_queue
        self._otherwise = otherwise
        self._wanted = {one.queue.topic: partition.subscription(one.queue.topic) for one in partition.slices}
        self._only_bodies = partition.needs_only_bodies
        self._is_given_up = False
        self._given = 0

    def start(self, wanted: QueueRange) -> AwaitedChunk:
        """Begin to pull a range, or as much of it as fills a buffer."""
        if self._is_given_up:
            return self._otherwise(wanted)
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
        self._pulls.ask(chunk, queue, chunk.offset, subscription, limit, flags)

    def _limit(self, left: int) -> int:
        """Never more than there is left. Who gives much less is asked for the same each time, so that the request is composed once."""
        most = self._partition.pull_messages
        if left >= most:
            return most
        return 2 * self._given if 0 < self._given <= left // 2 else left

    def pump(self, chunk: "DirectChunk") -> None:
        self._pulls.pump(chunk)

    def note_given(self, count: int) -> None:
        """How many messages the last answer went on by."""
        self._given = count

    def want_records(self) -> None:
        """From now on: brokers give bodies at one time and records at another, and each change takes a pull more."""
        self._only_bodies = False

    def go_over_the_loop(self, wanted: QueueRange, reason: str) -> AwaitedChunk:
        """This chunk, and what the task has not begun yet."""
        if not self._is_given_up:
            self._is_given_up = True
            log.info("%s is pulled over the loop from %d on: %s", wanted.queue, wanted.start, reason)
        return self._otherwise(wanted)


class DirectChunk:
    """One of them, while it is pulled; see `chunks.AwaitedChunk` and `direct_pulls.Taker`."""

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
        self._is_whole = False
        self._failure: str | None = None

    def result(self) -> Chunk:
        while not self._is_whole and self._failure is None:
            self._chunks.pump(self)
        if self._failure is not None:
            return self._chunks.go_over_the_loop(self.wanted, self._failure).result()
        done, rest = self.wanted.split(self.offset)
        records = b"" if self._memory is None else memoryview(self._memory)[: self._size]
        is_of_several = self._largest < self.offset - self.wanted.start
        return Chunk(Pulled(done, records), rest, [], self._largest if is_of_several else 0)

    def cancel(self) -> None:
        """Its answer may still come: the line is closed with the others."""

    def room(self, size: int) -> memoryview:
        needed = self._size + size
        if self._memory is None:
            usual = self._chunks.buffer_bytes
            self._memory = np.empty(max(needed, usual + usual // SPARE_BUFFER_SHARE), np.uint8)
        elif needed > len(self._memory):
            before = self._memory
            self._memory = np.empty(needed + self._chunks.buffer_bytes // SPARE_BUFFER_SHARE, np.uint8)
            self._memory[: self._size] = before[: self._size]
        self._answer_at, self._size = self._size, needed
        return memoryview(self._memory)[self._answer_at : needed]

    def take(self, next_offset: int, min_offset: int, max_offset: int) -> None:
        if not min_offset <= self.offset < max_offset or next_offset <= self.offset:
            self._failure = f"the queue holds {min_offset} to {max_offset}, and goes on at {next_offset}"
            return
        if self.only_bodies and not self._goes_with_the_others(next_offset):
            self._begin_again()
            return
        given = next_offset - self.offset
        self._chunks.note_given(given)
        self._largest = max(self._largest, given)
        self.offset = next_offset
        if next_offset < self.wanted.end and self._size < self._chunks.buffer_bytes:
            self._chunks.ask(self)
        else:
            self._is_whole = True

    def _goes_with_the_others(self, next_offset: int) -> bool:
        """Whether this answer has what those before it had, bodies or records, and no body that is not wanted."""
        if self._answer_at == self._size:
            return True
        is_packed = is_pack(memoryview(self._memory)[self._answer_at : self._size])
        if self._is_packed is None:
            self._is_packed = is_packed
        return is_packed == self._is_packed and not (is_packed and next_offset > self.wanted.end)

    def _begin_again(self) -> None:
        """With records: not all of it comes as bodies, or more bodies than are wanted, which have no offsets to tell them by."""
        self._chunks.want_records()
        self.only_bodies = False
        self.offset, self._size, self._largest = self.wanted.start, 0, 0
        self._chunks.ask(self)

    def fail(self, error: PocketMQError) -> None:
        self._failure = str(error) or type(error).__name__


LARGE_ROWS: Final = 2048
"""From so many rows on, on average, packs are batches of their own."""


def unpacked(pulled: Pulled, schema: Any) -> Iterator[Any]:
    """Record batches of `schema`, which has one column; ProtocolError for bytes that are no packs."""
    buffer = pa.py_buffer(pulled.records)
    columns = [_column(buffer, pack) for pack in packs_in(pulled.records)]
    rows = sum(map(len, columns))
    if rows > len(pulled.wanted):
        raise ProtocolError(f"{pulled.wanted.queue} gave {rows} bodies for {len(pulled.wanted)} messages")
    if rows < len(columns) * LARGE_ROWS:
        columns = [pa.concat_arrays(columns)]
    for column in columns:
        yield pa.RecordBatch.from_arrays([column], schema=schema)


def _column(buffer: Any, pack: Pack) -> Any:
    starts, bodies = buffer[pack.starts : pack.bodies], buffer[pack.bodies : pack.end]
    numbers = np.frombuffer(starts, "<i4")
    # Arrow believes these, and would read elsewhere in memory.
    if numbers[0] or numbers[-1] > bodies.size or (numbers[1:] < numbers[:-1]).any():
        raise ProtocolError("the bodies of a pack do not lie one behind the other")
    return pa.Array.from_buffers(pa.binary(), pack.rows, [None, starts, bodies])
