"""The complete consume path: with any content of a queue and any result, each message is handled and none is skipped.

Steps are drawn at random: sound messages, sends with any flags, batches, records as other brokers may have stored them, crashes that cost
what was not synced, topics that are deleted and created again, consume queues that are damaged, old messages that are deleted, restarts
of the broker, also with an older copy of its files, members that leave and are replaced. A consumer of each kind runs all the while, with and without a filter that leaves gaps, on a
store of each kind. Real servers, virtual time.

The kind `java` follows the rules of Java's push consumer 5.3 and has none of our own checks: it depends on the broker's rules alone.
"""

import asyncio
import random
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.broker.running import Client, pulling, sending
from tests.client.real_cluster import NAME_SERVER, RealCluster, real_cluster, until
from tests.twins import twin  # noqa: F401

from pocketmq.broker.messages import Draft
from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.client.consumer.offsets import LocalOffsetFile
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.client.received import DEAD_LETTER_REASON, readable
from pocketmq.codes import PullFlag, RequestCode, ResponseCode, SysFlag
from pocketmq.errors import PocketMQError, ProtocolError, TopicNotFound, UnreadableMessage
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.batch import decode_batch, encode_batch
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.record import decode_record
from pocketmq.store.log.log_scan import RecoveryScan
from pocketmq.store.queues.consume_queue import ENTRY_BYTES, enters_queue
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles, run

PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
QUEUE = MessageQueue("T", "broker-a", 0)
WANTED = "a"
"""The tag that a consumer with a filter gets."""
SMALL: Final[dict[str, Any]] = {"log_file_bytes": 4096, "max_message_bytes": 1024, "queue_file_entries": 10}
"""So that there are old files to be deleted."""
POOL: Final[dict[str, Any]] = {"transient_pool": True, "pool_buffers": 4, "pool_buffer_bytes": 8192}
STORES: Final = {"async": SMALL, "sync": SMALL | {"flush": FlushMode.SYNC}, "pool": SMALL | POOL}
OLD_MS = 100 * 3_600_000
HOME: Final = "/home"
"""The folder of local offsets, on the disk of the consumer."""


class Step(NamedTuple):
    """The next step. Each step has a different `body`, so that messages can be distinguished."""

    what: str
    flags: int = 0
    body: str = "plain"
    messages: int = 1
    tag: str = WANTED


def batch_of(mark: bytes, tag: str, count: int) -> bytes:
    return encode_batch([(0, mark + b"/%d" % at, f"TAGS\x01{tag}\x02".encode()) for at in range(count)])


BODIES: dict[str, Callable[[bytes, str], bytes]] = {
    "plain": lambda mark, _: mark,
    "zlib": lambda mark, _: zlib.compress(mark),
    "batch": lambda mark, tag: batch_of(mark, tag, 3),
    "broken batch": lambda mark, tag: batch_of(mark, tag, 1)[:-1],
    "zlib of a batch": lambda mark, tag: zlib.compress(batch_of(mark, tag, 2)),
}
flags = st.sampled_from([0, 0, 1, 4, 8, 12, 0x40, 0x80, PACKED, PACKED | 1, 0x30, 0x701, 0x301, -1])
stored_flags = st.sampled_from([0, 1, 8, 0x40, 0x80, PACKED, PACKED | 1, 0x701, 0x301])
bodies = st.sampled_from(sorted(BODIES))
counts = st.integers(1, 4)
tags = st.sampled_from([WANTED, WANTED, "b"])
others = (
    "wait",
    "wait",
    "sync",
    "lose power",
    "restart",
    "recreate",
    "damage",
    "move entry",
    "use older copy",
    "delete old",
    "leave",
    "replace member",
)
steps = st.lists(
    st.one_of(
        st.builds(Step, st.just("send"), flags, bodies, counts, tags),
        st.builds(Step, st.just("send batch"), flags, st.just("plain"), counts, tags),
        st.builds(Step, st.just("store"), stored_flags, bodies, counts, tags),
        st.sampled_from(others).map(Step),
    ),
    min_size=2,
    max_size=9,
)


