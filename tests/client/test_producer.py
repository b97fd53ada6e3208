"""The producer against a scripted cluster, in virtual time."""

from tests.client.kit import cluster

from pocketmq.client.results import SendStatus
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def test_a_sent_message_is_stored_and_its_place_is_told() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG") as producer:
            result = await producer.send("T", b"hello", keys="k1", tags="A")

            assert result.status is SendStatus.SEND_OK and result.is_ok
            assert result.queue == MessageQueue("T", "broker-a", result.queue.queue_id)
            assert (result.queue_offset, len(result.message_id), len(result.offset_id)) == (0, 32, 32)
            assert c.broker.stored == [(result.queue.queue_id, b"hello")]

    run(main())


def test_x() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG") as producer:
            r = await producer.send_many([Message("T", b"%d" % i) for i in range(10)])
            assert [x.queue_offset for x in r] == list(range(10))
            f = [producer.submit("T", b"x") for _ in range(5)]
            for x in f:
                await x
            await producer.send_one_way("T", b"y")

    run(main())
