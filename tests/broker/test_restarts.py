"""Restarts of a broker: after a stop everything continues, after a crash nothing that was acknowledged is missing."""

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.broker.lives import Lives, bodies, in_virtual_time, lose_what_was_consumed, make_topic, stored
from tests.broker.running import Client, pulling
from tests.net.talk import until

from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import TransactionSettings
from pocketmq.codes import RequestCode, ResponseCode, SysFlag, TransactionState
from pocketmq.protocol.api.administration import CreateTopic, ForTopic, UpdateGroupForbidden
from pocketmq.protocol.api.messages import CheckTransactionState, EndTransaction, QueryMessage
from pocketmq.protocol.bodies.clients import HeartbeatData, ProducerData, SubscriptionGroupConfig
from pocketmq.protocol.command import Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing import CrashPoint, FaultyFiles
from pocketmq.testing.disk.model import Survives

POWER_LOSSES = 40
SYNC = {"flush": FlushMode.SYNC}
HALF = {"TRAN_MSG": "true", "PGROUP": "PG"}
QUICK = TransactionSettings(check_interval_ms=1_000, timeout_ms=2_000, op_batch_ms=500)

ends = pytest.mark.parametrize("crashes", [False, True], ids=["stop", "kill"])


async def done(client: Client, code: RequestCode, header: Any = None, body: bytes = b"") -> Command:
    answer = await client.ask(code, header, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def now() -> float:
    return asyncio.get_running_loop().time()


# tables


@ends
def test_topics_groups_and_forbidden_pairs_are_restored(crashes: bool) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            header = CreateTopic("Mine", "TBW102", 3, 5, 6, "SINGLE_TAG", True)
            await done(client, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            group = SubscriptionGroupConfig("G", retry_max_times=3)
            await done(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
            await done(client, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbidden("G", "Mine", False))
            topics, groups = broker.parts.state.topics.snapshot(), broker.parts.state.groups.snapshot()
            if crashes:
                lives.crash("nothing")

        async with lives.broker() as broker:
            assert broker.parts.state.topics.snapshot() == topics
            assert broker.parts.state.groups.snapshot() == groups
            row = broker.parts.state.topics.require("Mine")
            assert (row.read_queue_nums, row.write_queue_nums, row.order) == (3, 5, True)

    in_virtual_time(main)


def test_offsets_are_restored_after_a_stop() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for _ in range(5):
                await client.sent()
            await client.pull(0)
            await client.commit(5)

        async with lives.broker():
            client = await lives.client()
            answer = await client.offset()

        assert answer.ext == {"offset": "5"}

    in_virtual_time(main)


def test_a_crash_loses_only_commits_of_the_last_interval() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for _ in range(100):
                await client.sent()
            await client.pull(0)
            committed: dict[int, float] = {}
            for offset in range(1, 60):
                await asyncio.sleep(0.25)
                await client.commit(offset)
                committed[offset] = now()
            crashed_at = now()
            lives.crash("nothing")

        async with lives.broker() as broker:
            kept = broker.parts.state.offsets.stored("G", "T", 0)

        assert kept is not None
        assert crashed_at - committed[kept] <= 5.5
        assert kept < 59

    in_virtual_time(main)


def test_queues_are_restored_and_continue_at_their_end() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for number in range(150):
                await client.sent(b"%d" % number, queue_id=number % 2, properties={"KEYS": f"k{number}"})
            before = await done(client, RequestCode.GET_TOPIC_STATS_INFO, ForTopic("T"))

        async with lives.broker() as broker:
            client = await lives.client()
            after = await done(client, RequestCode.GET_TOPIC_STATS_INFO, ForTopic("T"))
            next_one = await client.sent(b"150")
            by_key = await done(client, RequestCode.QUERY_MESSAGE, QueryMessage("T", "k77", 8, 0, 2**62))

            assert after.body == before.body
            assert next_one.ext is not None
            assert next_one.ext["queueOffset"] == "75"
            assert bodies(broker) == [b"%d" % number for number in range(0, 151, 2)]
            assert by_key.body

    in_virtual_time(main)


# topics that a crash kept from being saved


def test_a_topic_acknowledged_just_before_a_crash_is_restored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker():
            client = await lives.client()
            with lives.disk.stall("sync", "*/topics.json.tmp"):
                await client.sent(b"one", topic="New", queue_id=2)
                lives.crash("nothing")
        async with lives.broker() as broker:
            client = await lives.client()
            row = broker.parts.state.topics.require("New")
            answer = await client.pull(0, topic="New", queue_id=2)

            assert (row.read_queue_nums, row.write_queue_nums, row.perm) == (4, 4, 6)
            assert answer.code == ResponseCode.SUCCESS
            await asyncio.sleep(6)
            lives.crash("nothing")
        async with lives.broker() as broker:
            assert broker.parts.state.topics.require("New") == row

    with caplog.at_level(logging.WARNING, "pocketmq.broker"):
        in_virtual_time(main, store=SYNC)
    assert [record.message for record in caplog.records if "Created topics again" in record.message] == [
        "Created topics again that have messages but no table entry: New"
    ]


@ends
def test_a_deleted_topic_stays_deleted(crashes: bool) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker():
            client = await lives.client()
            await client.sent(b"one", topic="Old")
            await client.sent(b"one", topic="Kept")
            await done(client, RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("Old"))
            if crashes:
                lives.crash("nothing")

        async with lives.broker() as broker:
            assert "Old" not in broker.parts.state.topics
            assert "Kept" in broker.parts.state.topics
            assert broker.parts.state.store.max_offset("Old", 0) == 0

    in_virtual_time(main, store=SYNC)


waits = pytest.mark.parametrize("wish", [{"DELAY": "2"}, {"TIMER_DELAY_SEC": "5"}], ids=["delayed", "timed"])


@ends
@waits
def test_a_deleted_topic_stays_deleted_when_a_message_to_it_becomes_due(
    wish: dict[str, str], crashes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker():
            client = await lives.client()
            await client.sent(b"later", topic="Old", properties=wish)
            await client.sent(b"later", topic="Kept", properties=wish)
            await done(client, RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("Old"))
            if crashes:
                lives.crash("nothing")

        async with lives.broker() as broker:
            await until(lambda: bool(bodies(broker, topic="Kept")))
            assert broker.parts.delays.undeliverable + broker.parts.timers.undeliverable == 1
            assert "its topic Old was deleted while it waited" in caplog.text
            if crashes:
                lives.crash("nothing")

        async with lives.broker() as broker:
            assert "Old" not in broker.parts.state.topics
            assert "Old" not in broker.parts.state.store.topics()
            assert "Kept" in broker.parts.state.topics

    in_virtual_time(main, store=SYNC)


@waits
def test_a_recreated_topic_gets_due_messages_as_with_apache(wish: dict[str, str]) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await lives.client()
            await client.sent(b"later", properties=wish)
            await done(client, RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
            make_topic(broker)

            await until(lambda: bodies(broker) == [b"later"])

    in_virtual_time(main, store=SYNC)


@waits
def test_a_lost_topic_that_was_not_deleted_gets_due_messages(wish: dict[str, str]) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker():
            client = await lives.client()
            await client.sent(b"before", topic="T")
            await done(client, RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
            with lives.disk.stall("sync", "*/topics.json.tmp"):
                await client.sent(b"later", topic="T", properties=wish)
                lives.crash("nothing")

        async with lives.broker() as broker:
            await until(lambda: bodies(broker) == [b"later"])

        async with lives.broker() as broker:
            assert "T" in broker.parts.state.topics

    in_virtual_time(main, store=SYNC)


def test_a_recreated_topic_has_only_its_new_messages() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker():
            client = await lives.client()
            await client.sent(b"before", topic="T")
            await done(client, RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic("T"))
            with lives.disk.stall("sync", "*/topics.json.tmp"):
                await client.sent(b"since", topic="T")
                lives.crash("nothing")

        async with lives.broker() as broker:
            assert "T" in broker.parts.state.topics
            assert bodies(broker) == [b"since"]

    in_virtual_time(main, store=SYNC)


def test_a_group_ahead_after_a_power_loss_gets_the_new_messages() -> None:
    async def main(lives: Lives) -> None:
        await lose_what_was_consumed(lives)

        async with lives.broker() as broker:
            client = await lives.client()
            assert bodies(broker) == [b"kept"]
            for number in range(20):
                await client.sent(b"new %d" % number)
            offset = await client.offset()

        assert offset.ext == {"offset": "1"}

    in_virtual_time(main)


# what waits


@ends
@waits
def test_a_delayed_message_is_delivered_after_a_restart_and_not_early(wish: dict[str, str], crashes: bool) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(b"later", properties=wish)
            sent_ms = lives.clock.now_ms()
            await asyncio.sleep(2)
            if crashes:
                lives.crash("nothing")
        assert bodies(broker) == []

        async with lives.broker() as broker:
            client = await lives.client()
            make_topic(broker)
            held = await client.pull(0, wait_ms=20_000)
            arrived_ms = lives.clock.now_ms()
            await asyncio.sleep(10)

            assert held.code == ResponseCode.SUCCESS
            assert 5_000 <= arrived_ms - sent_ms <= 7_000
            assert bodies(broker) == [b"later"]

    in_virtual_time(main, store=SYNC)


@pytest.mark.parametrize("wish", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}], ids=["delayed", "timed"])
def test_a_delivered_message_is_not_repeated_after_a_stop(wish: dict[str, str]) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for number in range(5):
                await client.sent(b"%d" % number, properties=wish)
            await until(lambda: len(bodies(broker)) == 5)

        async with lives.broker() as broker:
            await asyncio.sleep(10)
            assert sorted(bodies(broker)) == [b"%d" % number for number in range(5)]

    in_virtual_time(main)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("survives", ["everything", "any", "nothing"])
def test_delayed_messages_are_delivered_at_least_once_after_a_kill_at_any_time(seed: int, survives: Survives) -> None:
    random = Random(seed)

    async def main(lives: Lives) -> None:
        due: dict[bytes, int] = {}
        for life in range(4):
            async with lives.broker() as broker:
                make_topic(broker)
                client = await lives.client()
                for number in range(6):
                    body, wait_s = b"%d.%d" % (life, number), random.choice((1, 5))
                    wish = random.choice(({"DELAY": {1: "1", 5: "2"}[wait_s]}, {"TIMER_DELAY_SEC": str(wait_s)}))
                    await client.sent(body, properties=wish)
                    due[body] = lives.clock.now_ms() - 10 + wait_s * 1000
                    await asyncio.sleep(random.random())
                lives.crash(survives, seed)
        async with lives.broker() as broker:
            await asyncio.sleep(20)
            arrived = stored(broker)

        assert {message.body for message in arrived} == due.keys()
        assert all(message.store_ms >= due[message.body] for message in arrived)

    in_virtual_time(main, store=SYNC)


# transactions


class Producer:
    """A producer of transactions. Asked about one, it commits, unless it has rolled it back before."""

    def __init__(self, client: Client, rolled_back: Collection[bytes] = ()) -> None:
        self.client = client
        self.rolled_back = {body.decode() for body in rolled_back}

    async def beat(self) -> None:
        heartbeat = HeartbeatData("producer", (ProducerData("PG"),))
        await done(self.client, RequestCode.HEART_BEAT, body=heartbeat.encode())

    async def send_half(self, broker: Broker, body: bytes) -> EndTransaction:
        """Send a half message; the decision that commits it."""
        answer = await self.client.sent(body, properties=HALF, key=body.decode(), sys_flag=SysFlag.TRANSACTION_PREPARED)
        assert answer.ext is not None
        offset_id = answer.ext["msgId"]
        return EndTransaction(
            "PG", int(answer.ext["queueOffset"]), int(offset_id[-16:], 16), TransactionState.COMMIT, body.decode()
        )

    async def end(self, decision: EndTransaction, state: TransactionState = TransactionState.COMMIT) -> Command:
        decision.commit_or_rollback = state
        return await self.client.ask(RequestCode.END_TRANSACTION, decision)

    async def decide_what_is_asked(self) -> int:
        """Answer the check-backs that arrived; returns their number."""
        asked = [told for told in self.client.told if told.code == RequestCode.CHECK_TRANSACTION_STATE]
        self.client.told.clear()
        for question in asked:
            header = CheckTransactionState.decode(question.ext)
            key = header.msg_id or ""
            state = TransactionState.ROLLBACK if key in self.rolled_back else TransactionState.COMMIT
            decision = EndTransaction(
                "PG", header.tran_state_table_offset, header.commit_log_offset, state, key, from_transaction_check=True
            )
            await done(self.client, RequestCode.END_TRANSACTION, decision)
        return len(asked)


@ends
def test_an_undecided_transaction_is_checked_after_a_restart(crashes: bool) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            producer = Producer(await lives.client())
            await producer.send_half(broker, b"open")
            decided = [await producer.send_half(broker, body) for body in (b"kept", b"dropped")]
            assert (await producer.end(decided[0])).code == ResponseCode.SUCCESS
            assert (await producer.end(decided[1], TransactionState.ROLLBACK)).code == ResponseCode.SUCCESS
            await asyncio.sleep(1)
            assert bodies(broker) == [b"kept"]
            if crashes:
                lives.crash("nothing")

        async with lives.broker() as broker:
            make_topic(broker)
            producer = Producer(await lives.client(), rolled_back=[b"dropped"])
            await producer.beat()
            await asyncio.sleep(5)
            asked = await producer.decide_what_is_asked()
            await asyncio.sleep(20)
            await producer.decide_what_is_asked()

            assert asked >= 1
            assert bodies(broker) == [b"kept", b"open"]

    in_virtual_time(main, store=SYNC, transaction=QUICK)


def test_a_decision_may_arrive_after_a_restart() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            decision = await Producer(await lives.client()).send_half(broker, b"half")
            lives.crash()

        async with lives.broker() as broker:
            make_topic(broker)
            producer = Producer(await lives.client())
            first = await producer.end(decision)
            second = await producer.end(decision)
            other = await producer.end(decision, TransactionState.ROLLBACK)

            assert [first.code, second.code] == [ResponseCode.SUCCESS] * 2
            assert other.code == ResponseCode.ILLEGAL_OPERATION
            assert bodies(broker) == [b"half"]

    in_virtual_time(main, store=SYNC)


# any moment


class Promised(NamedTuple):
    """What had been acknowledged when the disk was at this position: messages, and topics of an administrator."""

    position: int
    sent: tuple[bytes, ...] = ()
    topics: tuple[str, ...] = ()


async def live_and_promise(lives: Lives) -> list[Promised]:
    """A run in which messages are sent and topics created; the recorded acknowledgements."""
    promised = [Promised(0)]
    async with lives.broker():
        client = await lives.client()
        for number in range(12):
            body, name = b"%d" % number, f"Mine{number}"
            _, sent, topics = promised[-1]
            await client.sent(body, topic="Auto")
            promised.append(Promised(lives.disk.position, (*sent, body), topics))
            if number % 3 == 0:
                header = CreateTopic(name, "TBW102", 2, 2, 6, "SINGLE_TAG", False)
                await done(client, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
                promised.append(Promised(lives.disk.position, (*sent, body), (*topics, name)))
            if number == 6:
                await asyncio.sleep(11)
    return promised


async def assert_kept(lives: Lives, promised: Promised) -> None:
    async with lives.broker() as broker:
        found = bodies(broker, "Auto")
        assert found[: len(promised.sent)] == list(promised.sent)
        assert not found or "Auto" in broker.parts.state.topics
        assert set(promised.topics) <= {topic.topic_name for topic in broker.parts.state.topics}
        await (await lives.client()).sent(b"next", topic="Auto")
        assert bodies(broker, "Auto") == [*found, b"next"]


def test_acknowledged_messages_survive_a_power_loss_at_any_moment() -> None:
    async def live(lives: Lives) -> tuple[FaultyFiles, list[Promised]]:
        return lives.disk, await live_and_promise(lives)

    async def check(lives: Lives, point: CrashPoint, promised: Promised) -> None:
        lives.disk = point.files
        await assert_kept(lives, promised)

    disk, promised = in_virtual_time(live, store=SYNC)
    points = list(disk.crash_points(seed=5))
    for point in points[:: max(1, len(points) // POWER_LOSSES)]:
        kept = [one for one in promised if one.position <= point.position][-1]
        in_virtual_time(partial(check, point=point, promised=kept), store=SYNC)


def test_many_restarts_keep_all_data() -> None:
    async def main(lives: Lives) -> None:
        expected: list[bytes] = []
        for life in range(20):
            async with lives.broker() as broker:
                client = await lives.client()
                assert bodies(broker) == expected
                for number in range(life % 4 + 1):
                    expected.append(b"%d.%d" % (life, number))
                    await client.sent(expected[-1])
                answer = await client.ask(RequestCode.PULL_MESSAGE, pulling(len(expected), commit=len(expected)))
                assert answer.code == ResponseCode.PULL_NOT_FOUND
                if life % 3 == 0:
                    lives.crash()

    in_virtual_time(main)