class Handled:
    """The handled records, by their bodies. An unreadable one counts when its failure was reported."""

    def __init__(self, c: RealCluster, kind: str, tags: str) -> None:
        self.c = c
        self.kind = kind
        self.tags = tags
        self.home = FaultyFiles(clock=c.clock)
        self.bodies: set[bytes] = set()
        self.failed: set[bytes] = set()

    def note(self, message: StoredMessage) -> None:
        self.bodies.add(message.body)

    def holds(self, message: StoredMessage) -> bool:
        """Whether a stored message is finished: handled completely or by items, a dead letter with a reason, or
        filtered.
        """
        if self.tags not in ("*", message.tags):
            return True
        done = self.bodies
        if (
            self.kind == "broadcast"
        ):  # failures are reported in the log: such a group has no retries and no dead letters
            if not _is_readable(message):
                return True
            done = self.bodies | self.failed
        forms = ({message.body}, {_inflated(message)}, _items(message))
        return any(form and form <= done for form in forms) or message.body in self.dead()

    def dead(self) -> set[bytes]:
        return {letter.body for letter in self.c.stored("%DLQ%G") if letter.properties.get(DEAD_LETTER_REASON)}

    def committed(self) -> int:
        """The offset that the group, or the broadcasting member, has stored."""
        if self.kind == "broadcast":
            saved = LocalOffsetFile(self.home, Path(HOME) / "10.0.2.1@DEFAULT" / "G").load()
            mark = (saved.log_table or {}).get(QUEUE)
            is_of_this_log = mark is None or any(
                (one.queue_offset, one.store_ms) == (mark.queue_offset, mark.store_ms) for one in stored_in(self.c)
            )
            return saved.offset_table.get(QUEUE, 0) if is_of_this_log else 0
        return self.c.committed("G", "T", 0) or 0

    def check_commits(self) -> None:
        """No committed offset is beyond an unhandled message."""
        behind = [one for one in stored_in(self.c) if one.queue_offset < self.committed()]
        assert [
            (one.queue_offset, one.body) for one in behind if not self.holds(one) and not self.is_retried(one)
        ] == []

    def is_retried(self, message: StoredMessage) -> bool:
        """Whether it was sent back and waits for its next attempt, or failed on its way."""
        topics = ("SCHEDULE_TOPIC_XXXX", "%RETRY%G")
        return any(
            message.body == one.body for topic in topics for queue in range(18) for one in self.c.stored(topic, queue)
        )


def stored_in(c: RealCluster) -> list[StoredMessage]:
    """The messages of the queue, from the log: reading the consume queue would repair it before a consumer reads it."""
    store = c.broker.parts.state.store
    log = store._parts.log
    scan = RecoveryScan(
        lambda offset, size: bytes(log.view(offset, size)), SMALL["log_file_bytes"], log.start, log.written
    )
    found = {
        message.queue_offset: message
        for log_offset, message in scan
        if message.topic == "T" and enters_queue(message.sys_flag) and not store.was_deleted("T", log_offset)
    }
    assert not scan.reason
    return list(found.values())


def _is_readable(message: StoredMessage) -> bool:
    try:
        readable(message, None)
    except UnreadableMessage:
        return False
    return True


def _inflated(message: StoredMessage) -> bytes:
    try:
        return zlib.decompress(message.body)
    except zlib.error:
        return message.body


def _items(message: StoredMessage) -> set[bytes]:
    if message.sys_flag & PACKED != PACKED:
        return set()
    try:
        return {body for _, body, _ in decode_batch(_inflated(message))}
    except ProtocolError:
        return set()


@asynccontextmanager
async def consuming(handled: Handled) -> AsyncIterator[None]:
    """One member of the group."""
    c = handled.c
    polls: dict[str, Callable[[Any, Handled], Awaitable[None]]] = {
        "lite": _polling,
        "pull": _pulling,
        "java": _like_java,
    }
    if handled.kind in polls:
        async with AsyncExitStack() as running:
            if handled.kind == "lite":
                consumer: Any = await running.enter_async_context(c.lite_consumer(start_at="first"))
            elif handled.kind == "pull":
                consumer = await running.enter_async_context(c.pull_consumer())
            else:
                consumer = None
            task = asyncio.ensure_future(polls[handled.kind](consumer, handled))
            yield
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return
    kinds: dict[str, Any] = {
        "ordered": {"ordered": True, "max_reconsume_times": 1},
        "broadcast": {"broadcast": True, "local_offsets": HOME},
    }
    push = AsyncPushConsumer(
        str(NAME_SERVER),
        group="G",
        client_ip="10.0.2.1",
        own_thread=False,
        dependencies=replace(c.dependencies(), files=handled.home),
        start_at="first",
        persist_ms=1000,
        **kinds.get(handled.kind, {"max_reconsume_times": 1}),
    )

    @push.on("T", tags=handled.tags)
    async def handle(message: StoredMessage) -> None:
        dice = zlib.crc32(message.body)
        await asyncio.sleep(dice % 3 * 1.5)  # so that later messages are handled before earlier ones
        if dice % 5 == 0 and message.body not in handled.failed:
            handled.failed.add(message.body)
            raise ValueError("the first attempt fails")
        handled.note(message)

    async with push:
        yield


