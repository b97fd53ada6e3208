"""The consume path as a whole: whatever a queue holds, and whatever becomes of it, each message is handled, and none is passed over.

Steps are drawn at random: sound messages, sends with any flags, batches, records as other brokers may have stored them, crashes that cost
what was not synced, topics that are deleted and created again, consume queues that are damaged, old messages that are deleted, restarts.
A consumer of each kind runs all the while, with and without a filter that leaves gaps. Real servers, virtual time.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.running import Client, sending
from tests.client.real_cluster import RealCluster, real_cluster
from tests.twins import twin  # noqa: F401

from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.errors import PocketMQError, ProtocolError, TopicNotFound, UnreadableMessage
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.batch import decode_batch, encode_batch
from pocketmq.protocol.fields import Fields
from pocketmq.store.queues.consume_queue import ENTRY_BYTES
from pocketmq.testing import run

PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
QUEUE = MessageQueue("T", "broker-a", 0)
WANTED = "a"
"""The tag that a consumer with a filter gets."""
SMALL: dict[str, Any] = {"log_file_bytes": 4096, "max_message_bytes": 1024, "queue_file_entries": 10}
"""So that there are old files to be deleted."""
OLD_MS = 100 * 3_600_000


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
others = ("wait", "wait", "sync", "lose power", "restart", "recreate", "damage", "delete old")
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

    def __init__(self, c: RealCluster, tags: str) -> None:
        self.c = c
        self.tags = tags
        self.bodies: set[bytes] = set()

    def note(self, message: StoredMessage) -> None:
        self.bodies.add(message.body)

    def holds(self, message: StoredMessage) -> bool:
        """Whether a stored message is done with: handled, as a whole or by its items, a dead letter with a reason, or not wanted."""
        if self.tags not in ("*", message.tags):
            return True
        forms = ({message.body}, {_inflated(message)}, _items(message))
        return any(form and form <= self.bodies for form in forms) or message.body in self.dead()

    def dead(self) -> set[bytes]:
        return {letter.body for letter in self.c.stored("%DLQ%G") if letter.properties.get(DEAD_LETTER_REASON)}

    def check_commits(self) -> None:
        """No committed offset is beyond an unhandled message."""
        committed = self.c.committed("G", "T", 0) or 0
        behind = [one for one in self.c.stored("T") if one.queue_offset < committed]
        assert [
            (one.queue_offset, one.body) for one in behind if not self.holds(one) and not self.is_retried(one)
        ] == []

    def is_retried(self, message: StoredMessage) -> bool:
        """Whether it was sent back and waits for its next attempt, or failed on its way."""
        topics = ("SCHEDULE_TOPIC_XXXX", "%RETRY%G")
        return any(
            message.body == one.body for topic in topics for queue in range(18) for one in self.c.stored(topic, queue)
        )


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
async def consuming(c: RealCluster, kind: str, tags: str) -> AsyncIterator[Handled]:
    handled = Handled(c, tags)
    if kind == "lite":
        async with c.lite_consumer(start_at="first") as lite:
            task = asyncio.create_task(_polling(lite, handled))
            yield handled
            task.cancel()
        return
    if kind == "pull":
        async with c.pull_consumer() as pull:
            task = asyncio.create_task(_pulling(pull, handled))
            yield handled
            task.cancel()
        return
    push = c.push_consumer(start_at="first", ordered=kind == "ordered", max_reconsume_times=1, persist_ms=1000)

    @push.on("T", tags=tags)
    async def handle(message: StoredMessage) -> None:
        handled.note(message)

    async with push:
        yield handled


async def _polling(consumer: AsyncLitePullConsumer, handled: Handled) -> None:
    await consumer.subscribe("T", tags=handled.tags)
    while True:
        try:
            for message in await consumer.poll(timeout_s=1):
                handled.note(message)
        except UnreadableMessage as error:
            offset = _offset_in(error)
            found = {one.queue_offset: one for one in handled.c.stored("T")}
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
                found = {one.queue_offset: one for one in handled.c.stored("T")}
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


async def take(c: RealCluster, step: Step, number: int) -> None:
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
                c.keep("T", body, sys_flag=step.flags, tags=step.tag)
        case "wait":
            await asyncio.sleep(3)
        case "sync":
            await asyncio.sleep(11)
        case "lose power":
            await c.lose_power(store=SMALL)
            if "T" not in c.broker.parts.state.topics:
                c.add_topic("T", 1)
        case "restart":
            await c.broker.stop()
            await c.start_broker("broker-a", store=SMALL)
        case "recreate":
            with suppress(TopicNotFound):
                await c.delete_topic("T")
            c.add_topic("T", 1)
        case "damage":
            damage_queue(c)
        case "delete old":
            c.clock.sleep_ms(OLD_MS)
            c.broker.parts.state.store.drop_expired()
            await asyncio.sleep(1)


async def acknowledged(c: RealCluster, code: RequestCode, header: Fields, body: bytes, stored: list[bytes]) -> None:
    """Send, and check that acknowledged messages are at the offset of the answer; others cannot be missed by a consumer."""
    client = Client()
    await c.network.at("10.0.5.1").connect(lambda: client.peer.connection, c.broker.address)
    answer = await client.ask(code, header, body)
    client.peer.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext is not None
    first = int(answer.ext["queueOffset"])
    assert [one.body for one in c.stored("T") if one.queue_offset >= first] == stored


def damage_queue(c: RealCluster) -> None:
    """Zero all entries of the queue's newest file that has any."""
    queue = c.broker.parts.state.store.find_queue("T", 0)
    if queue is not None and queue.flushed_offset > queue.min_offset:
        last = queue.flushed_offset - 1
        with c.files.open(queue.file_of(last)) as file:
            file.write_at(0, bytes((last % SMALL["queue_file_entries"] + 1) * ENTRY_BYTES))


@pytest.mark.parametrize("kind", ["concurrent", "ordered", "lite", "pull"])
@given(sequence=steps, tags=st.sampled_from(["*", WANTED]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_message_is_handled_and_nothing_is_committed_past_an_unhandled_one(
    twin: object,  # noqa: F811
    kind: str,
    sequence: list[Step],
    tags: str,
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1, store=SMALL) as c, consuming(c, kind, tags) as handled:
            for number, step in enumerate(sequence):
                await take(c, step, number)
                handled.check_commits()
            await take(c, Step("send"), len(sequence))
            there = c.stored("T")
            end = there[-1].queue_offset + 1

            for _ in range(60):
                await asyncio.sleep(1 if kind != "concurrent" else 10)  # retries wait for minutes
                if all(map(handled.holds, there)) and c.committed("G", "T", 0) == end:
                    break
            assert [one.body for one in there if not handled.holds(one)] == []
            assert c.committed("G", "T", 0) == end
            handled.check_commits()

    run(main())
