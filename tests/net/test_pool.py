"""Pools: one connection for each address, shared tries, and patience that grows."""

import asyncio
import itertools
import random
import ssl
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest
from tests.net.talk import BRISK, SERVER, ask, echo

from pocketmq.errors import CallTimedOut, ConnectFailed, ConnectionLost, InvalidSetting, NetworkError, WrongState
from pocketmq.net.address import Address
from pocketmq.net.connection import CloseReason
from pocketmq.net.network import Listener, TurnedAway
from pocketmq.net.peer import Peer
from pocketmq.net.pool import Pool, PoolSettings
from pocketmq.net.server import Server
from pocketmq.net.tls import ServerTls
from pocketmq.protocol.command import Command
from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork

P = TypeVar("P", bound=asyncio.BaseProtocol)

NOBODY = Address("10.0.0.9", 10911)


def connects(network: MemoryNetwork) -> int:
    return sum(line.what == "connect" for line in network.log)


def test_one_connection_serves_all_callers_of_an_address() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            peers = await asyncio.gather(*(pool.peer(SERVER) for _ in range(20)))

            assert len(set(peers)) == 1
            assert connects(network) == 1
            assert await pool.peer(SERVER) is peers[0]
            assert (await peers[0].call(ask(b"hello"))).body == b"hello"
            assert pool.peers == [peers[0]]

    run(main())


def test_a_cancelled_waiter_does_not_cancel_the_connection_for_the_others() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            impatient = asyncio.create_task(pool.peer(SERVER))
            patient = asyncio.create_task(pool.peer(SERVER))
            await asyncio.sleep(0)
            impatient.cancel()

            assert (await patient).is_open
            assert impatient.cancelled()
            assert connects(network) == 1

    run(main())


def test_requests_of_every_peer_are_served_by_the_pool() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, network=network) as server, Pool(network=network, serve=echo) as pool:
            await pool.peer(SERVER)
            (server_side,) = server.peers

            assert (await server_side.call(ask(b"from the broker"))).body == b"from the broker"

    run(main())


def test_a_failure_is_raised_for_all_waiters_and_names_the_next_attempt() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Pool(network=network) as pool:
            outcomes = await asyncio.gather(*(pool.peer(NOBODY) for _ in range(5)), return_exceptions=True)

            assert {type(outcome) for outcome in outcomes} == {ConnectFailed}
            assert len({id(outcome) for outcome in outcomes}) == 5
            assert "10.0.0.9:10911: connection refused; next attempt in 0." in str(outcomes[0])
            assert connects(network) == 1

    run(main())


def test_the_back_off_doubles_up_to_its_maximum_and_has_a_random_part() -> None:
    async def main() -> list[float]:
        network = MemoryNetwork(weather=BRISK)
        settings = PoolSettings(backoff_s=1.0, backoff_max_s=10.0)
        async with Pool(network=network, settings=settings, dice=random.Random(7)) as pool:
            while connects(network) < 9:
                with pytest.raises(ConnectFailed):
                    await pool.peer(NOBODY)
                await asyncio.sleep(0.001)
        tries = [line.at for line in network.log if line.what == "connect"]
        return [later - earlier for earlier, later in itertools.pairwise(tries)]

    waits = run(main())
    dice = random.Random(7)
    expected = [min(10.0, 2.0**failures) * dice.uniform(0.5, 1.0) for failures in range(8)]

    assert waits == pytest.approx(expected, abs=0.005)
    assert max(waits) <= 10.01


def test_during_the_back_off_calls_fail_at_once_without_connecting() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Pool(network=network, settings=PoolSettings(backoff_s=4.0)) as pool:
            with pytest.raises(ConnectFailed):
                await pool.peer(NOBODY)
            failed_at = asyncio.get_running_loop().time()

            with pytest.raises(ConnectFailed, match=r"connection refused; next attempt in \d\.\d s"):
                await pool.peer(NOBODY)

            assert asyncio.get_running_loop().time() == failed_at
            assert connects(network) == 1

    run(main())


def test_a_recovered_address_is_connected_and_its_failures_are_cleared() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Pool(network=network) as pool:
            for _ in range(4):
                with pytest.raises(ConnectFailed):
                    await pool.peer(SERVER)
                await asyncio.sleep(10)
            async with Server(SERVER, serve=echo, network=network):
                await pool.peer(SERVER)
                await asyncio.sleep(5)
            await asyncio.sleep(1)

            with pytest.raises(ConnectFailed, match=r"next attempt in 0\.[12] s"):
                await pool.peer(SERVER)

    run(main())