async def _polling(consumer: AsyncLitePullConsumer, handled: Handled) -> None:
    await consumer.subscribe("T", tags=handled.tags)
    while True:
        try:
            for message in await consumer.poll(timeout_s=1):
                handled.note(message)
        except UnreadableMessage as error:
            offset = _offset_in(error)
            found = {one.queue_offset: one for one in stored_in(handled.c)}
            if offset in found:
                handled.note(found[offset])
            try:
                await consumer.seek(QUEUE, offset + 1)
            except PocketMQError:
                await asyncio.sleep(1)


def _offset_in(error: UnreadableMessage) -> int:
    return int("".join(error.__notes__).split("offset ")[1].split()[0])


async def _pulling(consumer: AsyncPullConsumer, handled: Handled) -> None:
    """As the documentation shows it: from where the group is, and on."""
    while True:
        try:
            offset = await consumer.committed(QUEUE) or 0
            try:
                result = await consumer.pull(QUEUE, offset, tags=handled.tags)
            except UnreadableMessage as error:
                offset = _offset_in(error)
                found = {one.queue_offset: one for one in stored_in(handled.c)}
                if offset in found:
                    handled.note(found[offset])
                    await consumer.commit({QUEUE: offset + 1})
                continue  # else its topic was deleted meanwhile
            for message in result.messages:
                handled.note(message)
            if result.next_offset == offset:
                await asyncio.sleep(1)
            else:
                await consumer.commit({QUEUE: result.next_offset})
        except PocketMQError:
            await asyncio.sleep(1)


class JavaMember:
    """One queue of Java's DefaultMQPushConsumer 5.3, with the logic of ProcessQueue, RebalanceImpl and
    RemoteBrokerOffsetStore.

    It knows nothing of shorter logs: it continues where the broker says, and saves its old offset once more before that.
    """

    def __init__(self, handled: Handled) -> None:
        self._handled = handled
        self._client = Client()
        self._next: int | None = None
        self._consumed = 0
        self._beat_at = self._persist_at = -inf

    async def run(self) -> None:
        while True:
            try:
                await self._connect()
                while True:
                    await self._step()
            except PocketMQError:
                await asyncio.sleep(3)
            finally:
                self._client.peer.close()

    async def _connect(self) -> None:
        c = self._handled.c
        self._client = Client()
        await c.network.at("10.0.6.1").connect(lambda: self._client.peer.connection, c.broker.address)
        self._beat_at = -inf

    async def _step(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._beat_at:
            self._beat_at = now + 30
            await self._client.beat("G", Subscription.parse("T", self._handled.tags, sub_version=1))
        if now >= self._persist_at:
            self._persist_at = now + 5
            await self._persist()
        if self._next is None:
            self._next = await self._stored_offset()
        flags = PullFlag.COMMIT_OFFSET if self._consumed else 0
        header = pulling(
            self._next, flags=flags, commit=self._consumed, wait_ms=2_000, version=1, expression=None, kind=None
        )
        answer = await self._client.ask(RequestCode.PULL_MESSAGE, header)
        if answer.ext is None or "nextBeginOffset" not in answer.ext:
            await asyncio.sleep(3)
            return
        self._next = int(answer.ext["nextBeginOffset"])
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            await self._moved()
        elif answer.code == ResponseCode.SUCCESS:
            self._handle(answer.body)
        else:
            self._consumed = max(self._consumed, self._next)  # what the filter passes over counts as consumed

    async def _stored_offset(self) -> int:
        answer = await self._client.offset()
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND), answer.remark
        self._consumed = int((answer.ext or {}).get("offset", 0))
        return self._consumed

    async def _moved(self) -> None:
        """The queue is dropped and, ten seconds later, assigned again at the offset of the answer."""
        await self._persist()
        await asyncio.sleep(10)
        assert self._next is not None
        self._consumed, self._next = self._next, None
        await self._persist()

    def _handle(self, records: bytes) -> None:
        at = 0
        while at < len(records):
            message = decode_record(records, at, check_crc=False)
            if self._handled.tags in ("*", message.tags):
                self._handled.note(message)
                self._consumed = max(self._consumed, message.queue_offset + 1)
            at += message.size

    async def _persist(self) -> None:
        if self._consumed:
            await self._client.commit(self._consumed)


