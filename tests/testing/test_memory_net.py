"""The in-memory network: streams arrive complete and in order, faults are injected on request, and a seed decides
the rest.
"""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.net.talk import BRISK, SERVER, Recorder, ask, echo, frame_of
from tests.testing.ear import Ear, pair

from pocketmq.errors import ConnectFailed, InvalidSetting, ListenFailed, UsageError
from pocketmq.net.address import Address
from pocketmq.net.network import Network
from pocketmq.net.peer import Peer
from pocketmq.net.pool import Pool
from pocketmq.net.server import Server
from pocketmq.net.tls import ServerTls, client_context
from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork, NetworkEvent, Weather

OTHER = Address("10.0.0.2", 10911)


@given(st.integers(0, 10_000), st.lists(st.binary(max_size=3_000), max_size=10))
@settings(max_examples=50)
def test_any_stream_arrives_completely_and_in_order_for_any_seed(seed: int, writes: list[bytes]) -> None:
    async def main() -> None:
        client, server = await pair(MemoryNetwork(seed, Weather(segment_bytes=(1, 700), window_bytes=1_500)))
        for data in writes:
            client.transport.write(data)
            server.transport.write(data[::-1])
        client.transport.close()
        await asyncio.sleep(10)

        assert server.heard == b"".join(writes)
        assert server.ended
        assert client.lost == server.lost == [None]

    run(main(), seed=seed)


def test_a_stream_is_cut_into_segments_each_with_its_delay() -> None:
    async def main() -> None:
        network = MemoryNetwork(3, Weather(delay_s=(0.1, 0.5), segment_bytes=(10, 20)))
        client, server = await pair(network)
        written_at = asyncio.get_running_loop().time()

        client.transport.write(bytes(1000))
        await asyncio.sleep(60)

        sizes = [len(piece) for _, piece in server.pieces]
        assert len(sizes) > 50
        assert all(10 <= size <= 20 for size in sizes[:-1])
        assert len(set(sizes)) > 5
        assert all(0.1 <= at - written_at <= 0.5 for at, _ in server.pieces)

    run(main())


def test_order_is_not_kept_between_connections() -> None:
    async def main() -> None:
        network = MemoryNetwork(1, Weather(delay_s=(0.0, 1.0)))
        order: list[int] = []

        class Numbered(Ear):
            def data_received(self, data: bytes) -> None:
                order.append(data[0])

        await network.listen(Numbered, SERVER)
        clients = [await network.connect(Ear, SERVER) for _ in range(20)]
        for number, client in enumerate(clients):
            client.transport.write(bytes([number]))
        await asyncio.sleep(2)

        assert sorted(order) == list(range(20))
        assert order != sorted(order)

    run(main())


def run_a_conversation(seed: int) -> list[NetworkEvent]:
    async def main() -> list[NetworkEvent]:
        network = MemoryNetwork(seed)
        async with (
            Server(SERVER, serve=echo, network=network),
            Server(OTHER, serve=echo, network=network),
            Pool(network=network.at("10.0.0.9")) as pool,
        ):
            peers = [await pool.peer(SERVER), await pool.peer(OTHER)]
            bodies = [bytes([number]) * 10_000 for number in range(20)]
            await asyncio.gather(*(peer.call(ask(body)) for peer in peers for body in bodies))
            network.cut(OTHER)
            await peers[0].call(ask(b"after the cut"))
        return list(network.log)

    return run(main())


def test_the_same_seed_gives_the_same_run_to_the_last_segment() -> None:
    first, again, other = run_a_conversation(5), run_a_conversation(5), run_a_conversation(6)

    assert len(first) > 100
    assert first == again
    assert first != other


def test_the_log_has_every_event() -> None:
    async def main() -> list[tuple[str, str, str]]:
        network = MemoryNetwork(weather=BRISK)
        client, _ = await pair(network)
        client.transport.write(b"hello")
        await asyncio.sleep(1)
        network.cut(SERVER)
        await asyncio.sleep(1)
        return [(line.what, line.source, line.target) for line in network.log]

    assert run(main()) == [
        ("listen", "10.0.0.1:10911", ""),
        ("connect", "127.0.0.1:49152", "10.0.0.1:10911"),
        ("made", "127.0.0.1:49152", "10.0.0.1:10911"),
        ("stop listening", "10.0.0.1:10911", ""),
        ("segment", "127.0.0.1:49152", "10.0.0.1:10911"),
        ("cut", "127.0.0.1:49152", "10.0.0.1:10911"),
        ("closed", "127.0.0.1:49152", "10.0.0.1:10911"),
    ]


def test_the_log_keeps_the_configured_number_of_lines() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=Weather(log_lines=10, segment_bytes=(1, 1)))
        client, server = await pair(network)
        client.transport.write(bytes(100))
        await asyncio.sleep(1)

        assert len(server.heard) == 100
        assert len(network.log) == 10

    run(main())


def test_a_cut_resets_both_ends_and_loses_bytes_in_transit() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        client, server = await pair(network)
        client.transport.write(b"lost")

        assert network.cut(SERVER) == 1
        await asyncio.sleep(1)

        assert server.heard == b""
        assert [type(error) for error in client.lost + server.lost] == [ConnectionResetError] * 2
        assert network.connections == {}
        assert network.cut(SERVER) == 0

    run(main())


