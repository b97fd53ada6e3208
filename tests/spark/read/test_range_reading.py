"""Ranges are prefetched and returned in order, for any answers of brokers; lost messages are reported."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq import Server
from pocketmq.errors import CallTimedOut, ConnectionLost, DataLost, NoPermission, PocketMQError, TopicNotFound
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.model.subscription import Subscription
from pocketmq.spark.broker_facts import Answer, Bounds
from pocketmq.spark.options.connection_options import Connection
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.chunks import Chunk
from pocketmq.spark.read.offsets import Cause
from pocketmq.spark.read.planning import ReadPartition, plan_partitions
from pocketmq.spark.read.range_reading import ChunkPulls, pull_ahead, read_partition
from pocketmq.spark.schema import Name
from pocketmq.store.queues.consume_queue import ENTRY_BYTES
from pocketmq.testing.virtual_loop import run

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


class FakePuller:
    """Gives at most `at_once` messages, each the byte of its offset, ten times."""

    def __init__(
        self,
        held: Bounds,
        *,
        at_once: int = 3,
        failures: Sequence[PocketMQError] = (),
        slave: Bounds | None = None,
    ) -> None:
        self.held = held
        self.deleted = False
        self._at_once = at_once
        self._failures = list(failures)
        self._shown = slave or held

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, max_messages: int, max_bytes: int
    ) -> Answer:
        if self._failures:
            raise self._failures.pop(0)
        shown, self._shown = self._shown, self.held  # a slave catches up
        if not shown.min <= offset < shown.max:
            return Answer(b"", offset, shown)
        end = min(offset + min(self._at_once, max_messages), shown.max)
        return Answer(b"".join(bytes([number]) * 10 for number in range(offset, end)), end, shown)

    async def bounds(self, queue: MessageQueue) -> Bounds:
        return self.held

    async def is_deleted(self, queue: MessageQueue) -> bool:
        return self.deleted


def partition(*slices: QueueRange, buffer_bytes: int = 1000, on_data_loss: str = "fail") -> ReadPartition:
    return ReadPartition(
        slices, (Name.VALUE,), Connection("any:9876"), "group", None, None, 32, 1024, buffer_bytes, False, 5_000, 0, on_data_loss
    )  # fmt: skip


def all_of(puller: FakePuller, wanted: ReadPartition) -> bytes:
    pulls = ChunkPulls(puller, wanted)

    def start(part: QueueRange) -> "Future[Chunk]":
        future: Future[Chunk] = Future()
        try:
            future.set_result(run(pulls.pull(part)))
        except PocketMQError as error:
            future.set_exception(error)
        return future

    return b"".join(pulled.records for pulled in pull_ahead(wanted, start))


def numbers(start: int, end: int) -> bytes:
    return b"".join(bytes([number]) * 10 for number in range(start, end))


@pytest.mark.parametrize("buffer_bytes", [10, 25, 100, 10_000])
def test_all_slices_are_in_order_with_small_buffers(buffer_bytes: int) -> None:
    wanted = partition(QueueRange(Q0, 5, 40), QueueRange(Q1, 60, 90), buffer_bytes=buffer_bytes)

    assert all_of(FakePuller(Bounds(0, 100)), wanted) == numbers(5, 40) + numbers(60, 90)


def test_a_chunk_ends_where_its_last_answer_ends() -> None:
    """With it the decoder checks whether a message that is marked as an inner batch has more than one offset."""
    wanted = QueueRange(Q0, 5, 40)
    pulls = ChunkPulls(FakePuller(Bounds(0, 100), at_once=3), partition(wanted, buffer_bytes=25))

    chunk = run(pulls.pull(wanted))

    assert (chunk.pulled.wanted, chunk.rest) == (QueueRange(Q0, 5, 8), QueueRange(Q0, 8, 40))


def test_a_temporary_failure_is_retried() -> None:
    puller = FakePuller(Bounds(0, 100), failures=[ConnectionLost("gone"), ConnectionLost("gone")])

    assert all_of(puller, partition(QueueRange(Q0, 0, 5))) == numbers(0, 5)


def test_a_permanent_failure_fails_the_task_in_time() -> None:
    puller = FakePuller(Bounds(0, 100), failures=[ConnectionLost("gone")] * 1000)

    with pytest.raises(CallTimedOut, match=r"pollTimeoutMs"):
        all_of(puller, partition(QueueRange(Q0, 0, 5)))


def test_a_refusal_fails_the_task_at_once() -> None:
    with pytest.raises(NoPermission):
        all_of(FakePuller(Bounds(0, 100), failures=[NoPermission("no")]), partition(QueueRange(Q0, 0, 5)))


@pytest.mark.parametrize(
    ("held", "told", "left"),
    [
        (Bounds(4, 100), "from 0 to 4 (retention)", numbers(4, 10)),
        (Bounds(0, 7), "from 7 to 10 (truncation)", numbers(0, 7)),
        (Bounds(50, 100), "from 0 to 10 (retention)", b""),
    ],
)
def test_deleted_messages_of_a_range_fail_the_task_or_are_skipped(held: Bounds, told: str, left: bytes) -> None:
    wanted = QueueRange(Q0, 0, 10)

    with pytest.raises(DataLost) as caught:
        all_of(FakePuller(held), partition(wanted))

    assert told in str(caught.value)
    assert all_of(FakePuller(held), partition(wanted, on_data_loss="skip")) == left


def test_a_slave_that_is_behind_loses_nothing() -> None:
    puller = FakePuller(Bounds(0, 100), slave=Bounds(0, 2))

    assert all_of(puller, partition(QueueRange(Q0, 2, 10))) == numbers(2, 10)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_topic_that_its_broker_deleted_is_lost_by_the_policy(policy: str) -> None:
    puller = FakePuller(Bounds(0, 100), failures=[TopicNotFound("no route")])
    puller.deleted = True
    wanted = partition(QueueRange(Q0, 2, 10), on_data_loss=policy)

    if policy == "skip":
        assert all_of(puller, wanted) == b""
        return
    with pytest.raises(DataLost, match=r"orders@broker-a:0 from 2 to 10 \(deleted topic\)"):
        all_of(puller, wanted)


def test_a_topic_missing_only_at_the_name_servers_may_return() -> None:
    """They drop the topics of an unavailable broker."""
    puller = FakePuller(Bounds(0, 100), failures=[TopicNotFound("no route")])

    with pytest.raises(TopicNotFound):
        all_of(puller, partition(QueueRange(Q0, 2, 10), on_data_loss="skip"))


class PassingPuller(FakePuller):
    """Skips messages before `gone`; the first offset of the queue shows it after some pulls, or never. `is_hole` offsets are missing in the queue."""

    def __init__(self, gone: int, *, told_after: int | None, is_hole: bool = False) -> None:
        super().__init__(Bounds(0, 100))
        self._is_hole = is_hole
        self._gone = gone
        self._told_after = told_after
        self.pulls = 0

    async def pull(
        self, queue: MessageQueue, offset: int, subscription: Subscription, max_messages: int, max_bytes: int
    ) -> Answer:
        self.pulls += 1
        if self.pulls == self._told_after:
            self.held = Bounds(self._gone, 100)
        if self._is_hole and offset < self._gone:
            return Answer(b"", self._gone, self.held, is_hole=True)
        answer = await super().pull(queue, max(offset, self._gone), subscription, max_messages, max_bytes)
        return answer._replace(bounds=self.held, passes_over=offset < self._gone)


def test_skipped_messages_count_as_deleted_when_the_queue_reports_it() -> None:
    wanted = QueueRange(Q0, 0, 20)

    with pytest.raises(DataLost, match="from 0 to 7"):
        all_of(PassingPuller(7, told_after=5), partition(wanted))
    assert all_of(PassingPuller(7, told_after=5), partition(wanted, on_data_loss="skip")) == numbers(7, 20)


def test_messages_that_never_existed_are_skipped_after_some_time() -> None:
    puller = PassingPuller(7, told_after=None)

    assert all_of(puller, partition(QueueRange(Q0, 0, 20))) == numbers(7, 20)
    assert 10 < puller.pulls < 100, "it was asked again before"


@pytest.mark.parametrize("end", [5, 20])
def test_messages_in_a_gap_of_the_queue_are_lost_after_some_time(end: int) -> None:
    wanted, puller = QueueRange(Q0, 0, end), PassingPuller(7, told_after=None, is_hole=True)

    with pytest.raises(DataLost, match=rf"from 0 to {min(7, end)} \(hole in the queue\)"):
        all_of(puller, partition(wanted))

    assert 10 < puller.pulls < 100, "it was asked again before"
    left = all_of(PassingPuller(7, told_after=None, is_hole=True), partition(wanted, on_data_loss="skip"))
    assert left == numbers(7, end)


def test_a_gap_left_by_retention_is_reported_as_retention() -> None:
    with pytest.raises(DataLost, match=r"from 0 to 7 \(retention\)"):
        all_of(PassingPuller(7, told_after=5, is_hole=True), partition(QueueRange(Q0, 0, 20)))


@pytest.mark.parametrize("columns", [(Name.VALUE,), (Name.VALUE, Name.KEYS)])
@pytest.mark.parametrize("tags", [{}, {"filterTags": "A"}])
def test_rows_of_a_lost_queue_file_are_read(
    columns: tuple[Name, ...], tags: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketmq.spark.read.range_reading.GAP_S", 0.2)
    files_of_ten = {"mappedFileSizeConsumeQueue": 10 * ENTRY_BYTES}
    bodies = [f"{number:02}" for number in range(50)]
    with Server(data=tmp_path, settings=files_of_ten) as server:
        broker = Broker.of(server)
        topic = new_topic(broker, queues=1)
        fill(broker, topic, bodies, tags="A")
    with Server(data=tmp_path, settings=files_of_ten) as server:
        broker = Broker.of(server)
        _, _, third, *_ = sorted(next(tmp_path.glob(f"*/consumequeue/{topic}/0")).iterdir())
        third.unlink()

        def rows(**given: str) -> list[str]:
            told = parse_read_options(options(broker, subscribe=topic, **given, **tags), streaming=False, environ={})
            (whole,) = plan_partitions([QueueRange(queue(broker, topic, 0), 0, 50)], columns, told, cores=1)
            return [body.decode() for batch in read_partition(whole) for body in batch.column("value").to_pylist()]

        assert rows() == bodies  # the broker rebuilds the entries from its log


def test_causes_of_losses_are_distinguished() -> None:
    chunk = run(ChunkPulls(FakePuller(Bounds(3, 8)), partition(QueueRange(Q0, 0, 10))).pull(QueueRange(Q0, 0, 10)))

    assert [lost.cause for lost in chunk.lost] == [Cause.RETENTION, Cause.TRUNCATION]


def test_a_reader_that_stops_early_cancels_running_pulls() -> None:
    wanted = partition(QueueRange(Q0, 0, 5000), buffer_bytes=10)
    futures: list[Future[Chunk]] = []
    pulls = ChunkPulls(FakePuller(Bounds(0, 5000)), wanted)

    def start(part: QueueRange) -> "Future[Chunk]":
        futures.append(Future())
        if len(futures) == 1:
            futures[0].set_result(asyncio.run(pulls.pull(QueueRange(Q0, 0, 1))))
        return futures[-1]

    ahead = pull_ahead(wanted, start)
    next(ahead)
    ahead.close()

    assert len(futures) > 1
    assert all(future.cancelled() for future in futures[1:])
