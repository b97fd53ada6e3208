"""The pull loop against scripted brokers: which pulls are sent, when, and to whom."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.kit import NAME_SERVER, Answering, Cluster, FakeBroker, cluster, ignore, refuse, until

from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.process_queue import PULL_IDLE_SECONDS
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.errors import InvalidExpression
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.api.messages import ForConsumerGroup, PullMessage
from pocketmq.protocol.bodies.clients import ConsumerIdList, HeartbeatData
from pocketmq.protocol.bodies.topics import BrokerData, QueueData, TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import encode_record
from pocketmq.testing import run

PULL = RequestCode.PULL_MESSAGE


class PulledBroker(FakeBroker):
    """A broker with one queue of `messages` messages, which holds pulls at its end."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__(broker.network, str(broker.address), broker.name)
        self.messages = 0
        self.suggests = 0
        self.committed: int | None = 0
        self.answers |= {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            PULL: self._pull,
        }

    @property
    def pulls(self) -> list[PullMessage]:
        return [PullMessage.decode(command.ext) for command in self.requests(PULL)]

    @property
    def commits(self) -> list[int]:
        return [
            int((command.ext or {})["commitOffset"]) for command in self.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
        ]

    def _members(self, command: Command) -> Command:
        assert ForConsumerGroup.decode(command.ext).consumer_group == "G"
        heard = HeartbeatData.decode(self.requests(RequestCode.HEART_BEAT)[-1].body)
        return command.reply(body=ConsumerIdList((heard.client_id,)).encode())

    def _offset(self, command: Command) -> Command:
        if self.committed is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, "none")
        return command.reply(0, None, {"offset": str(self.committed)})

    def _commit(self, command: Command) -> Command:
        self.committed = int((command.ext or {})["commitOffset"])
        return command.reply()

    def _pull(self, command: Command) -> Command | None:
        offset = PullMessage.decode(command.ext).queue_offset
        if offset >= self.messages:
            return None
        records = b"".join(map(_record, range(offset, min(offset + 32, self.messages))))
        reply = self.reply(command, ResponseCode.SUCCESS, min(offset + 32, self.messages))
        reply.body = records
        return reply

    def reply(self, command: Command, code: int, next_offset: int) -> Command:
        ext = {
            "suggestWhichBrokerId": str(self.suggests),
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": str(self.messages),
        }
        return command.reply(code, None, ext)

    def answer(self, code: int, next_offset: int) -> Answering:
        return lambda command: self.reply(command, code, next_offset)


def _record(offset: int) -> bytes:
    host = bytes(8)
    return encode_record(b"T", 0, offset, offset * 100, b"%d" % offset, b"UNIQ_KEY\x01id\x02", 0, 0, 1, host, 2, host)


@asynccontextmanager
async def pulled(
    listener: Callable[[StoredMessage], Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Cluster, PulledBroker, AsyncPushConsumer]]:
    """A consumer of one queue of a scripted broker, not started yet."""
    async with cluster() as c:
        c.broker.stop_listening()
        broker = PulledBroker(c.broker)
        c.brokers[broker.name] = broker
        await broker.start()
        c.add_topic("T", queues=1)
        consumer = AsyncPushConsumer(
            NAME_SERVER, dependencies=c.dependencies, group="G", client_ip="10.0.0.9", own_thread=False, **options
        )

        @consumer.on("T")
        async def handle(message: StoredMessage) -> Any:
            result = listener(message) if listener is not None else None
            return await result if inspect.isawaitable(result) else result

        yield c, broker, consumer


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier, 2) for earlier, later in itertools.pairwise(times)]


def test_a_queue_has_one_pull_in_flight() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 100
            async with consumer:
                await asyncio.sleep(20)

            assert [pull.queue_offset for pull in broker.pulls] == [0, 32, 64, 96, 100]
            assert {(pull.max_msg_nums, pull.suspend_timeout_millis) for pull in broker.pulls} == {(32, 15_000)}

    run(main())


def test_pulls_contain_the_committed_offset_of_the_group() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 40
            broker.script(PULL, ignore)
            async with consumer:
                await asyncio.sleep(100)

            told = [(pull.sys_flag & PullFlag.COMMIT_OFFSET, pull.commit_offset) for pull in broker.pulls]
            assert told[:2] == [(0, 0), (0, 0)]
            assert told[-1] == (1, 40)

    run(main())