def test_a_lost_peer_is_removed_at_once_and_the_next_call_connects_again() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            first = await pool.peer(SERVER)
            call = asyncio.create_task(first.call(ask(), timeout=60))
            await asyncio.sleep(2)
            await call

            network.cut(SERVER)
            await first.wait_lost()
            assert pool.peers == []
            second = await pool.peer(SERVER)

            assert second is not first
            assert (await second.call(ask(b"again"))).body == b"again"

    run(main())


def test_a_closing_peer_is_not_returned() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            first = await pool.peer(SERVER)

            first.close()
            second = await pool.peer(SERVER)

            assert second is not first
            assert (await second.call(ask(b"x"))).body == b"x"
            await asyncio.sleep(1)
            assert await pool.peer(SERVER) is second

    run(main())


def test_a_server_that_closes_every_connection_is_not_reconnected_in_a_loop() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)

        def hang_up() -> asyncio.BaseProtocol:
            return Peer(on_made=lambda peer: peer.connection.abort()).connection

        await network.listen(hang_up, SERVER)
        async with Pool(network=network, settings=PoolSettings(backoff_s=1.0)) as pool:
            for _ in range(100):
                try:
                    await (await pool.peer(SERVER)).call(ask())
                except (ConnectFailed, ConnectionLost):
                    await asyncio.sleep(0.1)

        assert 3 <= connects(network) <= 6

    run(main())


def test_an_idle_connection_is_closed_after_two_minutes_and_opened_again_when_needed() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            first = await pool.peer(SERVER)
            await first.call(ask())
            used_at = asyncio.get_running_loop().time()
            await first.wait_lost()

            assert asyncio.get_running_loop().time() - used_at == pytest.approx(120.0, abs=0.01)
            assert first.connection.ending in (CloseReason.IDLE, CloseReason.PEER)
            assert (await (await pool.peer(SERVER)).call(ask(b"x"))).body == b"x"

    run(main())


def test_connecting_to_a_silent_host_ends_after_three_seconds() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            network.partition("127.0.0.1", "10.0.0.1")
            asked_at = asyncio.get_running_loop().time()

            with pytest.raises(ConnectFailed, match=r"10\.0\.0\.1:10911: no connection within 3\.0 s; next attempt in"):
                await pool.peer(SERVER)

            assert asyncio.get_running_loop().time() - asked_at == pytest.approx(3.0)

    run(main())


def test_a_half_open_connection_is_replaced_when_its_calls_time_out() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network), Pool(network=network) as pool:
            first = await pool.peer(SERVER)
            await first.call(ask())
            await asyncio.sleep(30)
            network.half_open(SERVER)

            timeouts = 0
            while True:
                try:
                    answer = await (await pool.peer(SERVER)).call(ask(b"back"))
                except CallTimedOut:
                    timeouts += 1
                else:
                    break

            assert answer.body == b"back"
            assert timeouts == 4

    run(main())


def test_the_number_of_addresses_is_limited_and_old_failures_are_removed() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with (
            Server(SERVER, serve=echo, network=network),
            Pool(network=network, settings=PoolSettings(max_addresses=2)) as pool,
        ):
            await pool.peer(SERVER)
            with pytest.raises(ConnectFailed, match="refused"):
                await pool.peer(NOBODY)

            with pytest.raises(ConnectFailed, match="the limit of 2 addresses in use is reached"):
                await pool.peer(Address("10.0.0.8", 10911))
            await asyncio.sleep(10)
            with pytest.raises(ConnectFailed, match=r"10\.0\.0\.8:10911: connection refused"):
                await pool.peer(Address("10.0.0.8", 10911))

    run(main())


def test_closing_ends_every_connection_and_every_try() -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network) as server:
            pool = Pool(network=network)
            peer = await pool.peer(SERVER)
            network.partition("127.0.0.1", "10.0.0.9")
            connecting = asyncio.create_task(pool.peer(NOBODY))
            await asyncio.sleep(1)

            await pool.close()
            await pool.close()

            assert not peer.is_open
            with pytest.raises(WrongState, match="closed while connecting"):
                await connecting
            with pytest.raises(WrongState, match="the pool is closed"):
                await pool.peer(SERVER)
            await asyncio.sleep(1)
            assert server.counters.open == 0

    run(main())


