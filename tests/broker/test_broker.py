"""Start and stop of a broker: a failed start leaves nothing running, and a stop completes accepted work."""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.lives import BROKER, Lives, bodies, in_virtual_time, make_topic
from tests.broker.running import pulling, request, sending, settled
from tests.net.talk import until

from pocketmq.broker.broker import Broker
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import (
    ConnectFailed,
    ConnectionLost,
    ListenFailed,
    PocketMQError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    SyncFailed,
    WrongState,
)
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.net.server import Server
from pocketmq.protocol.api.administration import CreateTopic
from pocketmq.protocol.command import Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing.disk.faults import Call

VIP = Address(BROKER.host, BROKER.port - 2)
NAME_SERVER = Address("10.0.0.1", 9876)
FIRST_LOG_FILE = "*/commitlog/00000000000000000000"
SYNC = {"flush": FlushMode.SYNC}

Breaking = Callable[[Lives], Coroutine[Any, Any, object]]


def create_topic(name: str) -> Command:
    header = CreateTopic(name, "TBW102", 4, 4, 6, "SINGLE_TAG", False)
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pocketmq")]


def timers() -> list[asyncio.TimerHandle]:
    """What the loop still has to wake up for."""
    scheduled: list[asyncio.TimerHandle] = getattr(asyncio.get_running_loop(), "_scheduled")  # noqa: B009
    return [timer for timer in scheduled if not timer.cancelled()]


async def assert_nothing_is_left(lives: Lives) -> None:
    await settled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert own_threads() == []
    assert timers() == []
    assert lives.network.connections == {}
    with pytest.raises(ConnectFailed):
        await lives.client()
    lives.disk.make_dir(lives.settings.store.folder)
    lock = lives.disk.open(lives.settings.store.folder / "lock", create=True)
    assert lock.lock()
    lock.close()


# starting


def test_a_started_broker_serves_and_a_stopped_one_leaves_nothing_running() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client(broker.address)
            await client.sent(b"one")
            assert bodies(broker) == [b"one"]

        await client.peer.wait_lost()
        await assert_nothing_is_left(lives)

    in_virtual_time(main, vip_channel=True)


def test_a_broker_can_be_started_only_once() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            with pytest.raises(WrongState, match="once"):
                await broker.start()

        with pytest.raises(WrongState, match="once"):
            await broker.start()

    in_virtual_time(main)


def test_the_parts_of_a_broker_are_not_available_before_its_start() -> None:
    async def main(lives: Lives) -> None:
        broker = lives.new_broker()

        for ask in (lambda: broker.parts, lambda: broker.address, lambda: broker.counters):
            with pytest.raises(WrongState, match="is not started"):
                ask()

    in_virtual_time(main)


def test_port_0_becomes_the_chosen_port() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker(port=0) as broker:
            assert broker.address.port > 0
            assert broker.parts.state.settings.now.port == broker.address.port
            assert broker.advertised_address == broker.address

    in_virtual_time(main)


async def take_port(lives: Lives) -> None:
    await lives.network.at(BROKER.host).listen(asyncio.Protocol, BROKER)


async def damage_topics(lives: Lives) -> None:
    await damage(lives, "topics.json")


async def damage_delays(lives: Lives) -> None:
    await damage(lives, "delayOffset.json")


async def damage(lives: Lives, table: str) -> None:
    folder = lives.settings.store.folder / "config"
    lives.disk.make_dir(folder)
    with lives.disk.open(folder / table, create=True) as file:
        file.write_at(0, b"{")


async def refuse_folder(lives: Lives) -> None:
    lives.disk.fail("make_dir", errno.EACCES, times=None)


async def refuse_log_files(lives: Lives) -> None:
    lives.disk.fail("create", errno.ENOSPC, "*/commitlog/*", times=None)


@pytest.mark.parametrize(
    ("breaking", "error"),
    [
        (take_port, ListenFailed),
        (damage_topics, StoreDamaged),
        (damage_delays, StoreDamaged),
        (refuse_folder, StoreError),
        (refuse_log_files, StoreFull),
    ],
)
def test_a_failed_start_leaves_nothing_running(breaking: Breaking, error: type[PocketMQError]) -> None:
    async def main(lives: Lives) -> None:
        await breaking(lives)
        broker = lives.new_broker()

        with pytest.raises(error):
            await broker.start()

        lives.disk.heal()
        lives.network._listeners.clear()
        await assert_nothing_is_left(lives)
        await broker.stop()

    in_virtual_time(main, vip_channel=True)


