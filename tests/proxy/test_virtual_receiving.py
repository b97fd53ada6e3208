"""Receives, acknowledgements and leases of gRPC clients, against a real broker in memory and in virtual time."""

import asyncio
from typing import Any

import pytest
from tests.client.real_cluster import until
from tests.proxy.kit import VirtualClient, message, receive_request, subscription_settings, virtual_proxy

from pocketmq.proxy import messages as m
from pocketmq.proxy.statuses import Refused
from pocketmq.testing import run


def send_ids(client: VirtualClient, count: int, topic: str = "T", **system: Any) -> Any:
    """Send messages with the bodies 0, 1, 2 …"""

    async def send() -> None:
        for number in range(count):
            await client.send(message(topic, b"%d" % number, id=f"{number:034d}", **system))

    return send()


def test_messages_are_received_with_their_properties_and_acknowledged() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive(long_polling_timeout=m.Duration(seconds=5))  # the group begins here
            sent = message(
                tag="red", keys=["k1", "k2"], trace_context="trace", properties={"colour": "blue"}, body=b"hello"
            )
            entry = await client.send(sent)
            received = await client.receive()
            one = received.messages[0]
            system = one.system_properties

            assert received.code is m.Code.OK
            assert received.is_complete
            assert (one.topic.name, one.body, dict(one.user_properties)) == ("T", b"hello", {"colour": "blue"})
            assert (system.tag, list(system.keys), system.trace_context) == ("red", ["k1", "k2"], "trace")
            assert (system.message_id, system.message_id) == (entry.message_id, entry.transaction_id)
            assert (system.body_digest.type, system.body_digest.checksum) == (
                m.DigestType.MD5,
                "5D41402ABC4B2A76B9719D911017C592",
            )
            assert (system.body_encoding, system.message_type) == (m.Encoding.IDENTITY, m.MessageType.NORMAL)
            assert (system.delivery_attempt, system.born_host, system.queue_offset) == (1, "client", entry.offset)

            answer = await client.ack(one)
            assert (answer.status.code, answer.entries[0].status.code) == (m.Code.OK, m.Code.OK)
            assert (await client.receive()).code is m.Code.MESSAGE_NOT_FOUND

    run(main())


def test_a_receive_waits_for_a_message_and_gets_it_at_once() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            receiving = asyncio.create_task(client.receive(long_polling_timeout=m.Duration(seconds=20)))
            await asyncio.sleep(13)
            sent_at = proxy.cluster.loop.time()
            await client.send(message())
            assert (await receiving).bodies == [b"body"]
            assert proxy.cluster.loop.time() - sent_at < 1

    run(main())


@pytest.mark.parametrize(("requested_s", "waited_s"), [(1, 5), (8, 8), (60, 20)])
def test_the_wait_of_a_receive_is_limited(requested_s: int, waited_s: int) -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            began = proxy.cluster.loop.time()
            received = await proxy.client().receive(long_polling_timeout=m.Duration(seconds=requested_s))
            assert received.code is m.Code.MESSAGE_NOT_FOUND
            assert proxy.cluster.loop.time() - began == pytest.approx(waited_s, abs=0.5)

    run(main())


def test_a_message_that_is_not_acknowledged_returns_with_a_higher_attempt() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 1)
            (first,) = await client.drain(1, invisible_s=10)
            (second,) = await client.drain(1, invisible_s=10)

            assert second.body == first.body
            assert second.topic.name == "T"
            assert (first.system_properties.delivery_attempt, second.system_properties.delivery_attempt) == (1, 2)
            assert (await client.ack(second)).status.code == m.Code.OK
            assert (await client.receive(long_polling_timeout=m.Duration(seconds=20))).messages == []

    run(main())


def test_a_late_acknowledgement_is_refused() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 2)
            early, late = await client.drain(2, invisible_s=10)
            await client.ack(early)
            await asyncio.sleep(11)
            answer = await client.ack(late)

            assert answer.status.code == m.Code.INVALID_RECEIPT_HANDLE

    run(main())


def test_acks_with_different_results_have_a_status_each() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 1)
            (good,) = await client.drain(1)
            bad = m.Message()
            bad.CopyFrom(good)
            bad.system_properties.receipt_handle = "nonsense"
            answer = await client.ack(good, bad)

            assert answer.status.code == m.Code.MULTIPLE_RESULTS
            assert [entry.status.code for entry in answer.entries] == [m.Code.OK, m.Code.INTERNAL_SERVER_ERROR]

    run(main())


