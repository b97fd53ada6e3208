"""The lifecycle of the administrator's client."""

import pytest
from tests.client.admin.admins import HOST, admin_of
from tests.client.real_cluster import NAME_SERVER, Basket, real_cluster

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.testing import run


def test_an_admin_works_only_between_start_and_stop() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            admin = AsyncAdmin(str(NAME_SERVER), dependencies=c.dependencies(HOST), client_ip=HOST)
            with pytest.raises(WrongState, match="was not started"):
                await admin.topics.names()
            await admin.start()
            with pytest.raises(WrongState, match="is running"):
                await admin.start()

            assert await admin.topics.names() == ["T"]
            await admin.stop()
            await admin.stop()

            with pytest.raises(WrongState, match="was stopped"):
                await admin.groups.names()

    run(main())


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'relay_timeout_ms'"):
        AsyncAdmin("10.0.0.1:9876", relay_time_ms=1)  # type: ignore[call-arg]


def test_consumers_send_no_heartbeats_to_brokers_that_only_the_admin_queries() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=()) as c:
            c.add_topic("T", brokers=["broker-a"])
            consumer = c.push_consumer(host=HOST)
            consumer.on("T")(Basket())
            async with consumer, admin_of(c) as admin:
                await admin.cluster.describe()

                assert c.members("G", "broker-a") == [consumer.client_id]
                assert c.members("G", "broker-b") == []

    run(main())