def test_a_store_in_use_by_another_broker_is_not_touched() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            second = lives.new_broker(port=10921)

            with pytest.raises(StoreLocked, match="in use"):
                await second.start()

            await second.stop()
            client = await lives.client()
            await client.sent(b"one")
            assert bodies(broker) == [b"one"]
        await client.peer.wait_lost()
        await assert_nothing_is_left(lives)

    in_virtual_time(main)


def test_a_failed_start_can_be_repeated_by_another_broker() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            await (await lives.client()).sent(b"one")
        taken = await lives.network.at(BROKER.host).listen(asyncio.Protocol, BROKER)
        with pytest.raises(ListenFailed):
            await lives.new_broker().start()
        taken.close()

        async with lives.broker() as broker:
            assert bodies(broker) == [b"one"]

    in_virtual_time(main)


def test_a_cancelled_start_leaves_nothing_running() -> None:
    async def main(lives: Lives) -> None:
        async def never(peer: Peer, command: Command) -> None:
            await asyncio.sleep(1_000)

        async with Server(NAME_SERVER, serve=never, network=lives.network.at(NAME_SERVER.host)) as silent:
            broker = lives.new_broker(name_servers=(NAME_SERVER,))

            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await broker.start()

            assert len(silent.peers) <= 1
        await assert_nothing_is_left(lives)

    in_virtual_time(main)


# the VIP channel


def test_the_vip_channel_is_two_ports_lower_and_serves_the_same() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            usual, vip = await lives.client(), await lives.client(VIP)
            make_topic(broker)
            held = asyncio.ensure_future(usual.pull(0, wait_ms=10_000))
            await settled()

            await vip.sent(b"one")

            assert (await held).code == ResponseCode.SUCCESS
            assert asyncio.get_running_loop().time() < 1
        for client in (usual, vip):
            await client.peer.wait_lost()

    in_virtual_time(main, vip_channel=True)


def test_a_used_vip_port_does_not_fail_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lives: Lives) -> None:
        await lives.network.at(BROKER.host).listen(asyncio.Protocol, VIP)

        async with lives.broker() as broker:
            await (await lives.client()).sent(b"one")
            assert bodies(broker) == [b"one"]

    with caplog.at_level(logging.INFO, "pocketmq.broker"):
        in_virtual_time(main, vip_channel=True)

    assert "VIP channel is off" in caplog.text


@pytest.mark.parametrize("settings", [{"vip_channel": False}, {"vip_channel": True, "port": 2}])
def test_without_a_vip_channel_only_one_port_is_open(settings: dict[str, Any]) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            assert list(lives.network._listeners) == [broker.address]

    in_virtual_time(main, **settings)


# stopping


def test_a_waiting_pull_is_answered_when_the_broker_stops() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(b"one")
            held = asyncio.ensure_future(client.pull(1, wait_ms=60_000))
            await settled()
            stopped_at = asyncio.get_running_loop().time()

        took_s = asyncio.get_running_loop().time() - stopped_at
        assert (await held).code == ResponseCode.PULL_NOT_FOUND
        assert took_s < 1

    in_virtual_time(main)


def test_sends_that_wait_for_the_disk_are_answered_before_their_connections_are_closed() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            stall = lives.disk.stall("sync", FIRST_LOG_FILE)
            waiting = [asyncio.ensure_future(client.send(b"%d" % number)) for number in range(3)]
            await until(lambda: stall.waiting)

            stopping = asyncio.ensure_future(broker.stop())
            await asyncio.sleep(0.1)
            late = asyncio.ensure_future(client.send(b"late"))
            await asyncio.sleep(0.1)
            stall.release()
            await stopping

        assert [(await answer).code for answer in waiting] == [ResponseCode.SUCCESS] * 3
        assert (await late).code == ResponseCode.GO_AWAY

    in_virtual_time(main, store=SYNC)


