"""A slave follows a master, in virtual time: through disconnects, crashes of either, and full disks."""

import asyncio
import errno

import pytest
from tests.broker.lives import make_topic
from tests.broker.replication.pairs import HA, MASTER, SLAVE, Pair, caught_up, fill, linked, log_of, rows, with_pair
from tests.broker.running import damage
from tests.net.talk import until

from pocketmq.broker.replication.serving import frame
from pocketmq.errors import SystemBusy


def test_a_slave_gets_everything_and_serves_it() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            make_topic(slave)
            client, reader = await pair.client(), await pair.client(SLAVE)
            await fill(client, 50)
            await caught_up(master, slave)

            assert log_of(slave) == log_of(master)
            assert len(log_of(slave)) > 3
            assert rows(slave) == rows(master)
            answer = await reader.pull(0)
            assert answer.code == 0
            assert answer.body == (await client.pull(0)).body
        assert damage(pair.slave.disk) == []

    with_pair(main)


def test_a_pull_that_the_slave_holds_is_woken_by_the_stream() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            make_topic(slave)
            client, reader = await pair.client(), await pair.client(SLAVE)
            await fill(client, 1)
            await caught_up(master, slave)
            held = asyncio.ensure_future(reader.pull(1, wait_ms=20_000))
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
            await fill(client, 1, first=1)
            assert (await held).code == 0
            assert asyncio.get_running_loop().time() - began < 1

    with_pair(main)


def test_a_slave_that_was_away_continues() -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker() as master:
            make_topic(master)
            client = await pair.client()
            async with pair.slave.broker() as slave:
                await linked(master)
                await fill(client, 30)
                await caught_up(master, slave)
            await fill(client, 30, first=30)
            async with pair.slave.broker() as slave:
                await caught_up(master, slave)
                assert log_of(slave) == log_of(master)
                assert rows(slave) == rows(master)

    with_pair(main)


@pytest.mark.parametrize("seed", range(6))
def test_a_slave_follows_again_after_a_power_loss(seed: int) -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker() as master:
            make_topic(master)
            client = await pair.client()
            async with pair.slave.broker():
                await linked(master)
                await fill(client, 20 + seed)
                await asyncio.sleep(seed / 10)
                pair.slave.crash("any", seed)
            await fill(client, 5, first=100)
            async with pair.slave.broker() as slave:
                await caught_up(master, slave)
                # A slave that has lost everything begins with the newest file.
                start = slave.parts.state.store.facts.log_start
                assert log_of(slave) == {at: data for at, data in log_of(master).items() if at >= start}
                assert rows(slave) == rows(master)[-len(rows(slave)) :]
        assert damage(pair.slave.disk) == []

    with_pair(main)


def test_a_master_that_was_killed_is_followed_again() -> None:
    async def main(pair: Pair) -> None:
        async with pair.slave.broker() as slave:
            async with pair.master.broker() as master:
                make_topic(master)
                await linked(master)
                await fill(await pair.client(), 20)
                await caught_up(master, slave)
                pair.master.crash()
            async with pair.master.broker() as master:
                await fill(await pair.client(), 20, first=20)
                await linked(master)
                await caught_up(master, slave)
                assert log_of(slave) == log_of(master)
                assert rows(slave) == rows(master)

    with_pair(main)


def test_a_cut_connection_is_made_again() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            client = await pair.client()
            await fill(client, 1)
            await caught_up(master, slave)
            for number in range(5):
                sending = asyncio.ensure_future(fill(client, 10, first=number * 10))
                await asyncio.sleep(0.003 * number)
                pair.network.cut(SLAVE.host)
                await sending
            await caught_up(master, slave)
            assert log_of(slave) == log_of(master)

    with_pair(main)


def test_a_half_open_connection_is_closed_by_both_sides() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            client = await pair.client()
            pair.network.half_open(SLAVE.host)
            await fill(client, 5)
            began = asyncio.get_running_loop().time()
            await caught_up(master, slave)
            assert 19 < asyncio.get_running_loop().time() - began < 31

    with_pair(main)


def test_an_empty_slave_of_an_old_master_begins_with_the_newest_file() -> None:
    async def main(pair: Pair) -> None:
        async with pair.master.broker() as master:
            make_topic(master)
            client = await pair.client()
            await fill(client, 60)
            start = master.parts.state.store.facts.log_end // (64 * 1024) * 64 * 1024
            async with pair.slave.broker() as slave:
                await caught_up(master, slave)
                await fill(client, 20, first=60)
                await caught_up(master, slave)
                assert slave.parts.state.store.facts.log_start == start > 0
                assert log_of(slave) == {at: data for at, data in log_of(master).items() if at >= start}
                assert rows(slave) == rows(master)[-len(rows(slave)) :]
        assert damage(pair.slave.disk) == []

    with_pair(main)


def test_a_full_disk_stops_the_slave_until_there_is_space() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            client = await pair.client()
            await fill(client, 3)
            await caught_up(master, slave)
            pair.slave.disk.fail("write", errno.ENOSPC, "*commitlog*", times=None)
            await fill(client, 3, first=3)
            await asyncio.sleep(12)
            assert rows(slave) == rows(master)[:3]
            pair.slave.disk.heal()
            await caught_up(master, slave)
            assert log_of(slave) == log_of(master)

    with_pair(main)


def test_a_master_with_another_log_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(master)
            await fill(await pair.client(), 10)
            await caught_up(master, slave)
        pair.master = type(pair.master)(replication=HA)
        pair.master.network = pair.network
        async with pair.master.broker() as master, pair.slave.broker() as slave:
            before = log_of(slave)
            await asyncio.sleep(20)
            assert log_of(slave) == before

    with_pair(main)
    assert "it follows another log, or this broker lost messages" in caplog.text


def test_bytes_that_are_no_log_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    class Liar(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
            getattr(transport, "write")(frame(0, b"x" * 100))  # noqa: B009

    async def main(pair: Pair) -> None:
        await pair.network.listen(Liar, MASTER._replace(port=10912))
        async with pair.slave.broker() as slave:
            await asyncio.sleep(12)
            assert slave.parts.state.store.end == 0

    with_pair(main)
    assert "the master sent no record at log offset 0" in caplog.text


def test_a_slave_refuses_what_changes_the_log() -> None:
    async def main(pair: Pair) -> None:
        async with pair.both() as (master, slave):
            make_topic(slave)
            reader = await pair.client(SLAVE)
            answer = await reader.send(b"x")
            assert answer.code == 2
            assert (answer.remark or "").startswith("[REJECTREQUEST]system busy, start flow control for a while")
            with pytest.raises(SystemBusy):
                slave.parts.state.store.run_bounds()
            await until(lambda: master.parts.state.store.end == 0)

    with_pair(main)
