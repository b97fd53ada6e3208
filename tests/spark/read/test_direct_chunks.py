"""A task pulls regular ranges by itself, and leaves others to the loop; the records are the same."""

from collections.abc import Iterable, Iterator, Sequence

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from msgspec.structs import replace
from tests.spark.made_records import made
from tests.spark.read.test_range_reading import FakePuller, all_of, numbers, partition

from pocketmq.client.consumer.direct_pulls import PullReceiver
from pocketmq.codes import PullFlag
from pocketmq.errors import ConnectionLost
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.body_pack import is_pack, pack_bodies
from pocketmq.spark.arrow import arrow_schema
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.decode.decoding import Pulled
from pocketmq.spark.read.chunks import AwaitedChunk, Chunk, DirectChunks, unpacked
from pocketmq.spark.read.planning import ReadPartition
from pocketmq.spark.read.range_reading import pull_ahead
from pocketmq.spark.schema import NULLS_ANYWHERE, Name

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 1)
HELD = Bounds(0, 200)


class FakePulls:
    """Like `DirectPulls`: returns at most `at_once` messages, optionally in reverse order; answers numbered in `failing` fail.

    Who wants bodies only gets a pack, but for the messages in `odd`; the answers numbered in `generous` go one message too far.
    """

    def __init__(
        self,
        *,
        at_once: int = 3,
        failing: Sequence[int] = (),
        backwards: bool = False,
        odd: Sequence[int] = range(HELD.max),
        generous: Sequence[int] = (),
    ) -> None:
        self._at_once = at_once
        self._failing = failing
        self._backwards = backwards
        self._odd = odd
        self._generous = generous
        self._asked: list[tuple[PullReceiver, int, int, int]] = []
        self.count = 0
        self.is_closed = False

    def send(
        self,
        receiver: PullReceiver,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        limit: int,
        more_flags: int,
    ) -> None:
        self.count += 1
        if self.count in self._failing:
            receiver.fail(ConnectionLost("cut"))
        else:
            count = min(limit, self._at_once) + (self.count in self._generous)
            self._asked.append((receiver, offset, min(offset + count, HELD.max), more_flags))

    def receive(self, receiver: PullReceiver) -> None:
        whose, start, end, flags = self._asked.pop(-1 if self._backwards else 0)
        is_packed = flags == PullFlag.ONLY_BODIES and start < end and not {*self._odd}.intersection(range(start, end))
        records = pack_of(start, end) if is_packed else numbers(start, end)
        whose.buffer(len(records))[:] = records
        whose.received(max(end, start), HELD.min, HELD.max)

    def close(self) -> None:
        self.is_closed = True


def pack_of(start: int, end: int) -> bytes:
    records: list[bytes | memoryview] = [
        made(at, numbers(at, at + 1), b"p\x01" + b"v" * 99) for at in range(start, end)
    ]
    pack = pack_bodies(records, len(records), sum(map(len, records)))
    assert pack is not None
    return pack


def bodies_of(some: Iterable[Pulled]) -> bytes:
    """Of messages that were pulled in any way."""
    schema = arrow_schema([Name.VALUE], NULLS_ANYWHERE)
    return b"".join(
        b"".join(row for batch in unpacked(one, schema) for row in batch.column("value").to_pylist())
        if is_pack(one.records)
        else bytes(one.records)
        for one in some
    )


class Loop:
    """The event loop: pulls each complete range, and records the ranges."""

    def __init__(self) -> None:
        self.ranges: list[QueueRange] = []

    def start(self, wanted: QueueRange) -> AwaitedChunk:
        self.ranges.append(wanted)
        return _Done(Chunk(Pulled(wanted, numbers(wanted.start, wanted.end)), None, []))


class _Done:
    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    def result(self) -> Chunk:
        return self._chunk

    def cancel(self) -> None:
        pass


def pulled(pulls: FakePulls, loop: Loop, wanted: ReadPartition) -> Iterator[Pulled]:
    chunks = DirectChunks(pulls, wanted, lambda queue: queue, loop.start)  # type: ignore[arg-type]
    return pull_ahead(wanted, chunks.start)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("buffer_bytes", [10, 25, 100, 10_000])
def test_ranges_are_returned_completely_and_in_order(buffer_bytes: int, backwards: bool) -> None:
    wanted = partition(QueueRange(Q0, 5, 90), QueueRange(Q1, 0, 7), buffer_bytes=buffer_bytes)
    loop = Loop()

    found = b"".join(one.records for one in pulled(FakePulls(backwards=backwards), loop, wanted))

    assert found == numbers(5, 90) + numbers(0, 7)
    assert found == all_of(FakePuller(HELD), wanted), "as the loop does it"
    assert not loop.ranges


