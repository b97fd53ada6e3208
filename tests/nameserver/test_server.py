"""A complete name server: start and stop, liveness of brokers, and unknown clients."""

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nameserver.talk import (
    CLUSTER,
    MASTER,
    ask,
    broker_names,
    connected,
    done,
    register_command,
    route,
    started,
)

from pocketmq.clock import SystemClock
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ListenFailed, StoreDamaged, StoreLocked, WrongState
from pocketmq.nameserver.server import ACCESS, NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address
from pocketmq.net.loops import new_loop
from pocketmq.net.network import TcpNetwork
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import request_header
from pocketmq.protocol.api.administration import KvKey, PutKvConfig
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork, VirtualLoop, run

OPEN = NameServerSettings(host="10.0.0.1", port=9876, open_to_the_network_without_authentication=True)


async def broker_is_gone(client: Peer, *, within_s: float, step_s: float = 0.5) -> float:
    """The time until the broker was removed, in virtual seconds."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while await broker_names(client):
        assert loop.time() - began < within_s
        await asyncio.sleep(step_s)
    return loop.time() - began


def test_every_request_is_served_and_an_unknown_one_refused() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            codes = [(await peer.call(Command(code, {}))).code for code in ACCESS]
            strange = await peer.call(Command(9999))

            assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED not in codes
            assert ResponseCode.NO_PERMISSION not in codes
            assert (strange.code, strange.remark) == (3, " request type 9999 not supported")

    run(main())


@pytest.mark.parametrize("code", [*ACCESS, 9999])
def test_a_oneway_request_is_never_answered(code: int) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            peer.oneway(Command(code, {}))
            await asyncio.sleep(1)

            assert peer.unmatched == 0
            assert peer.is_open

    run(main())


def nonsense(code: RequestCode) -> st.SearchStrategy[Command]:
    """A request with the fields that it should have, and anything in them."""
    texts = st.text(max_size=8) | st.sampled_from(["0", "-1", "true", "broker-a", MASTER, CLUSTER, "9" * 25])
    fields = dict.fromkeys(request_header(code).__struct_encode_fields__, texts)
    bodies = st.binary(max_size=20) | st.sampled_from(
        [b"{}", b"null", b"[]", b'{"queueDatas":[{}]}', b'{"$ref":"$"}', b"a=\\u12", b"orderMessageEnable=x"]
    )
    return st.builds(Command, st.just(int(code)), st.fixed_dictionaries({}, optional=fields), bodies)


@pytest.mark.parametrize("code", ACCESS, ids=lambda code: code.name)
@settings(max_examples=15)
@given(data=st.data())
def test_invalid_requests_are_answered_and_change_nothing(code: RequestCode, data: st.DataObject) -> None:
    requests = data.draw(st.lists(nonsense(code), min_size=1, max_size=5))

    async def main() -> None:
        async with started() as (_, peer):
            for request in requests:
                answer = await peer.call(request)
                # An unexpected error is answered with the name of its Python class.
                assert not re.match(r"\w+(Error|Exception): ", answer.remark or ""), answer.remark

    run(main())


@pytest.mark.parametrize(
    ("timeout_ms", "earliest_s", "latest_s"), [(None, 120, 126), (10_000, 10, 16), (300_000, 300, 306)]
)
def test_a_silent_broker_is_removed_and_its_connection_closed(
    timeout_ms: int | None, earliest_s: float, latest_s: float
) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        clock = FakeClock(asyncio.get_running_loop())
        settings = NameServerSettings(idle_s=1000)
        async with started(settings, network=network, clock=clock) as (server, client):
            broker = await connected(network, server.address)
            await done(broker, register_command("A", "B", timeout_ms=timeout_ms))

            took_s = await broker_is_gone(client, within_s=latest_s)

            assert earliest_s < took_s < latest_s
            assert await route(client, "A") is None
            await broker.wait_lost()

    run(main())


def test_a_broker_that_registers_again_in_time_stays() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with started(network=network, clock=FakeClock(asyncio.get_running_loop())) as (server, client):
            broker = await connected(network, server.address)
            for _ in range(20):
                await done(broker, register_command("A", "B"))
                assert await broker_names(client) == {"broker-a"}
                await asyncio.sleep(30)

    run(main())


@pytest.mark.parametrize("how", ["closed", "cut", "garbage"])
def test_a_broker_with_a_lost_connection_is_removed_at_once(how: str) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with started(network=network, clock=FakeClock(asyncio.get_running_loop())) as (server, client):
            broker = await connected(network.at("10.0.0.5"), server.address)
            await done(broker, register_command("A", "B"))

            if how == "closed":
                broker.close()
            elif how == "cut":
                network.cut("10.0.0.5")
            else:
                broker.connection.write(b"GET / HTTP/1.1\r\n\r\n")

            assert await broker_is_gone(client, within_s=1, step_s=0.01) < 0.1

    run(main())


def test_a_broker_with_a_half_open_connection_is_removed_after_its_timeout() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with started(network=network, clock=FakeClock(asyncio.get_running_loop())) as (server, client):
            broker = await connected(network.at("10.0.0.5"), server.address)
            await done(broker, register_command("A", "B"))

            network.half_open("10.0.0.5")

            assert 119 < await broker_is_gone(client, within_s=126) < 126

    run(main())


def test_steps_of_the_wall_clock_do_not_affect_the_removal_of_brokers() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        clock = FakeClock(asyncio.get_running_loop())
        async with started(NameServerSettings(idle_s=1000), network=network, clock=clock) as (server, client):
            broker = await connected(network, server.address)
            await done(broker, register_command("A", "B"))

            clock.step_ms(3_600_000)
            await asyncio.sleep(20)
            after_forward = await broker_names(client)
            clock.step_ms(-7_200_000)
            took_s = await broker_is_gone(client, within_s=120)

            assert after_forward == {"broker-a"}
            assert took_s > 99

    run(main())


def test_several_name_servers_share_nothing() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with started(network=network) as (_, one):
            other_settings = NameServerSettings(port=9877)
            async with started(other_settings, network=network) as (_, other):
                await done(one, register_command("A", "B"))
                await ask(one, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v"))
                await ask(one, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false")

                assert await broker_names(other) == set()
                assert (await ask(other, RequestCode.GET_KV_CONFIG, KvKey("ns", "k"))).code == 22
                assert (await ask(other, RequestCode.GET_UNIT_TOPIC_LIST)).code == ResponseCode.SUCCESS

    run(main())


def test_a_server_can_be_stopped_twice_and_started_again_without_its_brokers() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        server = NameServer(network=network)
        await server.start()
        broker = await connected(network, server.address)
        await done(broker, register_command("A", "B"))

        await server.stop()
        await server.stop()
        await broker.wait_lost()
        with pytest.raises(WrongState):
            _ = server.address
        await server.start()

        client = await connected(network, server.address)
        assert await broker_names(client) == set()
        await server.stop()

    run(main())


def test_stopping_takes_less_than_a_second_although_a_peer_does_not_read() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        loop = asyncio.get_running_loop()
        server = NameServer(OPEN, network=network)
        await server.start()
        stranger = await connected(network.at("10.0.0.9"), server.address)
        await done(stranger, register_command("A", "B"))
        network.half_open("10.0.0.9")
        stranger.oneway(Command(RequestCode.GET_BROKER_CLUSTER_INFO))

        began = loop.time()
        await server.stop()

        assert loop.time() - began < 1

    run(main())


def test_a_value_that_is_being_saved_is_saved_before_it_stops() -> None:
    files = FaultyFiles()
    settings = NameServerSettings(kv_config_path=Path("/data/kvConfig.json"))

    async def main() -> None:
        network = MemoryNetwork()
        server = NameServer(settings, network=network, files=files)
        await server.start()
        client = await connected(network, server.address)
        stall = files.stall("sync", path="*.tmp")
        asking = asyncio.create_task(ask(client, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v")))
        await asyncio.sleep(1)

        asyncio.get_running_loop().call_later(0.2, stall.release)
        await server.stop()

        assert (await asking).code == ResponseCode.SUCCESS
        assert files.read(Path("/data/kvConfig.json")) == b'{"configTable":{"ns":{"k":"v"}}}'

    loop = VirtualLoop()
    loop.count_stalled(files.stalled)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


def test_routes_are_answered_while_the_disk_hangs() -> None:
    files = FaultyFiles()
    settings = NameServerSettings(kv_config_path=Path("/data/kvConfig.json"))

    async def main() -> None:
        async with started(settings, files=files) as (_, peer):
            await done(peer, register_command("A", "B"))
            with files.stall("sync", path="*"):
                put = asyncio.create_task(ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v")))
                await asyncio.sleep(1)

                assert await route(peer, "A") is not None
                assert not put.done()

            await put

    loop = VirtualLoop()
    loop.count_stalled(files.stalled)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


def test_a_failed_start_on_a_used_address_leaves_nothing_running(tmp_path: Path) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        path = tmp_path / "kvConfig.json"
        path.write_bytes(b'{"configTable":{}}')
        async with NameServer(network=network):
            second = NameServer(NameServerSettings(kv_config_path=path), network=network)
            with pytest.raises(ListenFailed):
                await second.start()

        async with second:
            with pytest.raises(StoreLocked):
                await NameServer(NameServerSettings(port=0, kv_config_path=path), network=network).start()

    run(main())


def test_a_damaged_kv_config_is_named_before_it_listens(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "kvConfig.json"
        path.write_bytes(b"{")
        server = NameServer(NameServerSettings(kv_config_path=path), network=MemoryNetwork())

        with pytest.raises(StoreDamaged, match="kvConfig"):
            await server.start()
        with pytest.raises(WrongState):
            _ = server.address

    run(main())


def test_above_the_limit_new_connections_are_refused_and_brokers_stay() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with started(NameServerSettings(max_connections=3), network=network) as (server, client):
            broker = await connected(network, server.address)
            await done(broker, register_command("A", "B"))

            flood = [await connected(network, server.address) for _ in range(10)]
            await asyncio.gather(*(peer.wait_lost() for peer in flood[1:]))

            assert await broker_names(client) == {"broker-a"}
            assert server.counters.refused == 9

    run(main())


def test_it_serves_over_real_sockets_on_any_free_port(tmp_path: Path) -> None:
    async def main() -> None:
        settings = NameServerSettings(port=0, kv_config_path=tmp_path / "new" / "kvConfig.json")
        async with NameServer(settings, clock=SystemClock()) as server, asyncio.timeout(20):
            assert server.address.port > 0
            peer = await connected(TcpNetwork(), server.address)
            await done(peer, register_command("A", "B"))
            await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v"))

            found = await route(peer, "A")

            assert found is not None
            assert found.broker_datas[0].cluster == CLUSTER
            assert found.broker_datas[0].broker_addrs == {0: MASTER}
            peer.close()
            await peer.wait_lost()
        assert (tmp_path / "new" / "kvConfig.json").read_bytes() == b'{"configTable":{"ns":{"k":"v"}}}'

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_a_name_server_may_listen_on_open_addresses_with_the_option() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        async with NameServer(OPEN, network=network) as server:
            peer = await connected(network.at("10.0.0.7"), server.address)

            assert server.address == Address("10.0.0.1", 9876)
            assert await broker_names(peer) == set()

    run(main())