@pytest.mark.parametrize(
    ("code", "wait_s"),
    [
        (ResponseCode.SYSTEM_ERROR, 1.0),
        (ResponseCode.SYSTEM_BUSY, 1.0),
        (ResponseCode.FLOW_CONTROL, 0.02),
        (ResponseCode.NO_PERMISSION, 1.0),
        (ResponseCode.SUBSCRIPTION_NOT_EXIST, 1.0),
        (ResponseCode.SUBSCRIPTION_NOT_LATEST, 1.0),
    ],
)
def test_a_refused_pull_is_repeated_after_a_pause(code: int, wait_s: float) -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.script(PULL, refuse(code), refuse(code))
            async with consumer:
                await until(lambda: len(broker.pulls) == 3)

            assert gaps(broker.times(PULL)) == [pytest.approx(wait_s, abs=0.01)] * 2

    run(main())


@pytest.mark.parametrize("code", [ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST])
def test_a_broker_without_the_subscription_gets_it_again(code: int) -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer), consumer:
            await asyncio.sleep(5)
            before = len(broker.heartbeats)
            broker.script(PULL, refuse(code))
            broker.network.cut(broker.address)
            await until(lambda: len(broker.heartbeats) >= before + 2, timeout_s=10)

    run(main())


def test_a_lost_connection_is_opened_again_and_pulls_continue() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            async with consumer:
                await until(lambda: len(broker.pulls) == 1)
                broker.network.cut(broker.address)
                await until(lambda: len(broker.pulls) == 2, timeout_s=5)

            assert [pull.queue_offset for pull in broker.pulls] == [0, 0]

    run(main())


def test_after_a_failure_a_busy_broker_is_still_checked_for_a_changed_log() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 10
            async with consumer:
                await until(lambda: len(broker.pulls) == 2)
                broker.script(PULL, refuse(ResponseCode.FLOW_CONTROL))
                broker.network.cut(broker.address)
                await until(lambda: len(broker.pulls) == 5)

            assert [pull.queue_offset for pull in broker.pulls] == [0, 10, 9, 9, 10]

    run(main())


def test_an_illegal_offset_is_corrected_for_the_group() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.committed, broker.messages = 500, 40
            broker.script(PULL, broker.answer(ResponseCode.PULL_OFFSET_MOVED, 8))
            async with consumer:
                await until(lambda: len(broker.pulls) == 3)
                assert broker.commits == [8]

            assert [pull.queue_offset for pull in broker.pulls] == [500, 8, 40]
            assert broker.committed == 40

    run(main())


def test_filtered_messages_count_as_processed() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 900
            broker.script(PULL, broker.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 800))
            broker.script(PULL, broker.answer(ResponseCode.PULL_NOT_FOUND, 850), ignore)
            async with consumer:
                await until(lambda: len(broker.pulls) == 3)

            assert [pull.commit_offset for pull in broker.pulls] == [0, 800, 850]
            assert broker.committed == 850

    run(main())


def test_filtered_messages_are_not_committed_past_a_message_in_work() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async with pulled(lambda _: gate.wait(), stop_timeout_ms=100) as (_, broker, consumer):
            broker.messages = 1
            broker.script(PULL, broker._pull, broker.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 800), ignore)
            async with consumer:
                await until(lambda: len(broker.pulls) == 3)

            assert (broker.committed, [pull.commit_offset for pull in broker.pulls]) == (0, [0, 0, 0])

    run(main())


def test_a_suggested_slave_is_pulled_but_gets_no_offsets() -> None:
    async def main() -> None:
        async with pulled() as (c, broker, consumer):
            slave = PulledBroker(FakeBroker(c.network, "10.0.0.77:10911", "broker-a"))
            await slave.start()
            addresses = {0: str(broker.address), 1: str(slave.address)}
            c.topics["T"] = TopicRouteData(
                (QueueData("broker-a", 1, 1, 6),), (BrokerData("DefaultCluster", "broker-a", addresses),)
            )
            broker.messages, broker.suggests = 10, 1
            slave.messages, slave.suggests = 20, 0
            slave.script(PULL, slave._pull)
            async with consumer:
                await until(lambda: len(broker.pulls) == 2 and slave.pulls)

            assert [pull.queue_offset for pull in broker.pulls] == [0, 20]
            assert [(pull.queue_offset, pull.sys_flag & PullFlag.COMMIT_OFFSET) for pull in slave.pulls] == [(10, 0)]

    run(main())


def test_the_master_is_pulled_again_when_the_suggested_slave_is_missing() -> None:
    async def main() -> None:
        async with pulled() as (c, broker, consumer):
            slave = FakeBroker(c.network, "10.0.0.77:10911", "broker-a")
            addresses = {0: str(broker.address), 1: str(slave.address)}
            c.topics["T"] = TopicRouteData(
                (QueueData("broker-a", 1, 1, 6),), (BrokerData("DefaultCluster", "broker-a", addresses),)
            )
            broker.messages, broker.suggests = 96, 1
            async with consumer:
                await until(lambda: len(broker.pulls) == 5)

            looks = [31, 63]  # whether it is the same log
            assert [pull.queue_offset for pull in broker.pulls] == [0, looks[0], 32, looks[1], 64]

    run(main())


