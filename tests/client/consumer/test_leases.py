"""Pops and leases with scripted brokers: their answers, releases and failures, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.kit import CLIENT_IP, NAME_SERVER, Cluster, FakeBroker, after, cluster, ignore, refuse

from pocketmq.client import AsyncSimpleConsumer
from pocketmq.codes import RequestCode, ResponseCode, Version
from pocketmq.errors import CallTimedOut, LeaseLost, RequestNotSupported, SystemBusy
from pocketmq.model import StoredMessage
from pocketmq.protocol.command import Command
from pocketmq.protocol.pop import BatchAck
from pocketmq.protocol.record import encode_record
from pocketmq.testing import run

POP, ACK, BATCH_ACK = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
RETRY = "%RETRY%G_T"


def record(offset: int, *, topic: str = "T", queue: int = 0, times: int = 0, properties: str = "") -> bytes:
    host = bytes([10, 0, 0, 2, 0, 0, 0, 1])
    body = b"%d" % offset
    return encode_record(
        topic.encode(), queue, offset, 100 * offset, body, properties.encode(), 0, 0, 1, host, 1, host, times
    )


def leased(command: Command, *records: bytes, starts: str, offsets: str, pop_ms: int = 1000) -> Command:
    fields = {
        "popTime": str(pop_ms),
        "invisibleTime": (command.ext or {})["invisibleTime"],
        "reviveQid": "3",
        "restNum": "0",
        "startOffsetInfo": starts,
        "msgOffsetInfo": offsets,
    }
    return command.reply(ResponseCode.SUCCESS, "FOUND", fields, b"".join(records))


def renewed(command: Command) -> Command:
    fields = {"popTime": "2000", "invisibleTime": (command.ext or {})["invisibleTime"], "reviveQid": "3"}
    return command.reply(ResponseCode.SUCCESS, None, fields)


@asynccontextmanager
async def consuming(**options: Any) -> AsyncIterator[tuple[Cluster, FakeBroker, AsyncSimpleConsumer]]:
    """A consumer of a broker whose first pop returns offsets 5 and 7 of queue 0, under one lease."""
    async with cluster() as c:
        broker = c.broker
        broker.script(POP, lambda command: leased(command, record(5), record(7), starts="0 0 5", offsets="0 0 5,7"))
        broker.answers |= {
            POP: refuse(ResponseCode.POLLING_TIMEOUT),
            ACK: lambda command: command.reply(),
            BATCH_ACK: lambda command: command.reply(),
            CHANGE: renewed,
            RequestCode.NOTIFICATION: lambda command: command.reply(ext={"hasMsg": "false", "pollingFull": "false"}),
        }
        consumer = AsyncSimpleConsumer(
            NAME_SERVER, dependencies=c.dependencies, group="G", client_ip=CLIENT_IP, own_thread=False, **options
        )
        await consumer.subscribe("T")
        async with consumer:
            yield c, broker, consumer


def handles(broker: FakeBroker) -> list[str]:
    return [(command.ext or {})["extraInfo"] for command in broker.requests(ACK, CHANGE)]


def test_messages_of_one_lease_are_acknowledged_in_one_request() -> None:
    async def main() -> None:
        async with consuming() as (_, broker, consumer):
            messages = await consumer.receive(invisible_s=9)
            assert [message.properties["POP_CK"] for message in messages] == [
                "5 1000 9000 3 0 broker-a 0 5",
                "5 1000 9000 3 0 broker-a 0 7",
            ]
            await consumer.ack(messages)

            (acks,) = (BatchAck.decode(command.body) for command in broker.requests(BATCH_ACK))
            (entry,) = acks.acks
            assert (acks.broker_name, entry.offsets(), entry.start, entry.topic, entry.flag) == (
                "broker-a",
                [5, 7],
                5,
                "T",
                "0",
            )
            assert broker.requests(ACK) == []
            (pop,) = broker.requests(POP)
            assert (pop.ext or {})["queueId"] == "-1"
            assert (pop.ext or {})["initMode"] == "1"
            assert ((pop.ext or {})["bornTime"], (pop.ext or {})["pollTime"]) == ("0", "0")

    run(main())


def test_a_broker_without_batch_acks_gets_single_ones() -> None:
    async def main() -> None:
        async with consuming() as (_, broker, consumer):
            broker.answers[BATCH_ACK] = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            await consumer.ack(await consumer.receive(invisible_s=9))

            assert handles(broker) == ["5 1000 9000 3 0 broker-a 0 5", "5 1000 9000 3 0 broker-a 0 7"]
            assert consumer.open_leases == 0

    run(main())


def test_a_retried_message_has_the_handle_of_the_broker_and_its_original_topic() -> None:
    async def main() -> None:
        async with consuming() as (_, broker, consumer):
            await consumer.receive()
            broker.script(
                POP,
                lambda command: leased(
                    command,
                    record(2, times=3, properties="POP_CK\x012 1000 9000 3 1 broker-a 0\x02"),
                    record(4, topic=RETRY, times=1),
                    starts="0 0 8;1 0 2",
                    offsets="0 0 8;1 0 2,4",
                ),
            )
            messages = await consumer.receive(invisible_s=9)
            assert [(one.topic, one.queue.topic, one.reconsume_times) for one in messages] == [
                ("T", RETRY, 3),
                ("T", RETRY, 1),
            ]
            for message in messages:
                await consumer.ack(message)
            assert handles(broker) == ["2 1000 9000 3 1 broker-a 0 2", "2 1000 9000 3 1 broker-a 0 4"]
            assert {(command.ext or {})["topic"] for command in broker.requests(ACK)} == {RETRY}

    run(main())


def test_an_ack_after_a_change_has_the_new_handle() -> None:
    async def main() -> None:
        async with consuming() as (_, broker, consumer):
            first, _ = await consumer.receive(invisible_s=9)
            await consumer.change_invisible(first, 20)
            await asyncio.sleep(15)
            await consumer.ack(first)

            assert handles(broker) == ["5 1000 9000 3 0 broker-a 0 5", "5 2000 20000 3 0 broker-a 0 5"]

    run(main())


def test_an_ack_counts_only_if_its_response_comes_before_the_end_of_the_lease() -> None:
    async def main() -> None:
        async with consuming(call_timeout_ms=10_000) as (_, broker, consumer):
            messages = await consumer.receive(invisible_s=5)
            broker.script(BATCH_ACK, after(6, lambda command: command.reply()))
            with pytest.raises(LeaseLost) as caught:
                await consumer.ack(messages)
            assert len(caught.value.message_ids) == 2

    run(main())


def test_an_ack_without_a_response_may_be_repeated() -> None:
    async def main() -> None:
        async with consuming() as (_, broker, consumer):
            messages = await consumer.receive(invisible_s=30)
            broker.script(BATCH_ACK, ignore)
            with pytest.raises(CallTimedOut):
                await consumer.ack(messages)
            assert consumer.open_leases == 2
            await consumer.ack(messages)
            assert consumer.open_leases == 0

    run(main())


def test_a_change_without_a_response_ends_the_lease_because_its_handle_is_unknown() -> None:
    async def main() -> None:
        async with consuming() as (_, broker, consumer):
            first, second = await consumer.receive(invisible_s=30)
            broker.script(CHANGE, ignore, refuse(ResponseCode.SYSTEM_BUSY))
            with pytest.raises(CallTimedOut):
                await consumer.change_invisible(first, 60)
            with pytest.raises(LeaseLost):
                await consumer.ack(first)

            with pytest.raises(SystemBusy):  # nothing changed
                await consumer.change_invisible(second, 60)
            await consumer.ack(second)

    run(main())


def test_a_renewal_that_is_refused_is_repeated_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with consuming(auto_renew=True) as (_, broker, consumer):
            messages = await consumer.receive(invisible_s=10)
            broker.script(CHANGE, *[refuse(ResponseCode.SYSTEM_BUSY)] * 4)
            await asyncio.sleep(11)
            assert "could not be extended" in caplog.text
            assert len(broker.requests(CHANGE)) == 6
            await consumer.ack(messages)

    run(main())


def test_an_ack_waits_for_a_running_renewal() -> None:
    async def main() -> None:
        async with consuming(auto_renew=True) as (_, broker, consumer):
            first, _ = await consumer.receive(invisible_s=10)
            broker.script(CHANGE, after(1, renewed), after(1, renewed))
            await asyncio.sleep(5.5)
            await consumer.ack(first)

            assert handles(broker)[-1] == "5 2000 10000 3 0 broker-a 0 5"

    run(main())


def test_a_broker_of_rocketmq_4_is_refused_with_a_clear_error() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.broker.version = Version.V4_9_7
            consumer = AsyncSimpleConsumer(
                NAME_SERVER, dependencies=c.dependencies, group="G", client_ip=CLIENT_IP, own_thread=False
            )
            await consumer.subscribe("T")
            with pytest.raises(RequestNotSupported, match="broker-a cannot lease messages"):
                await consumer.start()
        async with consuming() as (_, broker, later):
            broker.scripts[POP] = [
                refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 200050 not supported")
            ]
            with pytest.raises(RequestNotSupported, match="RocketMQ 5 introduced"):
                await later.receive()

    run(main())


def test_a_message_without_a_lease_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[StoredMessage]:
        async with consuming() as (_, broker, consumer):
            broker.scripts[POP] = [
                lambda command: leased(command, record(5), record(6), starts="0 0 5", offsets="0 0 5")
            ]
            return await consumer.receive()

    assert [message.queue_offset for message in run(main())] == [5]
    assert "offset 6 of queue 0 without a lease" in caplog.text