def test_every_message_can_be_acknowledged_after_a_change_of_its_invisible_time() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 8)
            messages = await client.drain(8)
            for one in messages:
                answer = await client.change(one, 60)
                assert answer.receipt_handle != one.system_properties.receipt_handle
                one.system_properties.receipt_handle = answer.receipt_handle
            assert (await client.ack(*messages)).status.code == m.Code.OK
            await asyncio.sleep(70)
            assert (await client.receive()).messages == []

    run(main())


def test_a_message_with_a_changed_time_returns_then() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 1)
            (one,) = await client.drain(1)
            await client.change(one, 0)
            began = proxy.cluster.loop.time()
            await client.drain(1)

            assert proxy.cluster.loop.time() - began < 10

    run(main())


def test_renewed_leases_last_and_the_first_handle_stays_valid() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            async with client.telemetry(subscription_settings(m.ClientType.PUSH_CONSUMER)):
                await client.receive()
                await send_ids(client, 2)
                done, given_up = await client.drain(2, auto_renew=True)
                for _ in range(15):
                    await asyncio.sleep(60)
                    await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.PUSH_CONSUMER))
                assert (await client.ack(done)).status.code == m.Code.OK
                assert len(proxy.calls.renewals) == 1
                assert (await client.receive()).messages == []

                answer = await client.change(given_up, 0)
                assert answer.status.code == m.Code.OK
                assert len(proxy.calls.renewals) == 0
                (again,) = await client.drain(1)
                assert again.body == given_up.body

    run(main())


def test_messages_of_a_client_that_is_gone_return_soon() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            gone, other = proxy.client("gone"), proxy.client("other")
            async with gone.telemetry(subscription_settings(m.ClientType.PUSH_CONSUMER)):
                await gone.receive()
                await send_ids(gone, 3)
                assert len(await gone.drain(3, auto_renew=True)) == 3
                await gone.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
                assert len(proxy.calls.renewals) == 0
                began = proxy.cluster.loop.time()
                found = await other.drain(3)

            assert sorted(one.body for one in found) == [b"0", b"1", b"2"]
            assert proxy.cluster.loop.time() - began < 15

    run(main())


def test_a_receive_that_its_client_gives_up_loses_no_message() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            receiving = asyncio.create_task(client.receive(long_polling_timeout=m.Duration(seconds=20)))
            await asyncio.sleep(1)
            receiving.cancel()
            await asyncio.wait((receiving,))
            await send_ids(client, 1)
            began = proxy.cluster.loop.time()
            (one,) = await proxy.client("other").drain(1)

            assert (one.body, one.system_properties.delivery_attempt) == (b"0", 1)
            assert proxy.cluster.loop.time() - began < 1

    run(main())


def test_a_notification_of_a_receive_that_ended_goes_to_another_one() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            clients = [proxy.client(f"client-{number}") for number in range(6)]
            receiving = [asyncio.create_task(client.receive()) for client in clients]
            await asyncio.sleep(1)
            for ended in receiving[:5]:
                ended.cancel()
            await asyncio.sleep(0.1)
            began = proxy.cluster.loop.time()
            await send_ids(clients[5], 1)
            assert (await receiving[5]).bodies == [b"0"]
            assert proxy.cluster.loop.time() - began < 1

    run(main())


def test_messages_that_could_not_be_written_return_soon() -> None:
    class Gone(Exception):
        pass

    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 3)
            written: list[m.ReceiveMessageResponse] = []

            async def write(response: m.ReceiveMessageResponse) -> None:
                if len(written) == 2:  # the status and one message
                    raise Gone
                written.append(response)

            with pytest.raises(Gone):
                await proxy.calls.receiving.receive(client.caller, receive_request(invisible_s=3600), write)
            began = proxy.cluster.loop.time()
            left = {b"0", b"1", b"2"} - {written[1].message.body}
            assert {one.body for one in await client.drain(len(left))} == left
            assert proxy.cluster.loop.time() - began < 15

    run(main())


def test_a_fifo_group_gets_the_messages_of_a_message_group_in_order() -> None:
    async def main() -> None:
        async with virtual_proxy("T:FIFO", group={"consume_message_orderly": True}) as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 3, message_group="order-1")
            first = await client.receive(batch_size=1)
            assert first.bodies == [b"0"]
            assert (await client.receive()).messages == []  # the queue is blocked
            await client.ack(*first.messages)
            second = await client.receive(batch_size=1)
            assert second.bodies == [b"1"]
            await client.change(second.messages[0], 0)
            (again,) = await client.drain(1, batch_size=1)
            assert (again.body, again.system_properties.delivery_attempt) == (b"1", 2)
            await client.ack(again)
            assert (await client.receive()).bodies == [b"2"]

    run(main())