def test_a_chunk_ends_where_its_last_answer_ends() -> None:
    wanted = partition(QueueRange(Q0, 5, 40), buffer_bytes=25)

    assert next(pulled(FakePulls(at_once=3), Loop(), wanted)).wanted == QueueRange(Q0, 5, 8)


@pytest.mark.parametrize("failing", [(1,), (2,), (5,), (1, 2, 3, 4), (9, 10)])
def test_failed_direct_pulls_are_repeated_by_the_loop(failing: Sequence[int]) -> None:
    wanted = partition(QueueRange(Q0, 5, 90), buffer_bytes=100)
    pulls, loop = FakePulls(failing=failing), Loop()

    found = b"".join(one.records for one in pulled(pulls, loop, wanted))

    assert found == numbers(5, 90)
    assert loop.ranges, "at least the chunk that failed"


def test_an_answer_without_progress_is_left_to_the_loop() -> None:
    wanted = partition(QueueRange(Q0, HELD.max - 2, HELD.max + 3), buffer_bytes=100)
    loop = Loop()

    found = b"".join(one.records for one in pulled(FakePulls(at_once=2), loop, wanted))

    assert found == numbers(HELD.max - 2, HELD.max + 3)
    assert loop.ranges == [QueueRange(Q0, HELD.max - 2, HELD.max + 3)], (
        "all of the chunk: what was pulled of it does not count"
    )


def test_the_buffer_grows_if_answers_are_larger_than_the_average() -> None:
    wanted = partition(QueueRange(Q0, 0, 150), buffer_bytes=100)

    found = b"".join(one.records for one in pulled(FakePulls(at_once=9), Loop(), wanted))

    assert found == numbers(0, 150)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("buffer_bytes", [10, 100, 10_000])
@pytest.mark.parametrize("odd", [(), (5,), (40,), (89,), (6, 7, 30, 60, 61), range(200)])
def test_bodies_alone_are_used_if_brokers_return_them(odd: Sequence[int], buffer_bytes: int, backwards: bool) -> None:
    wanted = partition(QueueRange(Q0, 5, 90), QueueRange(Q1, 0, 7), buffer_bytes=buffer_bytes)
    loop = Loop()

    found = [*pulled(FakePulls(odd=odd, backwards=backwards), loop, wanted)]

    assert bodies_of(found) == numbers(5, 90) + numbers(0, 7)
    assert all(is_pack(one.records) for one in found) == (not odd)
    assert not loop.ranges


@pytest.mark.parametrize("generous", [(1,), range(30)])
def test_bodies_beyond_the_range_are_pulled_again_as_records(generous: Sequence[int]) -> None:
    wanted = partition(QueueRange(Q0, 5, 12), buffer_bytes=1000)
    pulls = FakePulls(odd=(), at_once=7, generous=generous)

    found = [*pulled(pulls, Loop(), wanted)]

    assert bodies_of(found).startswith(numbers(5, 12))
    assert not any(is_pack(one.records) for one in found), "the decoder recognizes them by their offsets"


def test_records_beyond_the_range_are_not_pulled_again() -> None:
    wanted = partition(QueueRange(Q0, 5, 12), buffer_bytes=1000)
    pulls = FakePulls(odd=range(200), at_once=7, generous=(1,))

    found = [*pulled(pulls, Loop(), wanted)]

    assert bodies_of(found) == numbers(5, 13), "the decoder leaves out the last one"
    assert pulls.count == 1


def test_filters_checks_and_more_columns_need_complete_records() -> None:
    usual = partition(QueueRange(Q0, 5, 12))
    others = [
        replace(usual, columns=(Name.VALUE, Name.KEYS)),
        replace(usual, columns=(Name.KEYS,)),
        replace(usual, check_crc=True),
        replace(usual, filter_tags="A"),
        replace(usual, filter_sql="a > 1"),
    ]

    assert usual.needs_only_bodies
    assert not any(one.needs_only_bodies for one in others)


def test_chunks_have_as_many_messages_as_complete_answers() -> None:
    sizes: list[int] = []

    def start(wanted: QueueRange) -> AwaitedChunk:
        sizes.append(len(wanted))
        return _Done(Chunk(Pulled(wanted, bytes(10 * len(wanted))), None, [], 836 if len(wanted) > 836 else 0))

    for _ in pull_ahead(partition(QueueRange(Q0, 0, 20_000), buffer_bytes=16_720), start):
        """Each leads to the next."""

    assert sum(sizes) == 20_000
    assert list(dict.fromkeys(sizes[:-1])) == [512, 1672, 2 * (836 - 26)]
