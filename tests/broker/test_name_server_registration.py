"""The registration with one name server: what is registered and when, and what happens after a failure."""

import asyncio
import logging

import pytest
from tests.broker.registering import (
    BROKER_HOST,
    LISTENING,
    NAME_SERVER,
    Broker,
    Listener,
    addresses,
    name_server,
)
from tests.nameserver.talk import ask, route
from tests.net.talk import BRISK

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.administration import PutKvConfig
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.testing import MemoryNetwork, run


def test_everything_is_registered_at_the_start_after_ten_seconds_and_at_every_interval() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network, register_interval_ms=20_000) as broker:
            await asyncio.sleep(51)

            assert server.times == [0.0, 10.0, 30.0, 50.0]
            assert server.sizes == [len(broker.topics)] * 4

    run(main())


def test_a_changed_topic_is_registered_alone_and_at_once() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            await asyncio.sleep(1)
            broker.put(TopicConfig("T", 3, 3))
            await asyncio.sleep(0.1)

            assert server.times == [0.0, 1.0]
            table = server.table(server.told[1][1])
            assert table == {"T": TopicConfig("T", 3, 3)}

    run(main())


def test_clients_find_a_new_topic_and_its_changes() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client), Broker(network) as broker:
            for queues in (1, 2, 3):
                broker.put(TopicConfig("T", queues, queues))
                await asyncio.sleep(0.1)
                found = await route(client, "T")
                assert found is not None
                assert found.queue_datas[0].write_queue_nums == queues

    run(main())


def test_topics_that_change_during_a_registration_are_registered_together_afterwards() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            server.delay_s = 1.0
            for number in range(100):
                broker.put(f"T{number}")
                await asyncio.sleep(0.01)
            await asyncio.sleep(3)

            assert server.sizes[1:] == [1, len(broker.topics)]

    run(main())


def test_a_few_new_topics_of_a_large_broker_are_registered_without_the_others() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            broker.put(*(f"T{number}" for number in range(1000)))
            await asyncio.sleep(1)
            broker.put(*(f"U{number}" for number in range(20)))
            await asyncio.sleep(1)

            assert server.sizes[1:] == [len(broker.topics) - 20, *[1] * 20]

    run(main())


def test_an_unannounced_change_is_registered_with_an_announced_one() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client), Broker(network) as broker:
            broker.put("A", "B")
            await asyncio.sleep(0.1)

            broker.topics.put([TopicConfig("A", 2, 2)], broker.clock.now_ms())
            await asyncio.sleep(0.1)
            broker.put(TopicConfig("B", 2, 2))
            await asyncio.sleep(0.1)

            for topic in ("A", "B"):
                found = await route(client, topic)
                assert found is not None
                assert found.queue_datas[0].write_queue_nums == 2

    run(main())


def test_a_change_without_effect_is_not_registered() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            broker.put("T")
            await asyncio.sleep(0.1)
            broker.put("T")
            await asyncio.sleep(0.1)

            assert len(server.told) == 2

    run(main())


def test_topics_that_the_name_server_orders_become_ordered_and_are_registered() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client), Broker(network) as broker:
            broker.put("T", "U")
            await asyncio.sleep(0.1)
            await ask(client, RequestCode.PUT_KV_CONFIG, PutKvConfig("ORDER_TOPIC_CONFIG", "T", "broker-a:8"))

            await asyncio.sleep(11)

            assert broker.topics.is_order("T")
            assert not broker.topics.is_order("U")
            assert broker.topics.pop_changed() == []

    run(main())


def test_a_late_name_server_gets_a_registration_within_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with Broker(network) as broker:
            await asyncio.sleep(100)
            broker.put("T")
            await asyncio.sleep(1)
            async with name_server(network) as (_, client):
                await asyncio.sleep(21)

                assert await addresses(client) == {0: "10.0.0.9:10911"}
                assert await route(client, "T") is not None
                await broker.registration.stop()

    with caplog.at_level(logging.INFO, "pocketmq.broker"):
        run(main())
    assert f"Registered with name server {NAME_SERVER} again" in caplog.text


def test_a_restarted_name_server_gets_everything_again() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network):
            broker = Broker(network)
            await broker.registration.start(LISTENING)
            broker.put("T", "U")
            await asyncio.sleep(60)
        async with name_server(network) as (_, client):
            await asyncio.sleep(5)

            assert await route(client, "T") is not None
            assert await route(client, "TBW102") is not None
            await broker.registration.stop()

    run(main())


def test_a_lost_connection_is_opened_again_at_once() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client), Broker(network.at(BROKER_HOST)):
            await asyncio.sleep(20)
            assert network.cut(BROKER_HOST) == 1
            await asyncio.sleep(0.1)

            assert await addresses(client) == {0: "10.0.0.9:10911"}
            assert await route(client, "TBW102") is not None

    run(main())


def test_a_connection_without_answers_is_closed() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client), Broker(network.at(BROKER_HOST)) as broker:
            await asyncio.sleep(20)
            network.half_open(BROKER_HOST)
            broker.put("T")
            await asyncio.sleep(10)

            assert await route(client, "T") is not None

    run(main())


def test_a_refusing_name_server_gets_everything_again_with_increasing_pauses() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server:
            server.refusals = 6
            async with Broker(network) as broker:
                await asyncio.sleep(0.5)
                broker.put("T")
                await asyncio.sleep(36)

                assert server.times == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0, 35.0]
                assert server.sizes[1:] == [len(broker.topics)] * 6
                assert broker.registration.registered == [NAME_SERVER]

    run(main())


def test_a_refused_single_topic_is_followed_by_a_full_registration() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            server.refusals = 1
            broker.put("T")
            await asyncio.sleep(2)

            assert server.sizes[1:] == [1, len(broker.topics)]

    run(main())


def test_changes_at_the_end_of_a_failure_are_registered_at_once() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server:
            server.refusals = 1
            async with Broker(network) as broker:
                server.delay_s = 0.5
                await asyncio.sleep(1.2)
                broker.put("T")
                await asyncio.sleep(1)

                assert server.sizes == [len(broker.topics) - 1, len(broker.topics) - 1, 1]

    run(main())


def test_stopping_does_not_wait_for_a_silent_name_server() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            server.delay_s = 60
            started = asyncio.get_running_loop().time()

            await broker.registration.stop()

            assert asyncio.get_running_loop().time() - started < 2
            assert server.codes[-1] == RequestCode.UNREGISTER_BROKER

    run(main())


def test_an_internal_error_does_not_end_the_registrations(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client):
            broker = Broker(network)
            with monkeypatch.context() as patch:
                patch.setattr(broker.topics, "registration", lambda *_: 1 / 0)
                await broker.registration.start(LISTENING)
            assert broker.registration.registered == []
            await asyncio.sleep(2)

            assert await route(client, "TBW102") is not None
            await broker.registration.stop()

    run(main())
    assert "ZeroDivisionError" in caplog.text
