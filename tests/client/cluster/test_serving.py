"""Requests of brokers to a client."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from tests.client.kit import CLIENT_IP, NAME_SERVER, cluster

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.settings import ClientSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.messages import (
    ConsumeMessageDirectly,
    ForConsumerGroup,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    ResetOffset,
)
from pocketmq.protocol.bodies.clients import ConsumeOutcome, ConsumerData, ConsumerRunningInfo, DirectConsumption
from pocketmq.protocol.bodies.topics import ConsumerStatus, ResetOffsets
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.record import encode_record
from pocketmq.testing import run

QUEUE = MessageQueue("T", "broker-a", 1)
HOST = bytes([10, 0, 0, 2, 0, 0, 42, 159])
RECORD = encode_record(b"T", 1, 7, 5000, b"body", b"", 0, 0, 1, HOST, 2, HOST)


class Consumer:
    """Records its calls."""

    wire_group = "CG"

    def __init__(self) -> None:
        self.told: list[object] = []

    def topics(self) -> Iterable[str]:
        return ("T",)

    def heartbeat(self) -> ConsumerData:
        return ConsumerData("CG")

    def rebalance_soon(self) -> None:
        self.told.append("rebalance")

    def route_changed(self, topic: str) -> None: ...

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        await asyncio.sleep(0)
        self.told.append((topic, offsets.offset_table))

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        return {QUEUE: 42}

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo({"stacks": str(stacks)})

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        self.told.append((message.body, broker_name))
        return DirectConsumption(consume_result=ConsumeOutcome.CR_SUCCESS)


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[Peer, Consumer]]:
    """A consumer, and the broker's side of its connection."""
    async with cluster() as c:
        instance = Instance.join(ClientSettings(name_servers=NAME_SERVER, client_ip=CLIENT_IP), c.dependencies)
        consumer = Consumer()
        instance.add_consumer(consumer)
        await instance.routes.find("T")
        await instance.brokers.peer(c.broker.address)
        await asyncio.sleep(0.1)
        yield c.broker.peers[0], consumer
        await instance.leave()


def command(code: RequestCode, header: Fields, body: bytes = b"") -> Command:
    return Command(code, header.encode(), body)


def test_a_changed_group_causes_a_rebalance() -> None:
    async def main() -> None:
        async with asked() as (broker, consumer):
            for group in ("CG", "other", "CG"):
                broker.oneway(command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ForConsumerGroup(group)))
            await asyncio.sleep(0.1)

            assert consumer.told == ["rebalance", "rebalance"]

    run(main())


def test_offsets_are_reset() -> None:
    async def main() -> None:
        async with asked() as (broker, consumer):
            body = ResetOffsets({QUEUE: 3}).encode()
            for group in ("CG", "other"):
                broker.oneway(
                    command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset(group, "T", -1, True), body)
                )
            await asyncio.sleep(0.1)

            assert consumer.told == [("T", {QUEUE: 3})]

    run(main())


def test_offsets_and_running_info_are_reported() -> None:
    async def main() -> None:
        async with asked() as (broker, _):
            status = await broker.call(
                command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus("T", "CG"))
            )
            info = await broker.call(
                command(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo("CG", "id", True))
            )

            assert ConsumerStatus.decode(status.body).message_queue_table == {QUEUE: 42}
            assert ConsumerRunningInfo.decode(info.body).properties == {"stacks": "True"}

    run(main())


def test_a_message_is_consumed_directly() -> None:
    async def main() -> None:
        async with asked() as (broker, consumer):
            header = ConsumeMessageDirectly("CG", "id", "msg", "broker-a")
            answer = await broker.call(command(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, RECORD))

            assert DirectConsumption.decode(answer.body).consume_result is ConsumeOutcome.CR_SUCCESS
            assert consumer.told == [(b"body", "broker-a")]

    run(main())


def test_a_missing_consumer_is_reported_as_in_java() -> None:
    async def main() -> None:
        async with asked() as (broker, _):
            answers = [
                await broker.call(command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus("T", "X"))),
                await broker.call(command(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo("X", "id"))),
                await broker.call(command(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly("X"), RECORD)),
            ]

            for answer in answers:
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert answer.remark == "The Consumer Group <X> not exist in this consumer"

    run(main())


def test_an_unknown_request_code_is_answered_with_an_error() -> None:
    async def main() -> None:
        async with asked() as (broker, consumer):
            unknown = await broker.call(Command(4711))
            broken = await broker.call(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {}))
            cut = await broker.call(
                command(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly("CG"), RECORD[:50])
            )
            broker.oneway(Command(RequestCode.CHECK_TRANSACTION_STATE, {}, b"nonsense"))

            assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert (broken.code, cut.code) == (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR)
            again = await broker.call(
                command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus("T", "CG"))
            )
            assert again.code == ResponseCode.SUCCESS, "the line lives"
            assert consumer.told == []

    run(main())