async def _like_java(_: None, handled: Handled) -> None:
    await JavaMember(handled).run()


async def take(c: RealCluster, store: dict[str, Any], step: Step, number: int) -> None:
    marks = [b"%d.%d" % (number, at) for at in range(step.messages)]
    sent = [BODIES[step.body](mark, step.tag) for mark in marks]
    match step.what:
        case "send":
            for mark, body in zip(marks, sent, strict=True):
                header = sending("T", 0, {"TAGS": step.tag}, key=mark.decode(), sys_flag=step.flags)
                await acknowledged(c, RequestCode.SEND_MESSAGE_V2, header, body, [body])
        case "send batch":
            items = [(0, body, f"TAGS\x01{step.tag}\x02".encode()) for body in sent]
            header = sending("T", 0, sys_flag=step.flags)
            await acknowledged(c, RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items), sent)
        case "store":
            for body in sent:
                await keep(c, body, step)
        case "wait":
            await asyncio.sleep(3)
        case "sync":
            await asyncio.sleep(11)
        case "lose power":
            await c.lose_power(store=store)
            if "T" not in c.broker.parts.state.topics:
                c.add_topic("T", 1)
        case "restart":
            await c.broker.stop()
            await c.start_broker("broker-a", store=store)
        case "recreate":
            with suppress(TopicNotFound):
                await c.delete_topic("T")
            c.add_topic("T", 1)
        case "damage":
            damage_queue(c)
        case "move entry":
            move_entry(c)
        case "delete old":
            c.clock.sleep_ms(OLD_MS)
            c.broker.parts.state.store.drop_expired()
            await asyncio.sleep(1)


async def keep(c: RealCluster, body: bytes, step: Step) -> None:
    """Store a record as another broker may have stored it."""
    draft = Draft(
        topic="T",
        queue_id=0,
        body=body,
        properties={"TAGS": step.tag},
        born_ms=1,
        born_host=bytes(8),
        sys_flag=step.flags,
    )
    offset = c.broker.parts.state.appender.append(draft).queue_offset
    await until(lambda: c.broker.parts.state.store.max_offset("T", 0) > offset, 10)


async def acknowledged(c: RealCluster, code: RequestCode, header: Fields, body: bytes, stored: list[bytes]) -> None:
    """Send, and check that acknowledged messages are at the offset of the answer; others cannot be missed by a consumer."""
    client = Client()
    await c.network.at("10.0.5.1").connect(lambda: client.peer.connection, c.broker.address)
    answer = await client.ask(code, header, body)
    client.peer.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext is not None
    first = int(answer.ext["queueOffset"])
    await until(lambda: [one.body for one in stored_in(c) if one.queue_offset >= first] == stored, 10)


def damage_queue(c: RealCluster) -> None:
    """Zero all entries of the queue's newest file that has any."""
    queue = c.broker.parts.state.store.find_queue("T", 0)
    if queue is not None and queue.flushed_offset > queue.min_offset:
        last = queue.flushed_offset - 1
        with c.files.open(queue.file_of(last)) as file:
            file.write_at(0, bytes((last % SMALL["queue_file_entries"] + 1) * ENTRY_BYTES))


def move_entry(c: RealCluster) -> None:
    """Overwrite an entry in a file by the one after it: it points to a sound record, but of another message."""
    queue = c.broker.parts.state.store.find_queue("T", 0)
    if queue is None:
        return
    last = queue.flushed_offset - 1
    if (at := last % SMALL["queue_file_entries"] * ENTRY_BYTES) and last - 1 >= queue.min_offset:
        with c.files.open(queue.file_of(last)) as file:
            file.write_at(at - ENTRY_BYTES, file.read_at(at, ENTRY_BYTES))


