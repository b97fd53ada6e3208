"""The parts of a broker together: periodic work, notifications, and name servers."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from tests.broker.lives import Lives, bodies, in_virtual_time, make_topic
from tests.broker.registering import Listener, name_server
from tests.broker.running import Client, pulling, settled
from tests.nameserver.talk import broker_names, route

from pocketmq.broker.broker import Broker
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_GROUP
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.api.administration import CreateTopic, ForTopic
from pocketmq.protocol.api.messages import CloneGroupOffset, ForConsumerGroup, ResetOffset
from pocketmq.protocol.bodies.clients import LockedQueues, QueueLocks
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.store.retention import HOUR_MS

NAME_SERVER = Address("10.0.0.1", 9876)
REGISTERED: dict[str, Any] = {"name_servers": (NAME_SERVER,)}
TABLES = "/store/config"


def now() -> float:
    return asyncio.get_running_loop().time()


def saves(lives: Lives, table: str) -> int:
    """How often a table was saved."""
    target = f"{TABLES}/{table}"
    return sum(one.target == target for one in lives.disk.operations if one.kind == "replace")


# what comes round


def test_changed_offsets_are_saved_every_five_seconds() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for _ in range(100):
                await client.sent()
            await client.pull(0)
            await asyncio.sleep(5.1)
            saved = [saves(lives, "consumerOffset.json")]
            for offset in range(100):
                await client.commit(offset)
                await asyncio.sleep(0.2)
            saved.append(saves(lives, "consumerOffset.json"))
            await asyncio.sleep(60)
            saved.append(saves(lives, "consumerOffset.json"))

        assert saved[0] <= 1
        assert saved[1] - saved[0] == 4
        assert saved[2] - saved[1] <= 1

    in_virtual_time(main)


def test_the_progress_of_waiting_messages_is_saved_every_second() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for number in range(20):
                await client.sent(b"%d" % number, properties={"DELAY": "1"})
                await client.sent(b"%d" % number, properties={"TIMER_DELAY_SEC": "1"})
                await asyncio.sleep(0.25)
            await asyncio.sleep(4)
            counts = saves(lives, "delayOffset.json"), saves(lives, "timers.json")
            await asyncio.sleep(60)

            assert all(4 <= count <= 9 for count in counts), counts
            assert (saves(lives, "delayOffset.json"), saves(lives, "timers.json")) == counts

    in_virtual_time(main)


async def members(client: Client, group: str = "G") -> Command:
    return await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ForConsumerGroup(group))


def test_a_client_without_heartbeat_for_two_minutes_is_removed_and_its_connection_closed() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            silent, lively = await lives.client(), await lives.client()
            await silent.beat()
            began = now()
            while silent.peer.is_open and now() < 300:
                await lively.beat("G")
                await silent.offset()
                await asyncio.sleep(5)
            closed_at = now()

            assert 120 <= closed_at - began <= 140
            assert not silent.peer.is_open
            assert (await members(lively)).code == ResponseCode.SUCCESS
            assert [told.code for told in lively.told] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] * 2

    in_virtual_time(main)


def test_a_connection_without_requests_for_two_minutes_is_closed() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            await client.offset()

            await client.peer.wait_lost()

            assert 120 <= now() <= 125
            assert broker.counters.idle == 1

    in_virtual_time(main)


async def locked(client: Client, client_id: str) -> int:
    """How many queues of topic T the client gets a lock on."""
    body = QueueLocks("G", client_id, (MessageQueue("T", "broker-a", 0),)).encode()
    answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body=body)
    return len(LockedQueues.decode(answer.body).locked)


def test_a_lock_that_is_not_renewed_expires_after_a_minute() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            one, other = await lives.client(), await lives.client()
            assert await locked(one, "one") == 1

            await asyncio.sleep(59)
            before = await locked(other, "other")
            await asyncio.sleep(2)
            after = await locked(other, "other")

            assert (before, after) == (0, 1)

    in_virtual_time(main)


def test_log_files_older_than_the_retention_time_are_deleted() -> None:
    async def main(lives: Lives) -> None:
        hour = datetime.fromtimestamp(lives.clock.now_ms() / 1000).hour
        lives.settings = Lives(store={"delete_hours": (hour,)}).settings
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for number in range(40):
                await client.sent(bytes(8_000), queue_id=number % 2)
            facts = broker.parts.state.store.facts
            await asyncio.sleep(300)
            before = facts.log_start
            lives.clock.sleep_ms(96 * HOUR_MS)
            await asyncio.sleep(30)

            assert before == 0
            assert facts.log_start > 0
            assert broker.parts.state.store.min_offset("T", 0) > 0
            assert (await (await lives.client()).pull(0)).code == ResponseCode.PULL_OFFSET_MOVED

    in_virtual_time(main)


def test_the_store_runs_often_under_load_and_rarely_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            ticks: list[float] = []
            tick = broker.parts.state.store.tick

            def counted() -> None:
                ticks.append(now())
                tick()

            monkeypatch.setattr(broker.parts.state.store, "tick", counted)
            await asyncio.sleep(10)
            at_rest = len(ticks)
            await client.sent(properties={"KEYS": "k"})
            await asyncio.sleep(5)
            at_work = len(ticks) - at_rest
            await asyncio.sleep(15)
            ticks.clear()
            await asyncio.sleep(10)

            assert at_rest <= 101
            assert at_work >= 450
            assert len(ticks) <= 101

    in_virtual_time(main)


def test_statistics_are_sampled_without_queries() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for _ in range(120):
                await client.sent()
                await asyncio.sleep(0.5)
            await asyncio.sleep(5)

            assert 1.5 <= broker.parts.state.stats.put_tps("T") <= 2.1

    in_virtual_time(main)


# name servers


def test_a_broker_registers_at_its_start_and_every_half_minute_and_unregisters() -> None:
    async def main(lives: Lives) -> None:
        async with Listener(lives.network.at(NAME_SERVER.host), NAME_SERVER) as listener:
            async with lives.broker():
                await asyncio.sleep(75)

            assert listener.codes == [RequestCode.REGISTER_BROKER] * 4 + [RequestCode.UNREGISTER_BROKER]
            first, *later = listener.times
            assert [round(at - first) for at in later[:3]] == [10, 40, 70]

    in_virtual_time(main, **REGISTERED)


def test_a_new_topic_is_registered_at_once_however_it_was_created() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network
        async with (
            name_server(network.at(NAME_SERVER.host), NAME_SERVER) as (_, asking),
            lives.broker(),
        ):
            client = await lives.client()
            await client.sent(b"one", topic="Auto")
            header = CreateTopic("Mine", "TBW102", 4, 4, 6, "SINGLE_TAG", False)
            await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            await client.beat("G")
            await asyncio.sleep(0.1)

            for topic in ("Auto", "Mine", "%RETRY%G"):
                assert await route(asking, topic) is not None, topic

    in_virtual_time(main, **REGISTERED)


def test_a_late_name_server_soon_gets_a_full_registration() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network
        async with lives.broker():
            started_at = now()
            client = await lives.client()
            await client.sent(b"one", topic="Auto")
            await asyncio.sleep(100)
            async with name_server(network.at(NAME_SERVER.host), NAME_SERVER) as (_, asking):
                await asyncio.sleep(11)
                found = await route(asking, "Auto")

        assert started_at < 7, "a broker serves without its name servers"
        assert found is not None

    in_virtual_time(main, **REGISTERED)


def test_a_topic_without_a_row_after_a_crash_is_registered() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network
        async with lives.broker():
            client = await lives.client()
            with lives.disk.stall("sync", "*/topics.json.tmp"):
                await client.sent(b"one", topic="New")
                lives.crash()
        async with name_server(network.at(NAME_SERVER.host), NAME_SERVER) as (_, asking), lives.broker():
            assert await route(asking, "New") is not None

    in_virtual_time(main, **REGISTERED)


def test_two_brokers_behind_one_name_server_are_both_in_the_routes() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network
        other = Lives(broker_name="broker-b", port=10921, **REGISTERED)
        other.network = network
        async with name_server(network.at(NAME_SERVER.host), NAME_SERVER) as (_, asking):
            async with lives.broker() as one, other.broker() as two:
                for broker in (one, two):
                    await (await lives.client(broker.address)).sent(b"one")
                await asyncio.sleep(0.1)
                found = await route(asking, "T")
                names = await broker_names(asking)
            after = await route(asking, "T")

        assert names == {"broker-a", "broker-b"}
        assert found is not None
        assert {data.broker_name: data.broker_addrs for data in found.broker_datas} == {
            "broker-a": {0: "127.0.0.1:10911"},
            "broker-b": {0: "127.0.0.1:10921"},
        }
        assert after is None

    in_virtual_time(main, **REGISTERED)


def test_of_two_brokers_with_one_name_the_routes_have_the_last_and_both_serve() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network
        other = Lives(port=10921, **REGISTERED)
        other.network = network
        async with (
            name_server(network.at(NAME_SERVER.host), NAME_SERVER) as (_, asking),
            lives.broker() as one,
            other.broker() as two,
        ):
            clients = {broker: await lives.client(broker.address) for broker in (one, two)}
            seen: set[str] = set()
            for _ in range(60):
                for client in clients.values():
                    await client.sent()
                found = await route(asking, "T")
                assert found is not None
                seen |= {data.broker_addrs[0] for data in found.broker_datas}
                await asyncio.sleep(2)

            assert "127.0.0.1:10921" in seen <= {"127.0.0.1:10911", "127.0.0.1:10921"}
            assert [len(bodies(broker)) for broker in (one, two)] == [60, 60]

    in_virtual_time(main, **REGISTERED)


# notifications


def test_deleting_a_topic_ends_the_wait_of_its_pulls() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client, administrator = await lives.client(), await lives.client()
            held = asyncio.ensure_future(client.pull(0, wait_ms=60_000))
            await settled()

            await administrator.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))

            assert (await held).code == ResponseCode.TOPIC_NOT_EXIST
            assert now() < 1

    in_virtual_time(main)


def test_a_reset_ends_the_wait_of_pulls_and_redirects_them() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client, administrator = await lives.client(), await lives.client()
            for _ in range(3):
                await client.sent()
            held = asyncio.ensure_future(client.pull(3, wait_ms=60_000))
            await settled()

            header = ResetOffset("G", "T", 0, True, 0, 1)
            answer = await administrator.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

            assert answer.code == ResponseCode.SUCCESS, answer.remark
            moved = await held
            assert moved.code == ResponseCode.PULL_OFFSET_MOVED
            assert moved.ext is not None
            assert moved.ext["nextBeginOffset"] == "1"

    in_virtual_time(main)


def test_a_lost_connection_loses_its_held_pulls_and_memberships() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client, other = await lives.client(), await lives.client()
            await client.beat("G")
            held = asyncio.ensure_future(client.pull(0, wait_ms=60_000))
            await settled()
            assert len(broker.parts.state.arrivals) == 1

            client.peer.connection.abort()
            await settled()

            with pytest.raises(PocketMQError):
                await held
            assert len(broker.parts.state.arrivals) == 0
            assert (await members(other)).code != ResponseCode.SUCCESS

    in_virtual_time(main)


# the group of transactions


def moves_of_own_group() -> list[tuple[RequestCode, Fields]]:
    """Every request that could move the offsets of open transactions."""
    flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
    return [
        (RequestCode.PULL_MESSAGE, pulling(group=TRANSACTION_CHECK_GROUP, topic=HALF_TOPIC, flags=flags, commit=9)),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffset(TRANSACTION_CHECK_GROUP, HALF_TOPIC, -1, True)),
        (RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffset("G", TRANSACTION_CHECK_GROUP, HALF_TOPIC)),
    ]


def progress(broker: Broker) -> list[int | None]:
    topics = (HALF_TOPIC, OP_HALF_TOPIC)
    return [broker.parts.state.offsets.stored(TRANSACTION_CHECK_GROUP, topic, 0) for topic in topics]


def test_clients_cannot_change_the_offsets_of_transactions() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            broker.parts.state.offsets.commit("G", HALF_TOPIC, 0, 7)
            before = progress(broker)

            answers = [await client.commit(9, TRANSACTION_CHECK_GROUP, HALF_TOPIC)]
            answers += [await client.ask(code, header) for code, header in moves_of_own_group()]

            assert [answer.code for answer in answers] == [ResponseCode.NO_PERMISSION] * 4
            assert progress(broker) == before

    in_virtual_time(main)
