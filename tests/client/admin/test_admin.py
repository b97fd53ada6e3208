"""The life of an administrator's client."""

import pytest
from tests.client.administration.administrating import HOST, admin_of
from tests.client.real_cluster import NAME_SERVER, Basket, real_cluster

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.testing import run


def test_it_works_between_start_and_stop_only() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            admin = AsyncAdmin(str(NAME_SERVER), surroundings=c.dependencies(HOST), client_ip=HOST)
            with pytest.raises(WrongState, match="was not started"):
                _ = admin.topics
            await admin.start()
            with pytest.raises(WrongState, match="is running"):
                await admin.start()

            assert await admin.topics.names() == ["T"]
            await admin.stop()
            await admin.stop()

            with pytest.raises(WrongState, match="was stopped"):
                _ = admin.groups

    run(main())


def test_an_option_that_does_not_exist_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'relay_timeout_ms'"):
        AsyncAdmin("10.0.0.1:9876", relay_time_ms=1)  # type: ignore[call-arg]


def test_consumers_of_the_same_process_are_not_announced_to_brokers_that_only_the_admin_asks() -> None:
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