def test_a_hanging_disk_delays_a_stop_up_to_the_limit_and_is_logged() -> None:
    async def main(lives: Lives) -> None:
        broker = lives.new_broker()
        await broker.start()
        await lives.ready(broker)
        began = asyncio.get_running_loop().time()
        make_topic(broker)
        client = await lives.client()
        stall = lives.disk.stall("sync", FIRST_LOG_FILE, times=None)
        waiting = asyncio.ensure_future(client.send(b"one"))
        await until(lambda: stall.waiting)

        with pytest.raises(SyncFailed, match="the disk did not respond"):
            await broker.stop()

        assert asyncio.get_running_loop().time() - began < 2
        with pytest.raises(ConnectionLost):
            await waiting
        stall.release()
        await until(lambda: not own_threads())
        async with lives.broker() as broker:
            assert bodies(broker) == [b"one"]

    in_virtual_time(main, store=SYNC | {"close_timeout_ms": 50})


def test_a_running_request_is_completed_and_a_new_one_gets_go_away() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            stall = lives.disk.stall("sync", "*/topics.json.tmp")
            served = asyncio.ensure_future(client.peer.call(create_topic("Mine")))
            await until(lambda: stall.waiting)

            stopping = asyncio.ensure_future(broker.stop())
            await asyncio.sleep(0.1)
            refused = [await client.peer.call(create_topic("Late")), await client.send(b"late")]
            stall.release()
            await stopping

        assert (await served).code == ResponseCode.SUCCESS
        assert [answer.code for answer in refused] == [ResponseCode.GO_AWAY] * 2
        async with lives.broker() as broker:
            assert "Mine" in broker.parts.state.topics
            assert "Late" not in broker.parts.state.topics

    in_virtual_time(main)


def test_a_request_longer_than_the_stop_timeout_ends_with_its_connection() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            stall = lives.disk.stall("sync", "*/topics.json.tmp")
            served = asyncio.ensure_future(client.peer.call(create_topic("Mine")))
            await until(lambda: stall.waiting)

            began = asyncio.get_running_loop().time()
            stopping = asyncio.ensure_future(broker.stop())
            with pytest.raises(ConnectionLost):
                await served
            took_s = asyncio.get_running_loop().time() - began
            stall.release()
            await stopping

        assert took_s < 1
        async with lives.broker() as broker:
            assert "Mine" in broker.parts.state.topics

    in_virtual_time(main)


def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    async def main(lives: Lives) -> None:
        broker = lives.new_broker()
        await broker.stop()
        await broker.start()
        await (await lives.client()).sent(b"one")

        await asyncio.gather(broker.stop(), broker.stop())
        await broker.stop()

        await assert_nothing_is_left(lives)

    in_virtual_time(main)


def test_a_stop_continues_when_its_caller_is_cancelled() -> None:
    async def main(lives: Lives) -> None:
        broker = lives.new_broker()
        await broker.start()
        client = await lives.client()
        stall = lives.disk.stall("sync", "*/topics.json.tmp")
        asking = asyncio.ensure_future(client.peer.call(create_topic("Mine")))
        await until(lambda: stall.waiting)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await broker.stop()
        stall.release()
        await broker.stop()

        assert (await asking).code == ResponseCode.SUCCESS
        await assert_nothing_is_left(lives)

    in_virtual_time(main)


def test_a_broker_stopped_during_its_start_stops_afterwards() -> None:
    async def main(lives: Lives) -> None:
        async def slowly(peer: Peer, command: Command) -> Command:
            await asyncio.sleep(2)
            return command.reply()

        async with Server(NAME_SERVER, serve=slowly, network=lives.network.at(NAME_SERVER.host)):
            broker = lives.new_broker(name_servers=(NAME_SERVER,))
            starting = asyncio.ensure_future(broker.start())
            await asyncio.sleep(1)

            await broker.stop()

            assert starting.done()
        await assert_nothing_is_left(lives)

    in_virtual_time(main)


def test_a_failed_step_of_the_shutdown_is_logged_and_the_others_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(lives: Lives) -> None:
        async def fail() -> None:
            raise RuntimeError("a fault of ours")

        async with lives.broker() as broker:
            make_topic(broker, "Mine")
            monkeypatch.setattr(broker.parts.registration, "stop", fail)
            broker.parts.state.offsets.commit("G", "Mine", 0, 0)

        async with lives.broker() as broker:
            assert "Mine" in broker.parts.state.topics
            assert broker.parts.state.offsets.stored("G", "Mine", 0) == 0

    in_virtual_time(main)
    assert "A step of the shutdown failed" in caplog.text
    assert "a fault of ours" in caplog.text