def with_slave(c: Cluster, broker: PulledBroker, slave: FakeBroker, ids: tuple[int, ...] = (0, 1)) -> None:
    """The route of T names these brokers of broker-a."""
    addresses = {0: str(broker.address), 1: str(slave.address)}
    c.topics["T"] = TopicRouteData(
        (QueueData("broker-a", 1, 1, 6),),
        (BrokerData("DefaultCluster", "broker-a", {number: addresses[number] for number in ids}),),
    )


@pytest.mark.parametrize("ids", [(1,), (0, 1)], ids=["out of the route", "in the route"])
def test_while_the_master_is_unavailable_its_slave_keeps_the_offsets(ids: tuple[int, ...]) -> None:
    async def main() -> None:
        async with pulled() as (c, broker, consumer):
            slave = PulledBroker(FakeBroker(c.network, "10.0.0.77:10911", "broker-a"))
            await slave.start()
            slave.messages, slave.committed = 20, 12
            broker.close()
            with_slave(c, broker, slave, ids)
            async with consumer:
                await until(lambda: slave.requests(RequestCode.QUERY_CONSUMER_OFFSET))
                with_slave(c, broker, slave, (1,))  # its name server noticed
                await until(lambda: slave.committed == 20, 60)
                assert [str(queue) for queue in await consumer.queues()] == ["T@broker-a:0"]

            assert slave.pulls[0].queue_offset == 12
            assert not any(pull.sys_flag & PullFlag.COMMIT_OFFSET for pull in slave.pulls)

    run(main())


def test_an_ordered_consumer_needs_the_lock_of_the_master() -> None:
    async def main() -> None:
        async with pulled(ordered=True) as (c, broker, consumer):
            slave = PulledBroker(FakeBroker(c.network, "10.0.0.77:10911", "broker-a"))
            await slave.start()
            broker.close()
            with_slave(c, broker, slave, (1,))
            async with consumer:
                await asyncio.sleep(60)
                assert await consumer.queues() == []

            assert not slave.pulls
            assert not slave.requests(RequestCode.LOCK_BATCH_MQ)

    run(main())


def test_an_unknown_broker_of_a_queue_causes_a_route_query() -> None:
    async def main() -> None:
        async with pulled() as (c, broker, consumer):
            broker.messages = 5
            async with consumer:
                await until(lambda: broker.committed == 5, 60)
                asked = len(c.name_server.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC))
                consumer._member._instance.brokers.keep_only(())  # as after a poll that failed half-way
                before = asyncio.get_running_loop().time()
                broker.messages = 8
                broker.close()
                await broker.start()
                await until(lambda: len(broker.pulls) >= 3, 60)

            assert asyncio.get_running_loop().time() - before < 15
            assert len(c.name_server.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) > asked

    run(main())


def test_an_sql_filter_is_not_sent_to_a_broker_without_sql92() -> None:
    async def main() -> None:
        async with pulled() as (c, broker, _):
            broker.version = 231
            consumer = AsyncPushConsumer(
                NAME_SERVER, dependencies=c.dependencies, group="G", client_ip="10.0.0.9", own_thread=False
            )
            consumer.on("T", sql="price > 3")(lambda message: None)
            with pytest.raises(InvalidExpression, match=r"version 231 and cannot filter by SQL: RocketMQ 4\.1"):
                await consumer.start()
            async with AsyncPullConsumer(
                NAME_SERVER, dependencies=c.dependencies, group="H", own_thread=False
            ) as puller:
                (queue,) = await puller.queues("T")
                with pytest.raises(InvalidExpression, match="filter by tags"):
                    await puller.pull(queue, 0, sql="price > 3")

            assert not broker.requests(PULL, RequestCode.CHECK_CLIENT_CONFIG)

    run(main())


def test_a_queue_without_pulls_for_two_minutes_is_assigned_again() -> None:
    async def main() -> None:
        async with pulled(pull_timeout_ms=3_600_000) as (_, broker, consumer):
            async with consumer:
                await asyncio.sleep(160)

            (gap,) = gaps(broker.times(PULL))
            assert PULL_IDLE_SECONDS < gap < PULL_IDLE_SECONDS + 25

    run(main())


def test_a_pull_with_messages_is_followed_by_an_interval() -> None:
    async def main() -> None:
        async with pulled(pull_interval_ms=3_000) as (_, broker, consumer):
            broker.messages = 64
            async with consumer:
                await until(lambda: len(broker.pulls) == 3)

            assert gaps(broker.times(PULL)) == [pytest.approx(3, abs=0.02)] * 2

    run(main())