def test_tags_and_sql_select_messages() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            for group in ("G1", "G2"):
                await client.receive(group=group)
            for tag, size in (("red", "1"), ("green", "5"), ("blue", "9")):
                await client.send(message(body=tag.encode(), tag=tag, properties={"size": size}))
            tags = m.FilterExpression(type=m.FilterType.TAG, expression="red || blue")
            sql = m.FilterExpression(type=m.FilterType.SQL, expression="size > 3")
            by_tag = await client.drain(2, group="G1", filter_expression=tags)
            by_sql = await client.drain(2, group="G2", filter_expression=sql)

            assert sorted(one.body for one in by_tag) == [b"blue", b"red"]
            assert sorted(one.body for one in by_sql) == [b"blue", b"green"]

    run(main())


def test_a_message_becomes_a_dead_letter_on_request_and_after_its_last_attempt() -> None:
    async def main() -> None:
        async with virtual_proxy(group={"retry_max_times": 1}) as proxy:
            client = proxy.client()
            await client.receive()
            await send_ids(client, 2)
            forwarded, failing = sorted(await client.drain(2, invisible_s=10), key=lambda one: one.body)
            request = m.ForwardMessageToDeadLetterQueueRequest(
                group=m.Resource(name="G"),
                topic=m.Resource(name="T"),
                receipt_handle=forwarded.system_properties.receipt_handle,
                message_id=forwarded.system_properties.message_id,
            )
            answer = await client.call("ForwardMessageToDeadLetterQueue", request)
            assert answer.status.code == m.Code.OK
            (again,) = await client.drain(1, invisible_s=10)
            assert (again.body, again.system_properties.delivery_attempt) == (failing.body, 2)
            await asyncio.sleep(15)
            assert (await client.receive()).messages == []

            dead = proxy.cluster.stored("%DLQ%G")
            assert sorted(one.body for one in dead) == [b"0", b"1"]

    run(main())


def test_members_of_both_protocols_share_a_group_and_lose_nothing_when_some_are_killed() -> None:
    count = 120

    async def main() -> None:
        async with virtual_proxy() as proxy:
            done: list[bytes] = []

            async def work(client: VirtualClient) -> None:
                while True:
                    received = await client.receive(batch_size=4, invisible_s=10)
                    await asyncio.sleep(0.2)
                    if received.messages:
                        await client.ack(*received.messages)
                        done.extend(one.body for one in received.messages)

            async def work_by_remoting(host: str) -> None:
                options: dict[str, Any] = {"start_at": "first", "invisible_ms": 10_000, "receive_batch": 4}
                async with proxy.cluster.simple_consumer("G", host=host, **options) as consumer:
                    await consumer.subscribe("T")
                    while True:
                        messages = await consumer.receive(4, wait_s=5)
                        await asyncio.sleep(0.2)
                        await consumer.ack(messages)
                        done.extend(one.body for one in messages)

            members = [asyncio.create_task(work(proxy.client(f"client-{number}"))) for number in range(3)]
            members += [asyncio.create_task(work_by_remoting(f"10.0.2.{number}")) for number in range(2)]
            await asyncio.sleep(1)
            await send_ids(proxy.client("sender"), count)
            await asyncio.sleep(1)
            for killed in (members[0], members[3]):
                killed.cancel()
            await until(lambda: len(set(done)) == count)
            for member in members:
                member.cancel()
            await asyncio.wait(members)
            assert set(done) == {b"%d" % number for number in range(count)}

    run(main())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible_s": 9}, m.Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_s": 13 * 3600}, m.Code.ILLEGAL_INVISIBLE_TIME),
        ({"topic": "unknown"}, m.Code.TOPIC_NOT_FOUND),
        ({"topic": "not a topic"}, m.Code.ILLEGAL_TOPIC),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, m.Code.ILLEGAL_TOPIC),
        ({"group": "no/group"}, m.Code.ILLEGAL_CONSUMER_GROUP),
        ({"filter_expression": m.FilterExpression(type=1, expression="||")}, m.Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_a_receive_with_a_wrong_field_is_refused(fields: dict[str, Any], code: m.Code) -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            with pytest.raises(Refused) as refusal:
                await proxy.client().receive(**fields)
            assert refusal.value.code is code

    run(main())


def test_receives_above_the_limit_are_refused_with_the_cause() -> None:
    async def main() -> None:
        async with virtual_proxy(max_receives=1) as proxy:
            client = proxy.client()
            waiting = asyncio.create_task(client.receive())
            await asyncio.sleep(1)
            with pytest.raises(Refused, match="max_receives") as refusal:
                await client.receive()
            await waiting
            assert refusal.value.code is m.Code.TOO_MANY_REQUESTS

    run(main())
