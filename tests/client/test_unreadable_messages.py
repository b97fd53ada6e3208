"""Unreadable bodies: each affects only its own message, for every consumer. Real servers, virtual time."""

import asyncio
import zlib

import pytest
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.codes import SysFlag
from pocketmq.errors import UnreadableMessage, UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.batch import encode_batch
from pocketmq.testing import run

PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
QUEUE = MessageQueue("T", "broker-a", 0)
BAD = {
    "a batch that would take the offsets of others": (encode_batch([(0, b"crafted", b"")] * 4), PACKED),
    "an invalid batch": (b"no batch at all", PACKED),
    "an empty batch": (zlib.compress(b""), PACKED | SysFlag.COMPRESSED),
    "a batch that is not compressed": (b"not what zlib writes", PACKED | SysFlag.COMPRESSED),
    "a body that is not compressed": (b"not what zlib writes", SysFlag.COMPRESSED),
    "an unknown compression": (b"x", SysFlag.COMPRESSED | 0x700),
}
SOUND = [b"0", b"2", b"3", b"4", b"5"]
bad_bodies = pytest.mark.parametrize(("body", "sys_flag"), BAD.values(), ids=BAD)


def keep_all(c: RealCluster, body: bytes, sys_flag: int) -> None:
    """A bad message at offset 1, among sound ones."""
    c.keep("T", b"0")
    c.keep("T", body, sys_flag=sys_flag)
    for number in (b"2", b"3", b"4", b"5"):
        c.keep("T", number)


@bad_bodies
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("batch_size", [None, 4], ids=["one by one", "in batches"])
def test_listeners_get_the_other_messages_and_the_unreadable_one_becomes_a_dead_letter(
    body: bytes, sys_flag: int, orderly: bool, batch_size: int | None
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            keep_all(c, body, sys_flag)
            bodies: list[bytes] = []
            consumer = c.push_consumer(start_at="first", max_reconsume_times=2, ordered=orderly)

            if batch_size is None:

                @consumer.on("T")
                async def handle(message: StoredMessage) -> None:
                    bodies.append(message.body)

            else:

                @consumer.on("T", batch_size=batch_size)
                async def handle_some(messages: list[StoredMessage]) -> None:
                    bodies.extend(message.body for message in messages)

            async with consumer:
                await until(lambda: c.broker.parts.state.store.max_offset("%DLQ%G", 0) == 1, 600)
                await until(lambda: len(bodies) >= len(SOUND))

            assert sorted(bodies) == SOUND
            assert bodies == SOUND or not orderly
            assert c.committed("G", "T", 0) == 6
            (dead,) = c.stored("%DLQ%G")
            assert dead.body == body
            assert dead.sys_flag & PACKED == 0
            assert dead.properties[DEAD_LETTER_REASON].startswith("UnreadableMessage: message ")

    run(main())


def test_a_valid_inner_batch_is_split_and_its_failed_item_is_retried_alone() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            batch = encode_batch([(0, b"a", b"TAGS\x01A\x02"), (0, b"b", b"TAGS\x01A\x02")])
            c.keep("T", batch, sys_flag=PACKED, tags="A")
            c.keep("T", b"not wanted", tags="B")  # its offset is free for the second item
            basket = Basket(lambda message: message.body != b"b" or message.reconsume_times > 0)
            consumer = c.push_consumer(start_at="first")
            consumer.on("T", tags="A")(basket)

            async with consumer:
                await basket.wait(3)

            assert [(one.body, one.reconsume_times) for one in basket.messages] == [(b"a", 0), (b"b", 0), (b"b", 1)]

    run(main())


@bad_bodies
def test_a_broadcasting_listener_gets_the_other_messages(body: bytes, sys_flag: int) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            keep_all(c, body, sys_flag)
            basket = Basket()
            consumer = c.push_consumer(start_at="first", broadcast=True)
            consumer.on("T")(basket)

            async with consumer:
                await basket.wait(len(SOUND))
                await asyncio.sleep(10)

            assert sorted(basket.bodies) == SOUND

    run(main())


@bad_bodies
def test_a_lite_pull_consumer_raises_for_the_unreadable_message_and_can_seek_after_it(
    body: bytes, sys_flag: int
) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.lite_consumer(start_at="first") as consumer:
            keep_all(c, body, sys_flag)
            await consumer.subscribe("T")
            bodies = [message.body for message in await consumer.poll(timeout_s=10)]

            with pytest.raises(UnreadableMessage) as failure:
                await consumer.poll(timeout_s=10)
            assert "offset 1 of" in "".join(failure.value.__notes__)
            await consumer.commit()
            assert c.committed("G", "T", 0) == 1
            await consumer.seek(QUEUE, 2)
            async with asyncio.timeout(60):
                while len(bodies) < len(SOUND):
                    bodies += [message.body for message in await consumer.poll(timeout_s=10)]

            assert bodies == SOUND

    run(main())


def test_a_lite_pull_consumer_seeks_after_a_deleted_unreadable_message() -> None:
    async def main() -> None:
        store = {"log_file_bytes": 4096, "max_message_bytes": 1024}
        async with real_cluster(queues=1, store=store) as c, c.lite_consumer(start_at="first") as consumer:
            c.keep("T", b"x", sys_flag=SysFlag.COMPRESSED)
            await consumer.subscribe("T")
            with pytest.raises(UnreadableMessage):
                await consumer.poll(timeout_s=10)
            for number in range(40):
                c.keep("T", b"%d" % number + bytes(200))
                await asyncio.sleep(0.1)  # log files are created meanwhile
            await asyncio.sleep(11)  # they are synced now
            c.clock.sleep_ms(100 * 3_600_000)
            c.broker.parts.state.store.drop_expired()
            await until(lambda: c.broker.parts.state.store.min_offset("T", 0) > 1)

            await consumer.seek(QUEUE, 1)
            (first, *_) = await consumer.poll(timeout_s=10)

            assert first.queue_offset == c.broker.parts.state.store.min_offset("T", 0)
            with pytest.raises(UsageError, match="offset 0 is out of range"):
                await consumer.seek(QUEUE, 0)

    run(main())


@bad_bodies
def test_a_pull_ends_before_the_unreadable_message_and_the_next_one_names_it(body: bytes, sys_flag: int) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer() as consumer:
            keep_all(c, body, sys_flag)

            before = await consumer.pull(QUEUE, 0)
            assert ([one.body for one in before.messages], before.next_offset) == ([b"0"], 1)
            with pytest.raises(UnreadableMessage) as failure:
                await consumer.pull(QUEUE, 1)
            assert "pull from 2 to skip it" in "".join(failure.value.__notes__)
            behind = await consumer.pull(QUEUE, 2)
            assert [one.body for one in behind.messages] == SOUND[1:]

    run(main())