def test_an_empty_pull_is_followed_by_no_interval() -> None:
    async def main() -> None:
        async with pulled(pull_interval_ms=3_000) as (_, broker, consumer):
            nothing = broker.answer(ResponseCode.PULL_NOT_FOUND, 0)
            unwanted = broker.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 4)
            broker.script(PULL, nothing, unwanted, nothing)
            async with consumer:
                await until(lambda: len(broker.pulls) == 4)

            assert sum(gaps(broker.times(PULL))) < 0.1

    run(main())


def test_a_failed_pull_is_repeated_after_the_configured_time() -> None:
    async def main() -> None:
        async with pulled(pull_retry_ms=3_000) as (_, broker, consumer):
            broker.script(PULL, refuse(ResponseCode.SYSTEM_ERROR))
            async with consumer:
                await until(lambda: len(broker.pulls) == 2)

            assert gaps(broker.times(PULL)) == [pytest.approx(3, abs=0.02)]

    run(main())


def test_a_response_that_moves_backwards_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        seen: list[bytes] = []
        async with pulled(lambda message: seen.append(message.body)) as (_, broker, consumer):
            broker.messages = 40

            def old(command: Command) -> Command:
                reply = broker.reply(command, ResponseCode.SUCCESS, 34)
                reply.body = b"".join(map(_record, range(30, 34)))
                return reply

            broker.script(PULL, broker._pull, old)
            async with consumer:
                await until(lambda: broker.committed == 40, 60)
            assert seen == [b"%d" % number for number in range(40)]

    run(main())
    (said,) = [line for line in caplog.messages if "[BUG]" in line]
    assert "nextBeginOffset: 34 firstMsgOffset: 30 prevRequestOffset: 32, queue: T@broker-a:0, times: 1" in said


def test_the_first_of_a_thousand_flow_controls_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stuck = asyncio.Event()
        async with pulled(lambda _: stuck.wait(), max_queue_messages=40) as (_, broker, consumer):
            broker.messages = 100
            async with consumer:
                await until(lambda: consumer.pauses[PauseCause.MESSAGES] == 2001, 200)
                stuck.set()

    run(main())
    said = [line for line in caplog.messages if "flow control" in line]
    assert len(said) == 3
    assert said[1] == (
        "the cached message count exceeds the threshold 40, so do flow control, minOffset=0, maxOffset=63, count=64, "
        "size=0.0001 MiB, span=63, pullRequest=T@broker-a:0 nextOffset=64, flowControlTimes=1001; "
        "next attempt in 50 ms"
    )


def test_pulls_include_the_filter_if_configured() -> None:
    async def main() -> None:
        async with pulled(subscription_in_pulls=True) as (_, broker, consumer):
            async with consumer:
                await until(lambda: broker.pulls)

            assert (broker.pulls[0].subscription, broker.pulls[0].sys_flag) == ("*", 6)

    run(main())


def test_offsets_are_committed_every_five_seconds_after_the_first_ten() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer):
            broker.messages = 3
            async with consumer:
                start = asyncio.get_running_loop().time()
                await asyncio.sleep(31)
                times = [round(at - start) for at in broker.times(RequestCode.UPDATE_CONSUMER_OFFSET)]

            assert times == [10, 15, 20, 25, 30]
            assert set(broker.commits) == {3}

    run(main())


def test_a_rebalance_runs_every_twenty_seconds() -> None:
    async def main() -> None:
        async with pulled() as (c, broker, consumer):
            c.add_topic("%RETRY%G", queues=0)
            async with consumer:
                await asyncio.sleep(65)

            asked = sorted({round(at) for at in broker.times(RequestCode.GET_CONSUMER_LIST_BY_GROUP)})
            assert asked == [0, 20, 40, 60]

    run(main())


def test_an_unavailable_list_of_members_changes_nothing() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer), consumer:
            await until(lambda: broker.pulls)
            broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refuse(ResponseCode.SYSTEM_ERROR, "none")
            await asyncio.sleep(60)
            assert len([queue for queue in await consumer.queues() if queue.topic == "T"]) == 1

    run(main())


def test_a_member_unknown_to_the_group_owns_nothing() -> None:
    async def main() -> None:
        async with pulled() as (_, broker, consumer), consumer:
            await until(lambda: broker.pulls)
            broker.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: command.reply(
                body=ConsumerIdList(("somebody else",)).encode()
            )
            await asyncio.sleep(30)
            assert await consumer.queues() == []

    run(main())
