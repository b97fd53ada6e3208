"""Push consumers whose brokers say how they get messages, against real servers in virtual time: modes change while messages
are sent, and nothing is lost. Brokers that cannot or do not answer.
"""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from tests.client.kit import CLIENT_IP, NAME_SERVER, cluster, refuse
from tests.client.kit import until as soon
from tests.client.real_cluster import NAME_SERVER as REAL_NAME_SERVER
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until

from pocketmq.client import AsyncPushConsumer, PushConsumer
from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.codes import RequestCode, ResponseCode, Version
from pocketmq.errors import RequestNotSupported
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.protocol.bodies.clients import QueryAssignment, QueueAssignment, QueueAssignments
from pocketmq.protocol.command import Command
from pocketmq.protocol.pop import pop_retry_topic
from pocketmq.testing import run


async def set_mode(c: RealCluster, mode: str, *, topic: str = "T", shared_with: int = 0) -> None:
    host = "10.0.4.1"
    async with AsyncAdmin(str(REAL_NAME_SERVER), dependencies=c.dependencies(host), client_ip=host) as admin:
        await admin.groups.set_mode("G", topic, mode, shared_with=shared_with)
        assert {one.mode for one in (await admin.groups.modes("G"))[topic].values()} == {mode}


def member(c: RealCluster, listener: Any, number: int = 1, **options: Any) -> AsyncPushConsumer:
    made = c.push_consumer(**{"mode": "broker", "start_at": "first", "host": f"10.0.2.{number}", **options})
    made.on("T")(listener)
    return made


async def ids_of(consumer: AsyncPushConsumer, topic: str = "T") -> list[int]:
    return sorted(queue.queue_id for queue in await consumer.queues() if queue.topic == topic)


def test_an_administrator_switches_a_group_between_pull_and_pop_without_loss() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            handled: Counter[bytes] = Counter()
            failed: set[bytes] = set()

            async def listen(message: StoredMessage) -> bool:
                assert message.topic == "T"
                if message.body.endswith(b"7") and message.body not in failed:
                    failed.add(message.body)
                    return False
                await asyncio.sleep(0.05)
                handled[message.body] += 1
                return True

            sent: list[bytes] = []
            async with member(c, listen) as one, member(c, listen, 2) as other, c.producer() as producer:
                for mode in ("POP", "PULL", "POP", "PULL"):
                    await set_mode(c, mode)
                    for _ in range(50):
                        sent.append(b"%d" % len(sent))
                        await producer.send("T", sent[-1])
                        await asyncio.sleep(0.7)
                    ids = [await ids_of(each) for each in (one, other)]
                    assert ids == ([[-1], [-1]] if mode == "POP" else [[0, 1], [2, 3]]) or sorted(ids[0] + ids[1]) == [
                        0,
                        1,
                        2,
                        3,
                    ]
                await until(lambda: handled.keys() == set(sent))
                await asyncio.sleep(60)

            assert len(failed) == 20
            assert handled.keys() == set(sent)
            assert handled.total() <= len(sent) + 40, "a switch may repeat what its members have in work"

    run(main())


def test_messages_that_were_popped_and_not_handled_are_pulled_after_a_switch() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"popped")
            async with c.simple_consumer(start_at="first") as simple:
                await simple.subscribe("T")
                assert await simple.receive(invisible_s=10)
            basket = Basket(lambda one: one.reconsume_times >= 2)
            async with member(c, basket, 2):
                await basket.wait(2)
            assert [(one.topic, one.body) for one in basket.messages] == 2 * [("T", b"popped")]
            assert [one.reconsume_times for one in basket.messages] == [1, 2]
            assert c.stored(pop_retry_topic("G", "T", v2=False))

    run(main())


def test_a_broker_shares_the_queues_among_some_members() -> None:
    async def main() -> None:
        async with real_cluster(queues=4) as c:
            await set_mode(c, "POP", shared_with=1)
            basket = Basket()
            async with (
                member(c, basket) as one,
                member(c, basket, 2) as two,
                member(c, basket, 3) as three,
                member(c, basket, 4) as four,
            ):
                await asyncio.sleep(45)
                ids = [await ids_of(each) for each in (one, two, three, four)]
                await c.send("T", *(b"%d" % number for number in range(40)))
                await basket.wait(40)
            assert ids == [[0, 1], [1, 2], [2, 3], [0, 3]]
            assert Counter(basket.bodies) == Counter(b"%d" % number for number in range(40))

    run(main())


def test_members_with_mode_pop_pop_whatever_the_mode_of_the_group() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c:
            await set_mode(c, "PULL")
            async with member(c, Basket(), mode="pop") as consumer:
                queues = [queue for queue in await consumer.queues() if queue.topic == "T"]
                assert sorted(queues) == [MessageQueue("T", "broker-a", -1), MessageQueue("T", "broker-b", -1)]

    run(main())


