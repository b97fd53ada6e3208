"""Reading of queues with pulls."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.client.admin.admins import HOST, admin_of
from tests.client.real_cluster import RealCluster, real_cluster

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.admin.targets import AdminSettings, Targets, first_at, read_queue
from pocketmq.client.cluster.calls import MessageCalls
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.received import Pulled
from pocketmq.codes import ResponseCode, SysFlag
from pocketmq.errors import UsageError
from pocketmq.model.names import parse_topic
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.api.messages import PullMessage
from pocketmq.testing import run

FIRST = MessageQueue("T", "broker-a", 0)


async def reach_of(c: RealCluster) -> Targets:
    settings = AdminSettings(name_servers="10.0.0.1:9876", client_ip=HOST)
    targets = Targets(Instance.join(settings, c.dependencies(HOST)), settings)
    await targets.route(parse_topic("T"))
    return targets


def test_a_queue_is_read_with_several_pulls() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *(b"%d" % number for number in range(200)), queue=0)
            targets = await reach_of(c)

            offsets = [message.queue_offset async for message in read_queue(targets, FIRST, 10, 190)]

            assert offsets == list(range(10, 190))
            await targets.instance.leave()

    run(main())


def test_reading_continues_after_a_hole_in_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    pull = MessageCalls.pull

    async def pull_around_a_hole(
        calls: MessageCalls, address: Address, name: str, header: PullMessage, **options: Any
    ) -> Pulled:
        """Answers as a broker of Apache RocketMQ that has lost the queue file with offsets 20 to 29."""
        if not 20 <= header.queue_offset < 30:
            most = 20 - header.queue_offset if header.queue_offset < 20 else 64
            header = replace(header, max_msg_nums=min(header.max_msg_nums, most))
            return await pull(calls, address, name, header, **options)
        found = await pull(calls, address, name, header, **options)
        told = replace(found.header, next_begin_offset=30)
        return found._replace(code=ResponseCode.PULL_NOT_FOUND, header=told, records=b"")

    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", *(b"%d" % number for number in range(50)), queue=0)
            targets = await reach_of(c)
            monkeypatch.setattr(MessageCalls, "pull", pull_around_a_hole)

            offsets = [message.queue_offset async for message in read_queue(targets, FIRST, 0, 50)]

            assert offsets == [*range(20), *range(30, 50)]
            assert [one.queue_offset async for one in read_queue(targets, FIRST, 24, 32)] == [30, 31]
            await targets.instance.leave()

    run(main())


LIMITED: dict[str, Callable[[AsyncAdmin, int], Awaitable[object]]] = {
    "messages.by_key": lambda admin, limit: admin.messages.by_key("T", "key", limit=limit),
    "messages.in_queue": lambda admin, limit: admin.messages.in_queue(FIRST, 0, limit=limit),
    "messages.in_time": lambda admin, limit: admin.messages.in_time("T", 0, 1, limit=limit),
    "dead_letters.read": lambda admin, limit: admin.dead_letters.read("G", limit=limit),
    "dead_letters.read newest": lambda admin, limit: admin.dead_letters.read("G", limit=limit, newest=True),
    "delays.waiting": lambda admin, limit: admin.delays.waiting(limit=limit),
    "transactions.undecided": lambda admin, limit: admin.transactions.undecided(limit=limit),
    "transactions.given_up": lambda admin, limit: admin.transactions.given_up(limit=limit),
}


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("call", LIMITED)
def test_a_limit_below_one_is_refused(call: str, limit: int) -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(UsageError, match=f"limit = {limit} must be above 0") as caught:
                await LIMITED[call](admin, limit)
            assert isinstance(caught.value, ValueError)

    run(main())


def test_reading_beyond_the_end_ends_there() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            await c.send("T", b"1", queue=0)
            targets = await reach_of(c)

            assert [message.body async for message in read_queue(targets, FIRST, 0, 99)] == [b"1"]
            assert [message.body async for message in read_queue(targets, FIRST, 50, 99)] == []
            assert await first_at(targets, FIRST, 1) is None
            await targets.instance.leave()

    run(main())


def test_a_message_with_a_damaged_body_is_shown_without_the_namespace() -> None:
    async def main() -> None:
        async with real_cluster(topics=("ns%T",), queues=1) as c:
            c.keep("ns%T", b"no zlib", sys_flag=SysFlag.COMPRESSED)
            async with admin_of(c, namespace="ns") as admin:
                (message,) = await admin.messages.in_queue(FIRST, 0, limit=1)

            assert (message.topic, message.body) == ("T", b"no zlib")

    run(main())