async def use_older_copy(handled: Handled, store: dict[str, Any], bodies: list[bytes]) -> None:
    """Stop cleanly, and start with an older copy of the files. The group has offsets of the newer ones, which are beyond
    the end, and there are new messages before these.
    """
    c = handled.c
    if not await _happens(lambda: all(map(handled.holds, stored_in(c)))):
        return  # a retry may be lost with the newer files
    await c.broker.stop()
    copy = c.files.crash(random.Random(0), survives="everything")
    await c.start_broker("broker-a", store=store)
    for body in bodies[:3]:
        await keep(c, body, Step("store"))
    offsets, end = c.broker.parts.state.offsets, c.broker.parts.state.store.max_offset("T", 0)
    if not await _happens(lambda: offsets.pulled("G", "T", 0) == end):
        return  # a member may have an offset that the older files reach again
    await c.broker.stop()
    c.files = copy
    await c.start_broker("broker-a", store=store)
    for body in bodies[3:]:
        await keep(c, body, Step("store"))
    await asyncio.sleep(60)


async def _happens(condition: Callable[[], bool], seconds: int = 100) -> bool:
    while seconds and not condition():
        await asyncio.sleep(1)
        seconds -= 1
    return condition()


SEND_4: Final = Step("send", messages=4)
KNOWN_FAULTS: Final = {
    "a batch that takes the offsets of others": (Step("store", PACKED, "batch"), SEND_4),
    "a batch that cannot be decoded": (Step("store", PACKED, "broken batch"), SEND_4),
    "flags that hide other messages": (Step("send", PACKED, "batch", 2), Step("send", 4), Step("send batch", 12)),
    "a shorter log": (SEND_4, Step("sync"), SEND_4, Step("wait"), Step("lose power")),
    "a shorter log before the first commit": (Step("send"), Step("wait"), Step("lose power")),
    "a shorter log that is long again": (
        SEND_4,
        Step("sync"),
        SEND_4,
        Step("wait"),
        Step("lose power"),
        SEND_4,
        SEND_4,
    ),
    "a shorter log and a restart before members return": (
        SEND_4,
        Step("sync"),
        SEND_4,
        Step("wait"),
        Step("lose power"),
        SEND_4,
        SEND_4,
        Step("restart"),
    ),
    "a shorter log and a crash before members return": (
        SEND_4,
        Step("sync"),
        SEND_4,
        Step("wait"),
        Step("lose power"),
        SEND_4,
        SEND_4,
        Step("restart"),
        Step("lose power"),
    ),
    "a topic that is created again": (SEND_4, Step("wait"), Step("recreate"), SEND_4),
    "an older copy of the files": (SEND_4, Step("wait"), Step("use older copy")),
    "a queue entry of another message": (
        Step("leave"),
        SEND_4,
        Step("sync"),
        Step("move entry"),
        Step("replace member"),
    ),
    "damaged queue files": (Step("leave"), SEND_4, SEND_4, Step("sync"), Step("damage"), Step("replace member")),
}


def with_known_faults(test: Any) -> Any:
    for sequence in KNOWN_FAULTS.values():
        for chosen in ("*", WANTED):
            test = example(sequence=list(sequence), tags=chosen, store="async")(test)
    return test


@pytest.mark.parametrize("kind", ["concurrent", "ordered", "broadcast", "lite", "pull", "java"])
@with_known_faults
@given(sequence=steps, tags=st.sampled_from(["*", WANTED]), store=st.sampled_from(list(STORES)))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_message_is_handled_and_no_unhandled_one_is_committed(
    twin: object,  # noqa: F811
    kind: str,
    sequence: list[Step],
    tags: str,
    store: str,
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1, store=STORES[store]) as c, AsyncExitStack() as running:
            handled = Handled(c, kind, tags)
            await running.enter_async_context(consuming(handled))
            for number, step in enumerate(sequence):
                if step.what in ("leave", "replace member"):
                    await running.aclose()
                if step.what == "replace member":
                    await running.enter_async_context(consuming(handled))
                elif step.what == "use older copy":
                    await use_older_copy(handled, STORES[store], [b"%d/%d" % (number, at) for at in range(5)])
                elif step.what != "leave":
                    await take(c, STORES[store], step, number)
                handled.check_commits()
            await running.aclose()
            await running.enter_async_context(consuming(handled))
            await take(c, STORES[store], Step("send"), len(sequence))
            there = stored_in(c)
            end = there[-1].queue_offset + 1

            for _ in range(60):
                await asyncio.sleep(1 if kind != "concurrent" else 10)  # retries wait for minutes
                if all(map(handled.holds, there)) and handled.committed() == end:
                    break
            assert [one.body for one in there if not handled.holds(one)] == []
            assert handled.committed() == end
            handled.check_commits()

    run(main())
