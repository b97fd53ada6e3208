"""The complete read path of a streaming query, without Spark: with any content of a topic, each message is in exactly one batch.

Steps are drawn at random: messages with any flags and bodies, topics that are deleted and created again, batches, queries that stop
before a batch is committed or after it. The reader is called as Spark calls it: a batch is planned, its end is written to the checkpoint,
and it is read, again after a restart. A real server, in this process.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.spark.broker_kit import Broker, options
from tests.store.kit import messages_in

from pocketmq import Admin, Server
from pocketmq.broker.messages import Draft
from pocketmq.codes import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.batch import encode_batch
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.stream_reader import TopicStreamReader
from pocketmq.spark.schema import Name

Offset = dict[str, Any]
PACKED: Final = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
BODIES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "plain": lambda mark: mark,
    "zlib": zlib.compress,
    "batch of one": lambda mark: encode_batch([(0, mark, b"")]),
    "batch": lambda mark: encode_batch([(0, mark, b"")] * 3),
    "zlib of a batch": lambda mark: zlib.compress(encode_batch([(0, mark, b"")] * 3)),
}
QUEUES: Final = 2
WANTED: Final = "a"
QUIET_S: Final = 5.0
_numbers = count()


class Step(NamedTuple):
    what: str
    flags: int = 0
    body: str = "plain"
    messages: int = 1
    tag: str = WANTED
    queue: int = 0


flags = st.sampled_from([0, 0, 1, 8, 0x40, 0x80, PACKED, PACKED | 1, 0x701, 0x301])
stores = st.builds(
    Step,
    st.just("store"),
    flags,
    st.sampled_from(sorted(BODIES)),
    st.integers(1, 5),
    st.sampled_from([WANTED, "b"]),
    st.integers(0, QUEUES - 1),
)
others = st.sampled_from(["batch", "batch", "stop in a batch", "restart", "repeat", "recreate"]).map(Step)
steps = st.lists(st.one_of(stores, others), min_size=2, max_size=10)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


class Query:
    """One query with its checkpoint. `batches` contains the message ids of each committed batch."""

    def __init__(self, server: Server, topic: str, filtered: bool, per_trigger: int) -> None:
        self._options = options(
            Broker.of(server),
            subscribe=topic,
            startingOffsets="earliest",
            onDataLoss="skip",
            latestOffset_minIntervalMs=0,
            partition_metadata_cache_ttl_ms=0,
            maxOffsetsPerTrigger=per_trigger,
            **({"filterTags": WANTED} if filtered else {}),
        )
        self.batches: list[list[str]] = []
        self._reader = self._open()
        self._committed: Offset = self._reader.initialOffset()
        self._start: Offset | None = None

    def _open(self) -> TopicStreamReader:
        return TopicStreamReader(
            parse_read_options(self._options, streaming=True, environ={}), (Name.MSG_ID, Name.VALUE)
        )

    def restart(self) -> None:
        self._reader.stop()
        self._reader = self._open()

    def batch(self, *, stops: bool = False) -> bool:
        """Plan the next batch, and read it. Returns whether there was one."""
        before = self._committed
        after = self._reader.latestOffset(before, self._reader.getDefaultReadLimit())
        if after == before:
            return False
        if stops:
            self._read(before, after)
            self.restart()  # the checkpoint contains the end of the batch, and no commit
        self.batches.append(self._read(before, after))
        self._start, self._committed = before, after
        self._reader.commit(after)
        return True

    def repeat(self) -> None:
        """The sink needs the last batch once more."""
        if self._start is not None:
            self.restart()
            again = self._read(self._start, self._committed)
            assert set(again) <= set(self.batches[-1]), "other messages"

    def _read(self, start: Offset, end: Offset) -> list[str]:
        parts = self._reader.partitions(start, end)
        return [one for part in parts for batch in self._reader.read(part) for one in batch.column(0).to_pylist()]

    def close(self) -> None:
        self._reader.stop()


def store(server: Server, topic: str, step: Step, number: int) -> None:
    """Store records as any broker may have stored them."""
    state = server._started_broker.parts.state

    async def append() -> int:
        offset = -1
        for at in range(step.messages):
            draft = Draft(
                topic=topic,
                queue_id=step.queue,
                body=BODIES[step.body](b"%d.%d" % (number, at)),
                properties={"TAGS": step.tag},
                born_ms=1,
                born_host=bytes(8),
                sys_flag=step.flags,
            )
            offset = state.appender.append(draft).queue_offset
        return offset

    assert server._portal is not None
    last = server._portal.run(append())
    deadline = monotonic() + QUIET_S
    while state.store.max_offset(topic, step.queue) <= last:
        assert monotonic() < deadline, "the messages are not stored"
        sleep(0.001)


def stored(server: Server, topic: str) -> list[StoredMessage]:
    async def all_messages() -> list[StoredMessage]:
        state = server._started_broker.parts.state
        return [one for queue_id in range(QUEUES) for one in messages_in(state.store, topic, queue_id)]

    assert server._portal is not None
    return server._portal.run(all_messages())


def run(server: Server, admin: Admin, query: Query, topic: str, sequence: list[Step]) -> None:
    """The steps, and at last a message for each queue: a queue that ends where the query is may not be looked at."""
    last = [Step("store", queue=number) for number in range(QUEUES)]
    for number, step in enumerate([*sequence, *last]):
        match step.what:
            case "store":
                store(server, topic, step, number)
            case "batch" | "stop in a batch":
                query.batch(stops=step.what != "batch")
            case "restart":
                query.restart()
            case "repeat":
                query.repeat()
            case "recreate":
                admin.topics.delete(topic)
                admin.topics.create(topic, queues=QUEUES)
                query.batch()  # a query that restarts first may not notice it within a minute


RAN: Final = (Step("store", messages=4), Step("batch"))


@example(
    sequence=[Step("store", PACKED, "batch"), Step("store", tag="b"), Step("batch")], filtered=True, per_trigger=10
)
@example(sequence=[Step("store", PACKED, "batch of one"), Step("batch")], filtered=False, per_trigger=10)
@example(sequence=[*RAN, Step("recreate"), *RAN, *RAN], filtered=False, per_trigger=3)
@example(sequence=[*RAN, Step("recreate"), *RAN, Step("restart"), *RAN], filtered=False, per_trigger=10)
@given(sequence=steps, filtered=st.booleans(), per_trigger=st.sampled_from([1, 3, 1000]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_stored_message_is_in_exactly_one_batch(
    server: Server, sequence: list[Step], filtered: bool, per_trigger: int
) -> None:
    topic = f"read-path-{next(_numbers)}"
    with Admin(server.name_server) as admin:
        admin.topics.create(topic, queues=QUEUES)
        with closing(Query(server, topic, filtered, per_trigger)) as query:
            run(server, admin, query, topic, sequence)
            there = [one.message_id for one in stored(server, topic) if not filtered or one.tags == WANTED]

            for _ in range(200):
                if not query.batch():
                    break
    read = Counter(one for batch in query.batches for one in batch)
    assert {one: read[one] for one in there if read[one] != 1} == {}
    assert not [one for one, times in read.items() if times != 1]
