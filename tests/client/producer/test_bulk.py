"""`send_many`: messages to one queue are stored in their order."""

import pytest
from tests.client.kit import cluster
from tests.client.real_cluster import real_cluster

from pocketmq.client.received import readable
from pocketmq.codes import RequestCode
from pocketmq.errors import TopicNotFound
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run

LARGE = b"large" * 1000
QUEUE = MessageQueue("T", "broker-a", 1)


def test_messages_outside_batches_do_not_overtake_others_to_their_queue() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, c.producer() as producer:
            messages = [
                Message("T", b"0"),
                Message("T", b"1"),
                Message("T", LARGE),
                Message("T", b"3"),
                Message("T", b"4", wait_stored=False),
                Message("T", b"5"),
            ]
            results = await producer.send_many(messages, queue=QUEUE)

            assert [result.queue_offset for result in results] == list(range(6))
            assert [readable(one, None).body for one in c.stored("T", 1)] == [message.body for message in messages]

    run(main())


def test_messages_with_a_sharding_key_go_to_the_same_queue_as_single_sends() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c, c.producer() as producer:
            keys = ["order-1", "order-2", "order-7"]
            alone = {key: (await producer.send("T", b"alone", sharding_key=key)).queue for key in keys}
            messages = [Message("T", b"%d" % at, sharding_key=keys[at % 3]) for at in range(30)]
            messages[10] = Message("T", LARGE, sharding_key=keys[1])

            results = await producer.send_many([*messages, Message("T", b"any")])

            assert [result.queue for result in results[:-1]] == [alone[keys[at % 3]] for at in range(30)]
            for key in keys:
                offsets = [
                    one.queue_offset
                    for one, of in zip(results, messages, strict=False)
                    if of.properties["__SHARDINGKEY"] == key
                ]
                assert offsets == sorted(offsets)

    run(main())


def test_messages_of_one_sharding_key_share_batches() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send_many([Message("T", b"x", sharding_key="k") for _ in range(10)])
            assert len(c.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == len(c.broker.sends) == 1

            with pytest.raises(TopicNotFound):
                await producer.send_many([Message("T", b"x"), Message("Nowhere", b"x", sharding_key="k")])
            assert len(c.broker.sends) == 1, "nothing is sent before all is known"

    run(main())
