"""Registration with real name servers: all of them receive it, and clients get the right addresses."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.registering import (
    ANYWHERE,
    BROKER_HOST,
    LISTENING,
    NAME_SERVER,
    OTHER,
    Broker,
    Listener,
    addresses,
    name_server,
)
from tests.nameserver.talk import ask, route
from tests.net.talk import BRISK, NewLoop, every_loop, run_on, until

from pocketmq.broker.registration import Registration
from pocketmq.codes import Perm, RequestCode
from pocketmq.net.address import Address
from pocketmq.net.network import TcpNetwork
from pocketmq.protocol.api.administration import ForBrokerName
from pocketmq.testing import MemoryNetwork, run


def test_a_started_broker_is_in_the_routes_with_its_topics() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client), Broker(network) as broker:
            found = await route(client, "TBW102")

            assert found is not None
            assert found.queue_datas[0].perm == Perm.READ_WRITE | Perm.INHERIT
            assert found.broker_datas[0].broker_addrs == {0: "10.0.0.9:10911"}
            assert broker.registration.registered == [NAME_SERVER]

    run(main())


def test_a_stopped_broker_is_removed_at_once() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client):
            async with Broker(network) as broker:
                pass

            assert await addresses(client) == {}
            assert await route(client, "TBW102") is None
            await broker.registration.stop()

    run(main())


def test_a_thousand_topics_of_one_turn_are_registered_together() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server, Broker(network) as broker:
            for number in range(1000):
                broker.put(f"T{number}")
            await asyncio.sleep(1)

            assert server.sizes == [len(broker.topics) - 1000, len(broker.topics)]

    run(main())


def test_a_changed_permission_of_the_broker_is_registered_everywhere() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with (
            name_server(network) as (_, client),
            name_server(network, OTHER) as (_, other),
            Broker(network, NAME_SERVER, OTHER) as broker,
        ):
            broker.put("T")
            await asyncio.sleep(1)

            broker.settings.now = msgspec.structs.replace(broker.settings.now, permission=int(Perm.READ))
            broker.registration.announce()
            await asyncio.sleep(0.1)
            for peer in (client, other):
                found = await route(peer, "T")
                assert found is not None
                assert found.queue_datas[0].perm == Perm.READ

            await ask(client, RequestCode.WIPE_WRITE_PERM_OF_BROKER, ForBrokerName("broker-a"))
            broker.settings.now = msgspec.structs.replace(broker.settings.now, permission=int(Perm.READ_WRITE))
            await asyncio.sleep(60)
            for peer in (client, other):
                found = await route(peer, "T")
                assert found is not None
                assert found.queue_datas[0].perm == Perm.READ_WRITE

    run(main())


def test_an_unreachable_name_server_does_not_delay_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        network.partition(BROKER_HOST, NAME_SERVER.host)
        async with name_server(network, OTHER) as (_, client):
            broker = Broker(network.at(BROKER_HOST), NAME_SERVER, OTHER)
            starting = asyncio.create_task(broker.registration.start(LISTENING))

            await asyncio.sleep(1)
            assert await addresses(client) == {0: "10.0.0.9:10911"}
            broker.put("T")
            await asyncio.sleep(0.1)
            assert await route(client, "T") is not None

            await starting
            assert asyncio.get_running_loop().time() <= 6
            await asyncio.sleep(100)
            assert broker.registration.registered == [OTHER]
            await broker.registration.stop()

    run(main())
    told = [record for record in caplog.records if str(NAME_SERVER) in record.message]
    assert len(told) == 1
    assert "retrying" in told[0].message


def test_a_broker_without_name_servers_registers_nowhere() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        broker = Broker(network)
        broker.settings.now = msgspec.structs.replace(broker.settings.now, name_servers=())
        registration = Registration(broker.settings, broker.topics, broker.clock, network=network)

        assert await registration.find_address(ANYWHERE) == Address("127.0.0.1", 10911)
        await registration.start(ANYWHERE)
        registration.announce()
        await asyncio.sleep(0)
        assert registration.registered == []
        await registration.stop()

    run(main())


@pytest.mark.parametrize(
    ("listening", "changes", "wanted"),
    [
        (ANYWHERE, {}, "10.0.0.9:10911"),
        (Address("::", 10911), {}, "10.0.0.9:10911"),
        (Address("127.0.0.1", 10911), {}, "127.0.0.1:10911"),
        (Address("10.0.7.7", 10911), {}, "10.0.7.7:10911"),
        (ANYWHERE, {"advertised_port": 30911}, "10.0.0.9:30911"),
        (Address("127.0.0.1", 10911), {"advertised_host": "203.0.113.5", "advertised_port": 1}, "203.0.113.5:1"),
    ],
)
def test_clients_get_the_advertised_address(listening: Address, changes: dict[str, Any], wanted: str) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client):
            broker = Broker(network.at(BROKER_HOST), listening=listening, **changes)

            found = await broker.registration.find_address(listening)
            async with broker:
                assert await addresses(client) == {0: wanted}
                assert str(found) == str(broker.registration.address) == wanted
                assert list(map(str, broker.moves)) == [wanted]

    run(main())


@pytest.mark.parametrize(
    ("listening", "known_as", "recorded"),
    [
        (ANYWHERE, "203.0.113.5", "203.0.113.5"),
        (ANYWHERE, None, "127.0.0.1"),
        (Address("::", 10911), None, "::1"),
        (LISTENING, None, BROKER_HOST),
    ],
)
def test_clients_get_the_advertised_name_and_records_its_address(
    listening: Address, known_as: str | None, recorded: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def look_up(*_: object, **__: object) -> list[Any]:
        if known_as is None:
            raise OSError("Name or service not known")
        return [(None, None, None, None, (known_as, 10911))]

    async def main() -> None:
        asyncio.get_running_loop().getaddrinfo = look_up  # type: ignore[method-assign]
        network = MemoryNetwork()
        async with name_server(network) as (_, client):
            broker = Broker(network.at(BROKER_HOST), listening=listening, advertised_host="broker.example")

            found = await broker.registration.find_address(listening)
            async with broker:
                assert await addresses(client) == {0: "broker.example:10911"}
                assert found == Address("broker.example", 10911)
                assert broker.moves == [Address(recorded, 10911)]

    run(main())
    assert ("message ids contain" in caplog.text) is (known_as is None)


def test_the_first_reachable_name_server_reveals_the_own_address() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network, OTHER) as (_, client):
            broker = Broker(network.at(BROKER_HOST), NAME_SERVER, OTHER, listening=ANYWHERE)

            assert await broker.registration.find_address(ANYWHERE) == LISTENING
            async with broker:
                assert await addresses(client) == {0: "10.0.0.9:10911"}

    run(main())


def test_the_port_may_be_known_after_the_host() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network) as (_, client):
            broker = Broker(network.at(BROKER_HOST), listening=ANYWHERE)
            await broker.registration.find_address(Address(ANYWHERE.host, 0))
            async with broker:
                assert await addresses(client) == {0: "10.0.0.9:10911"}
                assert broker.moves == [Address("10.0.0.9", 0), LISTENING]

    run(main())


def test_a_start_waits_once_for_a_silent_name_server() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        network.partition(BROKER_HOST, NAME_SERVER.host)
        broker = Broker(network.at(BROKER_HOST), listening=ANYWHERE)

        await broker.registration.find_address(ANYWHERE)
        looked_s = asyncio.get_running_loop().time()
        await broker.registration.find_address(ANYWHERE)

        assert asyncio.get_running_loop().time() == looked_s == 3
        async with broker:
            assert asyncio.get_running_loop().time() <= 6.5

    run(main())


def test_the_last_registration_does_not_follow_the_unregistration() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Listener(network) as server:
            async with Broker(network) as broker:
                broker.put("T")
            await asyncio.sleep(60)

            assert server.codes == [RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER]

    run(main())


def test_without_a_name_server_the_own_address_is_found_later() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        broker = Broker(network.at(BROKER_HOST), listening=ANYWHERE)
        assert await broker.registration.find_address(ANYWHERE) == Address("127.0.0.1", 10911)
        async with broker:
            assert broker.moves == [Address("127.0.0.1", 10911)]
            async with name_server(network) as (_, client):
                await asyncio.sleep(21)

                assert broker.moves[1:] == [LISTENING]
                assert broker.registration.address == LISTENING
                assert await addresses(client) == {0: "10.0.0.9:10911"}
                await broker.registration.stop()

    run(main())


def test_a_changed_address_of_the_machine_is_registered_with_the_next_connection() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        host = network.at(BROKER_HOST)
        async with name_server(network) as (_, client):
            broker = Broker(host, listening=ANYWHERE)
            await broker.registration.find_address(ANYWHERE)
            async with broker:
                await asyncio.sleep(20)
                host.host = "10.0.0.77"
                network.cut(BROKER_HOST)
                await asyncio.sleep(1)

                assert await addresses(client) == {0: "10.0.0.77:10911"}
                assert broker.moves == [LISTENING, Address("10.0.0.77", 10911)]

    run(main())


def test_a_broker_on_all_addresses_that_registers_loopback_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with name_server(network), Broker(network, listening=ANYWHERE):
            pass

    run(main())
    assert "set brokerIP1" in caplog.text


@every_loop
def test_over_tcp_a_broker_is_registered_changed_and_removed(new_loop: NewLoop) -> None:
    async def main() -> None:
        network = TcpNetwork()
        async with name_server(network, Address("127.0.0.1", 0)) as (server, client):
            nobody = Address("127.0.0.1", 1)
            by_name = Address("localhost", server.address.port)
            broker = Broker(network, nobody, by_name, listening=ANYWHERE)
            assert await broker.registration.find_address(ANYWHERE) == Address("127.0.0.1", 10911)
            async with broker:
                assert await addresses(client) == {0: "127.0.0.1:10911"}
                broker.put("T")
                await asyncio.sleep(0)
                assert broker.registration.registered == []
                await until(lambda: broker.registration.registered == [by_name])
                assert await route(client, "T") is not None
            assert await addresses(client) == {}

    run_on(new_loop, main())