# a disk that fails


async def a_life(lives: Lives) -> Broker:
    """A broker with changes to save in each of its files; all requests are acknowledged."""
    broker = lives.new_broker()
    await broker.start()
    await lives.ready(broker)
    client = await lives.client()
    for number in range(3):
        await client.sent(b"%d" % number)
    await client.sent(b"later", properties={"DELAY": "1"})
    await client.sent(b"timed", properties={"TIMER_DELAY_SEC": "1"})
    assert (await client.peer.call(create_topic("Mine"))).code == ResponseCode.SUCCESS
    assert (await client.pull(0)).code == ResponseCode.SUCCESS
    assert (await client.commit(2)).code == ResponseCode.SUCCESS
    return broker


async def assert_nothing_acknowledged_is_lost(lives: Lives) -> None:
    async with lives.broker() as broker:
        parts = broker.parts
        await asyncio.sleep(3)
        assert bodies(broker)[:3] == [b"0", b"1", b"2"]
        assert set(bodies(broker)[3:]) == {b"later", b"timed"}
        assert "Mine" in parts.state.topics
        assert parts.state.offsets.stored("G", "T", 0) in (None, 2)


def told(caplog: pytest.LogCaptureFixture) -> bool:
    return any(record.levelno >= logging.WARNING and record.name.startswith("pocketmq") for record in caplog.records)


@pytest.mark.parametrize("call", ["open", "create", "write", "sync", "replace", "sync_dir", "unlink", "truncate"])
def test_a_disk_failure_at_any_point_of_a_stop_is_logged_and_loses_nothing(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop_with_failure(lives: Lives, nth: int) -> bool:
        """Whether such a call exists to fail."""
        broker = await a_life(lives)
        fault = lives.disk.fail(call, errno.EIO, nth=nth)
        caplog.clear()
        raised = False
        try:
            await broker.stop()
        except StoreError:
            raised = True
        fault.heal()
        assert own_threads() == []
        if fault.hits:
            assert raised or told(caplog), f"the {call} number {nth} failed without an error"
        lives.crash()
        await assert_nothing_acknowledged_is_lost(lives)
        return fault.hits > 0

    nth = 1
    while in_virtual_time(lambda lives, nth=nth: stop_with_failure(lives, nth), store=SYNC):  # type: ignore[misc]
        nth += 1
    assert nth > 1, f"a stop makes no {call}"


@pytest.mark.parametrize("survives", ["everything", "nothing"])
def test_tables_that_the_disk_rejected_are_saved_when_it_accepts_writes(
    survives: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            await client.sent(b"one", topic="Auto")
            await asyncio.sleep(6)
            refusal = lives.disk.fail("write", errno.ENOSPC, "*/config/*.tmp", times=None)

            assert (await client.commit(1, topic="Auto")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            await client.pull(0, topic="Auto")
            assert (await client.commit(1, topic="Auto")).code == ResponseCode.SUCCESS
            refused = await client.peer.call(create_topic("Mine"))
            await asyncio.sleep(20)
            hits = refusal.hits
            refusal.heal()
            await asyncio.sleep(6)

            assert refused.code != ResponseCode.SUCCESS
            assert hits >= 4
            lives.crash(survives)  # type: ignore[arg-type]
        async with lives.broker() as broker:
            assert broker.parts.state.offsets.stored("G", "Auto", 0) == 1
            assert {"Auto", "Mine"} <= {topic.topic_name for topic in broker.parts.state.topics}

    in_virtual_time(main)
    failures = [record.message for record in caplog.records if "is retried" in record.message]
    assert len(failures) == 3, "each file is logged once"


def test_all_pipelined_requests_of_a_stopped_connection_are_answered() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            asked = [
                asyncio.ensure_future(client.ask(RequestCode.SEND_MESSAGE_V2, sending(), b"%d" % number))
                for number in range(50)
            ]
            asked += [asyncio.ensure_future(client.ask(RequestCode.PULL_MESSAGE, pulling(99, wait_ms=9_000)))]
            await asyncio.sleep(0.0015)

        answers = [await one for one in asked]
        accepted = [answer.code for answer in answers[:50]].count(ResponseCode.SUCCESS)
        async with lives.broker() as broker:
            assert bodies(broker) == [b"%d" % number for number in range(accepted)]

    in_virtual_time(main)
