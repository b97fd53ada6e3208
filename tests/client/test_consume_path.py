"""The consume path as a whole: whatever a queue holds, and whatever becomes of it, each message is handled, and none is passed over.

Steps are drawn at random: sound messages, sends with any flags, records as other brokers may have stored them, crashes that cost what was
not synced, topics that are deleted and created again, restarts. A consumer of each kind runs all the while. Real servers, virtual time.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.running import Client, sending
from tests.client.real_cluster import RealCluster, real_cluster
from tests.twins import twin  # noqa: F401

from pocketmq.client.lite_pull_consumer import AsyncLitePullConsumer
from pocketmq.client.pull_consumer import AsyncPullConsumer
from pocketmq.client.send_backs import REASON
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import PocketMQError, TopicNotFound, UnreadableMessage
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.batch import encode_batch
from pocketmq.testing import run

PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
QUEUE = MessageQueue("T", "broker-a", 0)


class Step(NamedTuple):
    """What happens next. `body` is made different for each step, so that messages can be told apart."""

    what: str
    flags: int = 0
    body: str = "plain"
    messages: int = 1


BODIES: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda mark: mark,
    "zlib": zlib.compress,
    "batch": lambda mark: encode_batch([(0, mark + b"/%d" % at, b"") for at in range(3)]),
    "broken batch": lambda mark: encode_batch([(0, mark, b"")])[:-1],
    "zlib of a batch": lambda mark: zlib.compress(encode_batch([(0, mark, b"")] * 2)),
}
flags = st.sampled_from([0, 0, 1, 4, 8, 12, 0x40, 0x80, PACKED, PACKED | 1, 0x30, 0x701, 0x301, -1])
stored_flags = st.sampled_from([0, 1, 8, 0x40, 0x80, PACKED, PACKED | 1, 0x701, 0x301])
bodies = st.sampled_from(sorted(BODIES))
counts = st.integers(1, 4)
steps = st.lists(
    st.one_of(
        st.builds(Step, st.just("send"), flags, bodies, counts),
        st.builds(Step, st.just("store"), stored_flags, bodies, counts),
        st.sampled_from(
            [Step("wait"), Step("wait"), Step("sync"), Step("lose power"), Step("restart"), Step("recreate")]
        ),
    ),
    min_size=2,
    max_size=9,
)


class Handled:
    """Which records were handled, by their places in the log: a body that cannot be read counts when its failure was told."""

    def __init__(self, c: RealCluster) -> None:
        self.c = c
        self.bodies: set[bytes] = set()

    def note(self, message: StoredMessage) -> None:
        self.bodies.add(message.body)

    def holds(self, message: StoredMessage) -> bool:
        """Whether a stored message is done with: handled, or a dead letter with a reason."""
        return message.body in self.bodies or _inflated(message) in self.bodies or message.body in self.dead()

    def dead(self) -> set[bytes]:
        return {letter.body for letter in self.c.stored("%DLQ%G") if letter.properties.get(REASON)}

    def check_commits(self) -> None:
        """Nothing that is committed lies behind something unhandled."""
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


@asynccontextmanager
async def consuming(c: RealCluster, kind: str) -> AsyncIterator[Handled]:
    handled = Handled(c)
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

    @push.on("T")
    async def handle(message: StoredMessage) -> None:
        handled.note(message)

    async with push:
        yield handled


async def _polling(consumer: AsyncLitePullConsumer, handled: Handled) -> None:
    await consumer.subscribe("T")
    while True:
        try:
            for message in await consumer.poll(timeout_s=1):
                handled.note(message)
        except UnreadableMessage as error:
            offset = int("".join(error.__notes__).split("offset ")[1].split()[0])
            found = {one.queue_offset: one for one in handled.c.stored("T")}
            if offset in found:
                handled.note(found[offset])
            try:
                await consumer.seek(QUEUE, offset + 1)
            except PocketMQError:
                await asyncio.sleep(1)


async def _pulling(consumer: AsyncPullConsumer, handled: Handled) -> None:
    """As the documentation shows it: from where the group is, and on."""
    while True:
        try:
            offset = await consumer.committed(QUEUE) or 0
            try:
                result = await consumer.pull(QUEUE, offset)
            except UnreadableMessage:
                if (found := handled.c.stored("T")[offset : offset + 1]) and found[0].queue_offset == offset:
                    handled.note(found[0])
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
    match step.what:
        case "send":
            client = Client()
            await c.network.at("10.0.5.1").connect(lambda: client.peer.line, c.broker.address)
            for mark in marks:
                header = sending("T", 0, key=mark.decode(), sys_flag=step.flags)
                answer = await client.ask(RequestCode.SEND_MESSAGE_V2, header, BODIES[step.body](mark))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
            client.peer.close()
        case "store":
            for mark in marks:
                c.keep("T", BODIES[step.body](mark), sys_flag=step.flags)
        case "wait":
            await asyncio.sleep(3)
        case "sync":
            await asyncio.sleep(11)
        case "lose power":
            await c.lose_power()
            if "T" not in c.broker.parts.topics:
                c.add_topic("T", 1)
        case "restart":
            await c.broker.stop()
            await c.start_broker("broker-a")
        case "recreate":
            with suppress(TopicNotFound):
                await c.delete_topic("T")
            c.add_topic("T", 1)


@pytest.mark.parametrize("kind", ["concurrent", "ordered", "lite", "pull"])
@given(sequence=steps)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_message_is_handled_and_nothing_is_committed_past_an_unhandled_one(
    twin: object,  # noqa: F811
    kind: str,
    sequence: list[Step],
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, consuming(c, kind) as handled:
            for number, step in enumerate(sequence):
                await take(c, step, number)
                handled.check_commits()
            await take(c, Step("send"), len(sequence))
            acknowledged = c.stored("T")
            assert acknowledged, "the last send is there"

            for _ in range(60):
                await asyncio.sleep(1 if kind != "concurrent" else 10)  # retries wait for minutes
                if all(map(handled.holds, acknowledged)) and c.committed("G", "T", 0) == len(acknowledged):
                    break
            assert [one.body for one in acknowledged if not handled.holds(one)] == []
            assert c.committed("G", "T", 0) == len(acknowledged)
            handled.check_commits()

    run(main())