def test_one_connection_or_all_of_a_host_or_address_can_be_cut() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        for address in (SERVER, Address("10.0.0.1", 10912), OTHER):
            await network.listen(Ear, address)
        a = [await network.connect(Ear, SERVER) for _ in range(2)]
        b = await network.at("10.0.0.7").connect(Ear, Address("10.0.0.1", 10912))
        c = await network.at("10.0.0.7").connect(Ear, OTHER)
        one = next(iter(network.connections.values()))

        assert network.cut(one) == 1
        await asyncio.sleep(1)
        assert [bool(ear.lost) for ear in (*a, b, c)] == [True, False, False, False]
        assert network.cut(one) == 0
        assert network.cut(Address("10.0.0.1", 10912)) == 1
        await asyncio.sleep(1)
        assert [bool(ear.lost) for ear in (*a, b, c)] == [True, False, True, False]
        assert network.cut("10.0.0.7") == 1
        await asyncio.sleep(1)
        assert [bool(ear.lost) for ear in (*a, b, c)] == [True, False, True, True]

    run(main())


def test_a_half_open_connection_loses_everything_until_heal_resets_it() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=Weather(window_bytes=1_000))
        client, server = await pair(network)
        server.transport.pause_reading()
        client.transport.write(bytes(50_000))
        server.transport.write(b"x")

        assert network.half_open(SERVER) == 1
        client.transport.write(bytes(50_000))
        server.transport.resume_reading()
        await asyncio.sleep(60)
        assert (server.heard, client.heard, client.lost, server.lost) == (b"", b"", [], [])
        assert client.transport.get_write_buffer_size() == 0

        network.heal()
        await asyncio.sleep(1)
        assert [type(error) for error in client.lost + server.lost] == [ConnectionResetError] * 2

    run(main())


def test_the_end_of_a_half_open_connection_is_not_reported() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        client, server = await pair(network)
        network.half_open("10.0.0.1")

        client.transport.close()
        await asyncio.sleep(60)

        assert (client.lost, server.lost) == ([None], [])
        server.transport.abort()
        await asyncio.sleep(1)
        assert network.connections == {}

    run(main())


def test_in_a_partition_bytes_wait_and_arrive_when_it_is_healed() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        client, server = await pair(network)
        client.transport.write(b"on its way, ")
        network.partition("127.0.0.1", SERVER)
        client.transport.write(b"and written later")
        await asyncio.sleep(600)
        heard_meanwhile = server.heard

        network.heal()
        await asyncio.sleep(1)

        assert heard_meanwhile == b""
        assert server.heard == b"on its way, and written later"
        assert server.lost == []

    run(main())


def test_a_partition_separates_only_the_two_named_hosts() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        await network.listen(Ear, SERVER)
        network.partition("10.0.0.7", "10.0.0.1")

        parted = asyncio.create_task(network.at("10.0.0.7").connect(Ear, SERVER))
        await network.at("10.0.0.8").connect(Ear, SERVER)
        await asyncio.sleep(600)
        assert not parted.done()
        network.heal()

        assert (await parted).transport.get_extra_info("sockname")[0] == "10.0.0.7"

    run(main())


def test_connects_are_refused_without_a_listener_and_on_request() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        await network.listen(Ear, SERVER)
        network.refuse("10.0.0.1")

        for address in (SERVER, OTHER):
            with pytest.raises(ConnectFailed, match=f"{address}: connection refused"):
                await network.connect(Ear, address)
        network.heal()
        await network.connect(Ear, SERVER)

    run(main())


def test_listening_chooses_a_port_and_rejects_one_in_use() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        first = await network.listen(Ear, Address("10.0.0.1", 0))
        second = await network.listen(Ear, Address("10.0.0.1", 0))
        anywhere = await network.at("10.0.0.5").listen(Ear, Address("0.0.0.0", 10911))

        assert first.address != second.address
        assert anywhere.address == Address("10.0.0.5", 10911)
        assert (await network.listen(Ear, Address("", 1))).address == Address("127.0.0.1", 1)
        with pytest.raises(ListenFailed, match="address already in use"):
            await network.listen(Ear, first.address)
        first.close()
        first.close()
        await network.listen(Ear, first.address)
        with pytest.raises(ListenFailed, match=r"this host is 10\.0\.0\.5"):
            await network.at("10.0.0.5").listen(Ear, Address("10.0.0.6", 1))

    run(main())


def test_a_free_port_is_never_a_used_one() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await network.listen(Ear, Address("127.0.0.1", 49152))

        listener = await network.listen(Ear, Address("127.0.0.1", 0))

        assert listener.address.port == 49153

    run(main())


def test_tls_is_refused() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        context = client_context(verify=False)
        with pytest.raises(UsageError, match="no TLS"):
            await network.connect(Ear, SERVER, tls=context)
        with pytest.raises(UsageError, match="no TLS"):
            await network.listen(Ear, SERVER, tls=ServerTls(context))

    run(main())


def test_frames_over_memory_in_single_bytes_are_complete() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=Weather(segment_bytes=(1, 1)))
        server, client = Recorder(), Recorder()
        await network.listen(lambda: server.connection, SERVER)
        await network.connect(lambda: client.connection, SERVER)
        client.connection.write(frame_of(body=b"one") + frame_of(body=b"two"))
        await asyncio.sleep(10)

        assert [body for _, _, body in server.heard] == [b"one", b"two"]
        assert len(server.turns) == 2

    run(main())


def test_the_network_works_on_a_real_loop_too() -> None:
    async def main() -> bytes:
        network: Network = MemoryNetwork()
        async with Server(SERVER, serve=echo, network=network):
            client = Peer()
            await network.connect(lambda: client.connection, SERVER)
            return (await client.call(ask(b"real time"))).body

    assert asyncio.run(main()) == b"real time"


def test_impossible_weather_is_refused() -> None:
    for weather in (
        {"delay_s": (0.2, 0.1)},
        {"delay_s": (-1.0, 0.1)},
        {"segment_bytes": (0, 1)},
        {"segment_bytes": (2, 1)},
        {"window_bytes": 0},
        {"log_lines": 0},
    ):
        with pytest.raises(InvalidSetting):
            Weather(**weather)
