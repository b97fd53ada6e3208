"""Sends, transactions and recalls of gRPC clients, and what clients of the remoting protocol make of them."""

import asyncio
import gzip
import zlib
from typing import Any

import pytest
from tests.client.real_cluster import real_cluster, until
from tests.proxy.kit import VirtualProxy, message, publishing_settings, virtual_proxy

from pocketmq.model import Message
from pocketmq.model.java_hash import java_hash
from pocketmq.proxy import messages as m
from pocketmq.proxy.sending import consistent_hash
from pocketmq.proxy.statuses import Refused
from pocketmq.testing import run

TRANSACTION: dict[str, Any] = {"message_type": m.MessageType.TRANSACTION}


def in_s(proxy: Any, seconds: int) -> m.Timestamp:
    return m.Timestamp(seconds=proxy.cluster.clock.now_ms() // 1000 + seconds)


@pytest.mark.parametrize(
    ("group", "queues"),
    [("A", [0, 0, 0, 0, 11]), ("order-1", [0, 0, 3, 3, 3]), ("user-42", [0, 1, 1, 1, 1]), ("中文", [0, 0, 3, 3, 3])],
)
def test_a_message_group_has_the_queue_that_apaches_proxy_chooses(group: str, queues: list[int]) -> None:
    assert [consistent_hash(java_hash(group), count) for count in (1, 2, 4, 8, 16)] == queues


def test_a_sent_message_reaches_consumers_of_the_remoting_protocol_with_all_properties() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy, proxy.cluster.simple_consumer(start_at="first") as consumer:
            await consumer.subscribe("T")
            entry = await proxy.client().send(
                message(tag="red", keys=["k1", "k2"], properties={"colour": "blue"}, trace_context="trace")
            )
            (one,) = await consumer.receive(wait_s=10)

            assert (one.body, one.tags, one.keys, one.message_id) == (b"body", "red", ["k1", "k2"], entry.message_id)
            assert (one.properties["colour"], one.properties["TRACE_CONTEXT"]) == ("blue", "trace")

    run(main())


def test_a_message_of_the_remoting_protocol_reaches_grpc_clients_with_all_properties() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            big = b"compressed " * 1000
            async with proxy.cluster.producer(compress_over_bytes=100) as producer:
                result = await producer.send(
                    Message("T", big, tags="red", keys=["k1"], properties={"colour": "blue"}, sharding_key="order-1")
                )
            (one,) = await client.drain(1)

            assert (one.body, dict(one.user_properties)) == (big, {"colour": "blue"})
            system = one.system_properties
            assert (system.message_id, system.tag, list(system.keys)) == (result.message_id, "red", ["k1"])
            assert (system.message_group, system.body_encoding) == ("order-1", m.Encoding.IDENTITY)

    run(main())


def test_a_compressed_body_is_stored_plain() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            for packed in (gzip.compress(b"plain"), zlib.compress(b"plain")):
                sent = message(body=packed)
                sent.system_properties.body_encoding = m.Encoding.GZIP
                await client.send(sent)
            assert [one.body for one in await client.drain(2)] == [b"plain", b"plain"]

            bomb = message(body=gzip.compress(bytes(5 << 20)))
            bomb.system_properties.body_encoding = m.Encoding.GZIP
            with pytest.raises(Refused) as refusal:
                await client.send(bomb)
            assert refusal.value.code is m.Code.MESSAGE_BODY_TOO_LARGE

    run(main())


def test_several_messages_are_one_batch_with_one_result() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            sent = [message(body=b"%d" % number, id=f"{number:034d}", tag="t") for number in range(20)]
            response = await client.call("SendMessage", m.SendMessageRequest(messages=sent))
            found = await client.drain(20)

            assert len(response.entries) == 1
            assert {(one.body, one.system_properties.message_id) for one in found} == {
                (one.body, one.system_properties.message_id) for one in sent
            }

    run(main())


def test_messages_of_a_group_are_in_one_queue() -> None:
    async def main() -> None:
        async with virtual_proxy("T:FIFO") as proxy:
            client = proxy.client()
            for number in range(5):
                await client.send(message(body=b"%d" % number, message_group="order-1"))
            assert [one.body for one in proxy.cluster.stored("T", 3)] == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_sends_avoid_a_broker_whose_connection_is_lost() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as cluster:
            proxy = VirtualProxy(cluster)
            client = proxy.client()
            async with client.telemetry(publishing_settings("T")):
                cluster.network.refuse(cluster.place("broker-b"))
                cluster.network.cut(cluster.place("broker-b"))
                for number in range(16):
                    assert (await client.send(message(id=f"{number:034d}"))).status.code == m.Code.OK
                cluster.network.heal()
                await asyncio.sleep(25)
                await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.PRODUCER))
                await asyncio.sleep(1)
                for number in range(16, 32):
                    assert (await client.send(message(id=f"{number:034d}"))).status.code == m.Code.OK
            stored = [one for queue in range(4) for one in cluster.stored("T", queue, "broker-b")]
            assert len(stored) == 8
            await proxy.calls.stop()

    run(main())


