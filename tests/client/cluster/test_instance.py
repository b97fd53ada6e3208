"""Instances: sharing, heartbeats, and their end."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

import pytest
from tests.client.kit import CLIENT_IP, NAME_SERVER, Cluster, cluster, ignore, refuse, until

from pocketmq.client.cluster.heartbeats import ProducerMember
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.settings import ClientSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectFailed, InvalidSetting, WrongState
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.clients import ConsumerData, ConsumerRunningInfo, DirectConsumption
from pocketmq.protocol.bodies.topics import ResetOffsets
from pocketmq.protocol.signing import Credentials
from pocketmq.testing import run


class Sends(ProducerMember):
    """A producer, as an instance sees it."""

    wire_group = ""

    def __init__(self, group: str) -> None:
        self.wire_group = group
        self.forgotten: list[str] = []

    def topic_forgotten(self, topic: str) -> None:
        self.forgotten.append(topic)


class Reads:
    """A consumer, as an instance sees it."""

    def __init__(self, group: str, *topics: str) -> None:
        self.wire_group = group
        self._topics = topics
        self.changed: list[str] = []
        self.rebalances = 0

    def topics(self) -> Iterable[str]:
        return self._topics

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(self.wire_group)

    def rebalance_soon(self) -> None:
        self.rebalances += 1

    def route_changed(self, topic: str) -> None:
        self.changed.append(topic)

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None: ...

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {}

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo()

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        return DirectConsumption()


def settings(**options: object) -> ClientSettings:
    return ClientSettings(name_servers=NAME_SERVER, client_ip=CLIENT_IP, **options)  # type: ignore[arg-type]


def join(c: Cluster, **options: object) -> Instance:
    return Instance.join(settings(**options), c.dependencies)


def test_clients_with_the_same_name_share_one_instance() -> None:
    async def main() -> None:
        async with cluster() as c:
            one, same = join(c), join(c)
            others = [
                join(c, instance_name="two"),
                join(c, credentials=Credentials("a", "b")),
                Instance.join(settings(), c.dependencies, stream=True),
            ]

            assert one is same
            assert len({one, *others}) == 4
            assert others[2].client_id == one.client_id + "@STREAM"

            for instance in (one, *others):
                await instance.leave()
            assert join(c) is one, "a client still uses it"
            await one.leave()
            await one.leave()
            again = join(c)
            assert again is not one
            await again.leave()

    run(main())


def test_instances_that_cannot_be_shared_have_separate_client_ids() -> None:
    async def main() -> None:
        async with cluster() as c:
            await c.network.listen(c.name_server._new_connection, Address("localhost", 9876))
            one = join(c)
            elsewhere = Instance.join(ClientSettings(name_servers="localhost", client_ip=CLIENT_IP), c.dependencies)
            signed = join(c, credentials=Credentials("a", "b"))
            named = join(c, instance_name="two", unit_name="hz")
            named_elsewhere = Instance.join(
                ClientSettings(name_servers="localhost", client_ip=CLIENT_IP, instance_name="two", unit_name="hz"),
                c.dependencies,
                stream=True,
            )
            named_signed = join(c, instance_name="two", unit_name="hz", credentials=Credentials("a", "b"))

            assert elsewhere.client_id == one.client_id + "#2"
            assert signed.client_id == one.client_id + "#3"
            assert named.client_id == f"{CLIENT_IP}@two@hz"
            assert named_elsewhere.client_id == f"{CLIENT_IP}@two@hz@STREAM"
            assert named_signed.client_id == f"{CLIENT_IP}@two#2@hz"
            await elsewhere.leave()
            again = Instance.join(ClientSettings(name_servers="localhost", client_ip=CLIENT_IP), c.dependencies)
            assert again.client_id == one.client_id + "#2", "it is free when its last user has left"
            for instance in (one, again, signed, named, named_elsewhere, named_signed):
                await instance.leave()

    run(main())


def test_each_event_loop_has_a_client_id_of_its_own_until_it_is_closed() -> None:
    async def main() -> str:
        return Instance.join(settings(), Dependencies()).client_id  # and never left

    loops = [asyncio.new_event_loop() for _ in range(3)]
    first, second = (loop.run_until_complete(main()) for loop in loops[:2])
    assert second == first + "#2"
    for loop in loops[:2]:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    third = loops[2].run_until_complete(main())
    assert third == first
    for task in asyncio.all_tasks(loops[2]):
        task.cancel()
    loops[2].run_until_complete(asyncio.sleep(0))
    loops[2].close()


def test_an_invalid_setting_is_refused_before_anything_starts() -> None:
    async def main() -> None:
        async with cluster() as c:
            with pytest.raises(InvalidSetting, match="write it as host:port"):
                Instance.join(ClientSettings(name_servers="a:b"), c.dependencies)

    run(main())


def test_the_first_request_on_a_connection_is_a_heartbeat_repeated_every_30_s() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            instance.add_producer(Sends("PG"))
            await instance.routes.find("T")
            await instance.brokers.peer(c.broker.address)
            await asyncio.sleep(95)

            assert [round(at) for at in c.broker.times(RequestCode.HEART_BEAT)] == [0, 1, 31, 61, 91]
            heartbeat = c.broker.heartbeats[0]
            assert heartbeat.client_id == instance.client_id
            assert [each.group_name for each in heartbeat.producer_data_set] == ["PG", "CLIENT_INNER_PRODUCER"]
            assert instance.heartbeats.versions == {c.broker.address: 479}
            await instance.leave()

    run(main())


def test_heartbeats_connect_again_after_a_connection_was_lost() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            await instance.routes.find("T")
            await asyncio.sleep(2)
            assert len(c.broker.peers) == 1

            c.network.cut(c.broker.address)
            await asyncio.sleep(31)

            assert (len(c.broker.peers), len(c.broker.heartbeats)) == (2, 2)
            assert instance.brokers.live(c.broker.address) is not None
            await instance.leave()

    run(main())


def test_a_new_member_causes_a_heartbeat_at_once() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            await instance.routes.find("T")
            await instance.brokers.peer(c.broker.address)
            await asyncio.sleep(5)
            heard = len(c.broker.heartbeats)

            instance.add_consumer(Reads("CG", "T"))
            await asyncio.sleep(0.1)

            assert len(c.broker.heartbeats) == heard + 1
            assert c.broker.heartbeats[-1].consumer_data_set == (ConsumerData("CG"),)
            await instance.leave()

    run(main())


def test_slaves_get_heartbeats_of_consumers_only() -> None:
    async def main() -> None:
        async with cluster("broker-a", "slave") as c:
            c.add_topic("T", brokers=["broker-a"])
            c.topics["T"].broker_datas[0].broker_addrs[1] = str(c.brokers["slave"].address)
            instance = join(c)
            instance.add_producer(Sends("PG"))
            await instance.routes.find("T")
            await asyncio.sleep(40)
            assert not c.brokers["slave"].heard

            instance.add_consumer(Reads("CG", "T"))
            await asyncio.sleep(1)

            assert c.brokers["slave"].heartbeats
            await instance.leave()

    run(main())


def test_a_failed_heartbeat_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.answers[RequestCode.HEART_BEAT] = refuse(1, "no")
            instance = join(c)
            await instance.routes.find("T")
            await asyncio.sleep(65)
            assert len(c.broker.heartbeats) == 3

            c.broker.answers[RequestCode.HEART_BEAT] = c.broker.hear
            await asyncio.sleep(30)
            await instance.leave()

    caplog.set_level(logging.INFO, "pocketmq.client")
    run(main())
    told = [record.message for record in caplog.records]
    assert [text.split(":")[0] for text in told] == ["heartbeat to 10.0.0.2", "heartbeats to 10.0.0.2"]


def test_a_leaving_member_is_unregistered() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            sends, reads = Sends("PG"), Reads("CG", "T")
            twin = Sends("PG")
            for producer in (sends, twin):
                instance.add_producer(producer)
            instance.add_consumer(reads)
            await instance.routes.find("T")
            await asyncio.sleep(2)

            await instance.remove_producer(twin)
            assert not c.broker.requests(RequestCode.UNREGISTER_CLIENT), "the group has another member here"
            await instance.remove_producer(sends)
            await instance.remove_consumer(reads)
            await instance.remove_consumer(reads)
            await instance.leave()

            told = [command.ext for command in c.broker.requests(RequestCode.UNREGISTER_CLIENT)]
            client = {"clientID": instance.client_id}
            assert told == [
                {**client, "producerGroup": "PG"},
                {**client, "consumerGroup": "CG"},
                {**client, "producerGroup": "CLIENT_INNER_PRODUCER"},
            ]
            await until(lambda: not c.network.connections)

    run(main())


def test_leaving_a_silent_broker_takes_a_limited_time() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.answers[RequestCode.UNREGISTER_CLIENT] = ignore
            instance = join(c, stop_timeout_ms=500)
            await instance.routes.find("T")
            await asyncio.sleep(2)
            started = asyncio.get_running_loop().time()

            await instance.leave()

            assert asyncio.get_running_loop().time() - started < 1

    run(main())


def test_a_client_is_a_member_of_a_consumer_group_once() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            instance.add_consumer(Reads("CG", "T"))

            with pytest.raises(WrongState, match="set a different instance_name for the second consumer"):
                instance.add_consumer(Reads("CG", "T"))
            await instance.leave()

    run(main())


def test_consumers_are_notified_of_route_changes_and_keep_routes_known() -> None:
    async def main() -> None:
        async with cluster(topics=()) as c:
            instance = join(c)
            reads = Reads("CG", "T", "U")
            instance.add_consumer(reads)
            await asyncio.sleep(31)
            assert reads.changed == []

            c.add_topic("T")
            c.add_topic("U")
            await asyncio.sleep(30)
            assert reads.changed == ["T", "U"]

            c.add_topic("U", 9)
            await asyncio.sleep(30 * 30)
            assert reads.changed == ["T", "U", "U"]
            assert instance.routes.get("T") is not None
            await instance.leave()

    run(main())


def test_producers_are_notified_of_deleted_routes() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c, idle_route_polls=1)
            sends = Sends("PG")
            instance.add_producer(sends)
            await instance.routes.find("T")

            await asyncio.sleep(100)

            assert sends.forgotten == ["T"]
            await instance.leave()

    run(main())


def test_a_slave_is_read_from_if_the_master_suggests_it() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            addresses = c.topics["T"].broker_datas[0].broker_addrs
            addresses |= {2: "10.0.0.8:10911", 1: "not an address"}
            await instance.routes.find("T")
            brokers = instance.brokers
            master, slave = Address("10.0.0.2", 10911), Address("10.0.0.8", 10911)

            assert [brokers.reader("broker-a", number) for number in (0, 1, 2, 7)] == [master, slave, slave, master]
            with pytest.raises(ConnectFailed, match=r"no route has a broker .* with id 7"):
                brokers.reader("broker-x", 7)
            with pytest.raises(
                ConnectFailed, match=r"no route has a master of broker 'broker-x'; known brokers: broker-a"
            ):
                brokers.master("broker-x")
            await instance.leave()

    run(main())


def test_a_cancelled_leave_closes_all_connections() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.answers[RequestCode.UNREGISTER_CLIENT] = ignore
            instance = join(c, stop_timeout_ms=60_000)
            await instance.routes.find("T")
            await asyncio.sleep(2)
            assert c.network.connections

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(instance.leave(), 1)

            await until(lambda: not c.network.connections)

    run(main())


def test_background_tasks_end_with_the_instance() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = join(c)
            ended: list[str] = []

            async def work() -> None:
                try:
                    await asyncio.sleep(3600)
                finally:
                    ended.append("ended")

            instance.start(work())
            await asyncio.sleep(0)
            await instance.leave()

            assert ended == ["ended"]
            await until(lambda: len(asyncio.all_tasks()) == 1)

    run(main())