def test_more_members_than_queues_pop() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            members = [member(c, Basket(), number, mode="pop") for number in range(1, 4)]
            async with members[0], members[1], members[2]:
                await asyncio.sleep(30)
                assert [await ids_of(each) for each in members] == [[-1], [-1], [-1]]

    run(main())


def test_a_simple_consumer_and_a_push_consumer_share_the_messages_of_a_group() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *(b"%d" % number for number in range(60)))
            handled: Counter[bytes] = Counter()

            async def listen(message: StoredMessage) -> None:
                await asyncio.sleep(0.2)
                handled[message.body] += 1

            async with (
                member(c, listen, mode="pop", workers=2),
                c.simple_consumer(start_at="first", host="10.0.2.2") as simple,
            ):
                await simple.subscribe("T")
                received = 0
                while handled.total() < 60:
                    for message in await simple.receive(2, wait_s=5):
                        received += 1
                        handled[message.body] += 1
                        await simple.ack(message)
                    await asyncio.sleep(0.2)
            assert handled == Counter(b"%d" % number for number in range(60))
            assert 5 < received < 55

    run(main())


# brokers that answer in other ways


def assigning(mode: str, *ids: int) -> Any:
    def answer(command: Command) -> Command:
        topic = QueryAssignment.decode(command.body).topic
        queues = [QueueAssignment(MessageQueue(topic, "broker-a", one), mode) for one in ids] if topic == "T" else []
        return command.reply(body=QueueAssignments(tuple(queues)).encode())

    return answer


def test_a_broker_of_rocketmq_4_is_refused_with_a_clear_error() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.version = Version.V4_9_7
            consumer = AsyncPushConsumer(
                NAME_SERVER, dependencies=c.dependencies, group="G", client_ip=CLIENT_IP, own_thread=False, mode="pop"
            )
            consumer.on("T")(Basket())
            with pytest.raises(RequestNotSupported, match=r"broker broker-a cannot lease messages \(POP\)"):
                await consumer.start()
            await consumer.stop()

    run(main())


@pytest.mark.parametrize(
    ("code", "pause_s"),
    [(ResponseCode.POLLING_FULL, 1.0), (ResponseCode.SYSTEM_ERROR, 1.0), (ResponseCode.POLLING_TIMEOUT, 0.05)],
)
def test_the_pause_before_the_next_pop_depends_on_the_answer(code: ResponseCode, pause_s: float) -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.answers |= {
                RequestCode.QUERY_ASSIGNMENT: assigning("POP", -1),
                RequestCode.POP_MESSAGE: refuse(code),
            }
            consumer = AsyncPushConsumer(
                NAME_SERVER,
                dependencies=c.dependencies,
                group="G",
                client_ip=CLIENT_IP,
                own_thread=False,
                mode="broker",
            )
            consumer.on("T")(Basket())
            async with consumer:
                await soon(lambda: len(c.broker.times(RequestCode.POP_MESSAGE)) == 4)
            times = c.broker.times(RequestCode.POP_MESSAGE)
            assert [round(later - earlier, 2) for earlier, later in pairwise(times)] == 3 * [
                pytest.approx(pause_s, abs=0.02)
            ]
            (first, *_) = c.broker.requests(RequestCode.POP_MESSAGE)
            ext = first.ext or {}
            assert (ext["queueId"], ext["maxMsgNums"], ext["invisibleTime"], ext["pollTime"], ext["initMode"]) == (
                "-1", "32", "60000", "15000", "1",
            )  # fmt: skip

    run(main())


def test_a_broker_that_does_not_answer_about_assignments_keeps_its_last_answer() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.script(RequestCode.QUERY_ASSIGNMENT, assigning("POP", 1, 2), assigning("POP", 1, 2))
            c.broker.answers |= {
                RequestCode.QUERY_ASSIGNMENT: refuse(ResponseCode.SYSTEM_ERROR),
                RequestCode.POP_MESSAGE: refuse(ResponseCode.POLLING_TIMEOUT),
            }
            consumer = AsyncPushConsumer(
                NAME_SERVER,
                dependencies=c.dependencies,
                group="G",
                client_ip=CLIENT_IP,
                own_thread=False,
                mode="broker",
            )
            consumer.on("T")(Basket())
            async with consumer:
                assert await ids_of(consumer) == [1, 2]
                await asyncio.sleep(70)
                assert len(c.broker.requests(RequestCode.QUERY_ASSIGNMENT)) > 3
                assert await ids_of(consumer) == [1, 2]
                c.broker.answers[RequestCode.QUERY_ASSIGNMENT] = assigning("POP")
                await asyncio.sleep(30)
                assert await ids_of(consumer) == []

    run(main())


def test_a_blocking_consumer_has_the_same_modes() -> None:
    consumer = PushConsumer("127.0.0.1:9876", group="G", mode="pop", pop_batch=8)
    assert (consumer.settings.mode, consumer.settings.pop_batch) == ("pop", 8)