def test_a_delayed_message_is_delivered_in_time_unless_it_is_recalled() -> None:
    async def main() -> None:
        async with virtual_proxy("T:DELAY") as proxy:
            client = proxy.client()
            await client.receive()
            recalled = await client.send(message(body=b"recalled", id="1" * 34, delivery_timestamp=in_s(proxy, 30)))
            due = in_s(proxy, 30)
            await client.send(message(body=b"kept", id="2" * 34, delivery_timestamp=due))
            request = m.RecallMessageRequest(topic=m.Resource(name="T"), recall_handle=recalled.recall_handle)
            answer = await client.call("RecallMessage", request)
            assert (answer.status.code, answer.message_id) == (m.Code.OK, "1" * 34)

            (one,) = await client.drain(1)
            assert proxy.cluster.clock.now_ms() // 1000 >= due.seconds
            assert one.body == b"kept"
            assert one.system_properties.delivery_timestamp.seconds == due.seconds
            assert one.system_properties.message_type == m.MessageType.DELAY
            await client.ack(one)
            await asyncio.sleep(30)
            assert (await client.receive()).messages == []

    run(main())


@pytest.mark.parametrize(
    ("resolution", "bodies"), [(m.TransactionResolution.COMMIT, [b"body"]), (m.TransactionResolution.ROLLBACK, [])]
)
def test_a_transaction_is_committed_or_rolled_back(resolution: int, bodies: list[bytes]) -> None:
    async def main() -> None:
        async with virtual_proxy("T:TRANSACTION") as proxy:
            client = proxy.client()
            await client.receive()
            entry = await client.send(message(**TRANSACTION))
            assert (await client.receive()).messages == []
            answer = await client.call(
                "EndTransaction",
                m.EndTransactionRequest(
                    topic=m.Resource(name="T"),
                    message_id=entry.message_id,
                    transaction_id=entry.transaction_id,
                    resolution=resolution,
                    source=m.TransactionSource.SOURCE_CLIENT,
                ),
            )
            assert answer.status.code == m.Code.OK
            assert (await client.receive()).bodies == bodies

    run(main())


def test_an_open_transaction_is_decided_by_a_check_back() -> None:
    async def main() -> None:
        async with virtual_proxy("T:TRANSACTION") as proxy:
            client = proxy.client()
            await client.receive()
            async with client.telemetry(publishing_settings("T")) as (stream, _):
                entry = await client.send(
                    message(**TRANSACTION, orphaned_transaction_recovery_duration=m.Duration(seconds=10))
                )
                command = (await stream.next()).recover_orphaned_transaction_command
                assert command.message.body == b"body"
                assert command.message.topic.name == "T"
                assert command.transaction_id == entry.transaction_id
                await client.call(
                    "EndTransaction",
                    m.EndTransactionRequest(
                        topic=command.message.topic,
                        message_id=command.message.system_properties.message_id,
                        transaction_id=command.transaction_id,
                        resolution=m.TransactionResolution.COMMIT,
                        source=m.TransactionSource.SOURCE_SERVER_CHECK,
                    ),
                )
                (one,) = await client.drain(1)
                assert one.body == b"body"

    run(main())


def test_an_unknown_transaction_is_refused() -> None:
    async def main() -> None:
        async with virtual_proxy("T:TRANSACTION") as proxy:
            request = m.EndTransactionRequest(topic=m.Resource(name="T"), transaction_id="unknown", resolution=1)
            with pytest.raises(Refused) as refusal:
                await proxy.client().call("EndTransaction", request)
            assert refusal.value.code is m.Code.INTERNAL_SERVER_ERROR
            request.transaction_id = " "
            with pytest.raises(Refused) as refusal:
                await proxy.client().call("EndTransaction", request)
            assert refusal.value.code is m.Code.INVALID_TRANSACTION_ID

    run(main())