def test_other_errors_than_connect_failures_are_raised_unchanged() -> None:
    class Broken(MemoryNetwork):
        def _delay_s(self) -> float:
            raise KeyError("bug")

    async def main() -> None:
        async with Pool(network=Broken()) as pool:
            with pytest.raises(KeyError):
                await pool.peer(SERVER)

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_with_random_cuts_every_call_ends_with_its_own_answer_or_an_error(seed: int) -> None:
    async def serve(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(len(request.body) % 7 / 10)
        return echo(peer, request)

    async def main() -> None:
        network = MemoryNetwork(seed)
        dice = random.Random(seed)
        outcomes: Counter[str] = Counter()

        async def call(pool: Pool, number: int) -> None:
            body = b"%d " % number * dice.randrange(1, 3_000)
            await asyncio.sleep(dice.uniform(0, 60))
            try:
                answer = await (await pool.peer(SERVER)).call(ask(body), timeout=5)
            except NetworkError as error:
                outcomes[type(error).__name__] += 1
            else:
                assert answer.body == body
                outcomes["answered"] += 1

        async def break_things() -> None:
            breaks = [
                lambda: network.cut(SERVER),
                lambda: network.half_open(SERVER),
                lambda: network.partition("127.0.0.1", SERVER),
                lambda: network.refuse(SERVER),
                network.heal,
            ]
            for _ in range(40):
                await asyncio.sleep(dice.uniform(0, 3))
                dice.choice(breaks)()

        async with Server(SERVER, serve=serve, network=network) as server, Pool(network=network, dice=dice) as pool:
            breaking = asyncio.create_task(break_things())
            async with asyncio.TaskGroup() as calls:
                for number in range(200):
                    calls.create_task(call(pool, number))
            await breaking
            network.heal()
            await asyncio.sleep(20)
            await (await pool.peer(SERVER)).call(ask())

            assert outcomes.total() == 200
            assert outcomes["answered"] > 0
            assert server.counters.protocol_errors == 0
            assert all(peer.in_flight == 0 for peer in pool.peers)

    run(main(), seed=seed)


def test_large_bodies_in_both_directions_cause_no_deadlock() -> None:
    def large(peer: Peer, request: Command) -> Command:
        return request.reply(body=bytes(300_000))

    async def main() -> None:
        network = MemoryNetwork()
        async with Server(SERVER, serve=large, network=network), Pool(network=network) as pool:
            peer = await pool.peer(SERVER)

            answers = await asyncio.gather(*(peer.call(ask(bytes(300_000)), timeout=60) for _ in range(30)))

            assert all(len(answer.body) == 300_000 for answer in answers)

    run(main())


def test_impossible_limits_of_a_pool_are_refused() -> None:
    for settings in (
        {"connect_s": 0},
        {"backoff_s": 0},
        {"max_addresses": 0},
        {"settled_s": -1},
        {"backoff_s": 5, "backoff_max_s": 4},
    ):
        with pytest.raises(InvalidSetting):
            PoolSettings(**settings)  # type: ignore[arg-type]


class ForgetfulNetwork:
    """Opens connections and never reports it; after a cancellation it does not report their end either, as uvloop does."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.made = asyncio.Event()

    async def connect(self, factory: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None) -> P:
        await self._network.connect(factory, address, tls=tls)
        self.made.set()
        never: asyncio.Future[P] = asyncio.get_running_loop().create_future()
        return await never

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
        *,
        tls: ServerTls | None = None,
        turned_away: TurnedAway | None = None,
    ) -> Listener:
        return await self._network.listen(factory, address, tls=tls, turned_away=turned_away)


@pytest.mark.parametrize("way", ["closed", "out of time"])
def test_a_cancelled_connect_does_not_block_other_callers(way: str) -> None:
    async def main() -> None:
        network = MemoryNetwork(weather=BRISK)
        async with Server(SERVER, serve=echo, network=network):
            forgetful = ForgetfulNetwork(network)
            pool = Pool(network=forgetful, settings=PoolSettings(connect_s=1.0))
            asking = asyncio.create_task(pool.peer(SERVER))
            await forgetful.made.wait()
            if way == "out of time":
                with pytest.raises(ConnectFailed, match="no connection within"):
                    await asking

            async with asyncio.timeout(0.5):
                await pool.close()

            if way == "closed":
                with pytest.raises(WrongState, match="closed while connecting"):
                    await asking

    run(main())
