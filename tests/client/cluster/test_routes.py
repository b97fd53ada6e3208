"""Routes: their queues, the cache, and failures of name servers."""

import asyncio
import logging

import pytest
from tests.client.kit import CLIENT_IP, NAME_SERVER, Cluster, cluster, ignore

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import route_of, template_route
from pocketmq.client.settings import ClientSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import NetworkError, TopicNotFound
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.topics import BrokerData, QueueData, TopicRouteData
from pocketmq.testing import run

ASK = RequestCode.GET_ROUTEINFO_BY_TOPIC


def data(*queues: QueueData, conf: str | None = None, masters: tuple[str, ...] = ("a", "b", "c")) -> TopicRouteData:
    brokers = tuple(
        BrokerData("C", each.broker_name, {0 if each.broker_name in masters else 1: "10.0.0.2:10911"})
        for each in queues
    )
    return TopicRouteData(queues, brokers, order_topic_conf=conf)


def test_queues_are_in_the_order_of_broker_names() -> None:
    route = route_of("T", data(QueueData("b", 1, 2, 6), QueueData("a", 2, 1, 6)))

    assert route.writable == (MessageQueue("T", "a", 0), MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))
    assert route.readable == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0))


def test_queues_without_permission_or_master_are_excluded() -> None:
    route = route_of("T", data(QueueData("a", 1, 1, 4), QueueData("b", 1, 1, 2), QueueData("d", 1, 1, 6)))

    assert route.writable == (MessageQueue("T", "b", 0),)
    assert route.readable == (MessageQueue("T", "a", 0), MessageQueue("T", "d", 0))


def test_a_configured_order_of_queues_is_used() -> None:
    route = route_of("T", data(QueueData("a", 4, 4, 6), conf="b:2;a:1;nonsense;c:x"))

    assert route.ordered
    assert route.writable == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("T", "a", 0))


@pytest.mark.parametrize(("asked", "given"), [(3, 3), (4, 4), (5, 4)])
def test_a_topic_from_a_template_has_the_smaller_number_of_queues(asked: int, given: int) -> None:
    route = template_route("New", data(QueueData("a", 4, 8, 7)), asked)

    assert route.from_template
    assert route.writable == tuple(MessageQueue("New", "a", number) for number in range(given))


def joined(c: Cluster, **options: int) -> Instance:
    settings = ClientSettings(name_servers=NAME_SERVER, client_ip=CLIENT_IP, **options)  # type: ignore[arg-type]
    return Instance.join(settings, c.dependencies)


def test_a_route_is_queried_once_and_refreshed_every_30_s() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = joined(c)

            both = await asyncio.gather(instance.routes.find("T"), instance.routes.find("T"))
            assert both[0] is both[1] is await instance.routes.find("T")
            assert len(c.name_server.requests(ASK)) == 1

            await asyncio.sleep(95)
            assert [round(at) for at in c.name_server.times(ASK)] == [0, 30, 60, 90]
            assert instance.routes.get("T") is both[0], "nothing has changed"
            await instance.leave()

    run(main())


def test_brokers_are_added_and_removed_with_their_routes() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c:
            instance = joined(c)
            await instance.routes.find("T")
            assert instance.brokers.names == ["broker-a", "broker-b"]
            assert instance.brokers.master("broker-b") == Address("10.0.0.3", 10911)

            c.add_topic("T", brokers=["broker-b"])
            await asyncio.sleep(31)

            assert instance.brokers.names == ["broker-b"]
            await instance.leave()

    run(main())


def test_an_unused_route_is_deleted_after_some_polls() -> None:
    async def main() -> None:
        async with cluster(topics=("T", "U")) as c:
            instance = joined(c, idle_route_polls=2)
            await instance.routes.find("T")
            await instance.routes.find("U")
            for _ in range(4):
                await asyncio.sleep(30)
                assert instance.routes.get("T") is not None

            assert instance.routes.get("U") is None
            await instance.leave()

    run(main())


def test_an_unknown_topic_uses_the_route_of_the_template_until_it_exists() -> None:
    async def main() -> None:
        async with cluster(topics=()) as c:
            c.add_topic("TBW102", 8, 7)
            instance = joined(c)
            with pytest.raises(TopicNotFound):
                await instance.routes.find("New")

            route = await instance.routes.find_or_template("New", "TBW102", 4)
            assert (route.from_template, len(route.writable)) == (True, 4)
            assert await instance.routes.find_or_template("New", "TBW102", 4) is route

            c.add_topic("New", 2)
            await asyncio.sleep(31)
            found = await instance.routes.find_or_template("New", "TBW102", 4)
            assert (found.from_template, len(found.writable)) == (False, 2)
            await instance.leave()

    run(main())


def test_without_a_template_the_error_has_advice() -> None:
    async def main() -> None:
        async with cluster(topics=()) as c:
            instance = joined(c)

            with pytest.raises(
                TopicNotFound,
                match=r"No route info of this topic: 'New'.*create it with `pocketmq topic create New -n 10\.0\.0\.1:9876",
            ):
                await instance.routes.find_or_template("New", "TBW102", 4)
            await instance.leave()

    run(main())


def test_routes_are_unchanged_while_no_name_server_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = joined(c)
            route = await instance.routes.find("T")

            c.name_server.answers[ASK] = ignore
            await asyncio.sleep(120)
            assert instance.routes.get("T") is route
            with pytest.raises(NetworkError):
                await instance.routes.refresh("T")

            c.name_server.answers[ASK] = c._route
            c.add_topic("T", 9)
            await asyncio.sleep(35)
            changed = instance.routes.get("T")
            assert changed is not None
            assert len(changed.writable) == 9
            await instance.leave()

    caplog.set_level(logging.INFO, "pocketmq.client")
    run(main())
    told = [record.message for record in caplog.records if "route refresh" in record.message]
    assert len(told) == 2, "once when it begins, once when it is over"
    assert "route refresh failed" in told[0]


def test_a_name_server_that_lost_a_topic_changes_nothing() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = joined(c)
            route = await instance.routes.find("T")
            c.topics.clear()

            await asyncio.sleep(40)

            assert instance.routes.get("T") is route
            assert instance.brokers.names == ["broker-a"]
            await instance.leave()

    run(main())


def test_a_cancelled_query_does_not_cancel_the_query_of_others() -> None:
    async def main() -> None:
        async with cluster() as c:
            instance = joined(c)
            first = asyncio.create_task(instance.routes.find("T"))
            second = asyncio.create_task(instance.routes.find("T"))
            await asyncio.sleep(0.0005)
            first.cancel()

            assert (await second).topic == "T"
            assert first.cancelled()
            await instance.leave()

    run(main())