def test_a_transaction_that_is_not_decided_can_still_be_decided() -> None:
    async def main() -> None:
        async with virtual_proxy("T:TRANSACTION") as proxy:
            client, place = proxy.client(), proxy.cluster.place("broker-a")
            await client.receive()
            entry = await client.send(message(**TRANSACTION))
            request = m.EndTransactionRequest(topic=m.Resource(name="T"), transaction_id=entry.transaction_id)
            request.resolution = 99
            with pytest.raises(Refused) as refusal:
                await client.call("EndTransaction", request)
            assert refusal.value.code is m.Code.BAD_REQUEST

            request.resolution = m.TransactionResolution.COMMIT
            proxy.cluster.network.partition("10.0.8.1", place)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call("EndTransaction", request), 0.5)
            proxy.cluster.network.heal()
            answer = await client.call("EndTransaction", request)
            assert answer.status.code == m.Code.OK
            assert (await client.receive()).bodies == [b"body"]

    run(main())


def test_a_topic_accepts_messages_of_its_type_only() -> None:
    async def main() -> None:
        async with virtual_proxy("N", "F:FIFO", "D:DELAY", "X:TRANSACTION") as proxy:
            client = proxy.client()
            kinds: dict[str, dict[str, Any]] = {
                "N": {},
                "F": {"message_group": "g"},
                "D": {"delivery_timestamp": in_s(proxy, 5)},
                "X": TRANSACTION,
            }
            for topic in kinds:
                for own, system in kinds.items():
                    if own == topic:
                        assert (await client.send(message(topic, **system))).status.code == m.Code.OK
                        continue
                    with pytest.raises(Refused) as refusal:
                        await client.send(message(topic, **system))
                    assert refusal.value.code is m.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            with pytest.raises(Refused) as refusal:
                await client.send(message("unknown"))
            assert refusal.value.code is m.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE

    run(main())


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message("no topic"), m.Code.ILLEGAL_TOPIC),
        (message("RMQ_SYS_TRANS_HALF_TOPIC"), m.Code.ILLEGAL_TOPIC),
        (message(born_timestamp=m.Timestamp(seconds=2**62)), m.Code.BAD_REQUEST),
        (message(delivery_timestamp=m.Timestamp(seconds=-(2**62))), m.Code.ILLEGAL_DELIVERY_TIME),
        (message(tag="a|b"), m.Code.ILLEGAL_MESSAGE_TAG),
        (message(tag=" "), m.Code.ILLEGAL_MESSAGE_TAG),
        (message(keys=["a", "\x01"]), m.Code.ILLEGAL_MESSAGE_KEY),
        (message(message_group=" "), m.Code.ILLEGAL_MESSAGE_GROUP),
        (message(message_group="g" * 65), m.Code.ILLEGAL_MESSAGE_GROUP),
        (message(properties={"UNIQ_KEY": "x"}), m.Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={"__SHARDINGKEY": "x"}), m.Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={"a\x02": "x"}), m.Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={"a": "x\x01TRAN_MSG\x02"}), m.Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={f"p{n}": "x" for n in range(129)}), m.Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(properties={"a": "x" * 17000}), m.Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message(id=""), m.Code.ILLEGAL_MESSAGE_ID),
        (message(body=b""), m.Code.MESSAGE_BODY_EMPTY),
        (message(body=bytes((4 << 20) + 1)), m.Code.MESSAGE_BODY_TOO_LARGE),
        (message(delivery_timestamp=m.Timestamp(seconds=1 << 40)), m.Code.ILLEGAL_DELIVERY_TIME),
        (message(**TRANSACTION, orphaned_transaction_recovery_duration=m.Duration(seconds=3601)), m.Code.BAD_REQUEST),
    ],
)
def test_a_message_with_a_wrong_part_is_refused(sent: m.Message, code: m.Code) -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            with pytest.raises(Refused) as refusal:
                await proxy.client().send(sent)
            assert refusal.value.code is code

    run(main())


def test_requests_without_messages_or_with_two_topics_are_refused() -> None:
    async def main() -> None:
        async with virtual_proxy("T", "U") as proxy:
            for sent in ((), (message("T"), message("U"))):
                with pytest.raises(Refused) as refusal:
                    await proxy.client().send(*sent)
                assert refusal.value.code is m.Code.MESSAGE_CORRUPTED

    run(main())


def test_the_broker_knows_producers_as_members_of_a_group_named_like_their_topic() -> None:
    async def main() -> None:
        async with virtual_proxy("T:TRANSACTION") as proxy:
            producers, client = proxy.cluster.broker.parts.state.members.producers, proxy.client()
            async with client.telemetry(publishing_settings("T")):
                connections = producers.connections("T").connection_set
                assert [(one.client_id, one.language) for one in connections] == [("client-1", "PYTHON")]
                await client.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
                await until(lambda: "T" not in producers.table().data)

    run(main())
