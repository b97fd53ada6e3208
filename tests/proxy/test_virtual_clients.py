"""Settings, commands, routes and the end of gRPC clients."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.client.real_cluster import NAME_SERVER, real_cluster, until
from tests.proxy.kit import VirtualProxy, message, publishing_settings, subscription_settings, virtual_proxy

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.model import MessageQueue
from pocketmq.protocol.bodies.clients import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
)
from pocketmq.proxy import messages as m
from pocketmq.proxy.conversion import duration_ms
from pocketmq.proxy.statuses import Refused
from pocketmq.testing import run

ENDPOINTS = m.Endpoints(scheme=m.AddressScheme.DOMAIN_NAME, addresses=[m.Address(host="mq.example", port=443)])


def test_a_producer_gets_its_settings() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy, proxy.client().telemetry(publishing_settings("T")) as (_, settings):
            policy = settings.backoff_policy
            assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4 << 20, True)
            assert [topic.name for topic in settings.publishing.topics] == ["T"]
            assert (policy.max_attempts, duration_ms(policy.exponential_backoff.initial)) == (3, 10)
            assert settings.HasField("metric")
            assert not settings.metric.on

    run(main())


@pytest.mark.parametrize(
    ("group", "attempts", "delays"),
    [
        (None, 17, [1_000, 5_000, 10_000]),
        ({"retry_max_times": 2}, 3, [1_000, 5_000, 10_000]),
        (
            {
                "group_retry_policy": GroupRetryPolicy(
                    customized_retry_policy=CustomizedRetryPolicy(next=(7_000, 8_000, 9_000))
                )
            },
            17,
            [7_000, 8_000, 9_000],
        ),
    ],
)
def test_a_consumer_gets_the_settings_of_its_group(
    group: dict[str, Any] | None, attempts: int, delays: list[int]
) -> None:
    async def main() -> None:
        telemetry = subscription_settings()
        async with virtual_proxy(group=group) as proxy, proxy.client().telemetry(telemetry) as (_, settings):
            policy = settings.backoff_policy
            assert policy.max_attempts == attempts
            assert list(map(duration_ms, policy.customized_backoff.next))[:3] == delays
            assert settings.subscription.receive_batch_size == 32
            assert duration_ms(settings.subscription.long_polling_timeout) == 20_000
            assert not settings.subscription.fifo

    run(main())


def test_a_fifo_group_with_an_exponential_policy() -> None:
    policy = GroupRetryPolicy(RetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(3_000, 60_000, 4))

    async def main() -> None:
        group, telemetry = {"consume_message_orderly": True, "group_retry_policy": policy}, subscription_settings()
        async with virtual_proxy(group=group) as proxy, proxy.client().telemetry(telemetry) as (_, settings):
            backoff = settings.backoff_policy.exponential_backoff
            delays = duration_ms(backoff.initial), duration_ms(backoff.max), backoff.multiplier
            assert settings.subscription.fifo
            assert delays == (3_000, 60_000, 4)

    run(main())


def test_settings_without_a_kind_end_the_stream() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            with pytest.raises(Refused, match="neither") as refusal:
                async with proxy.client().telemetry(m.TelemetryCommand(settings=m.Settings(client_type=1))):
                    pass
            assert refusal.value.code is m.Code.BAD_REQUEST

    run(main())


def test_a_consumer_is_a_member_of_its_group_until_it_ends() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client, other = proxy.client("one"), proxy.client("two")
            async with client.telemetry(subscription_settings()), other.telemetry(subscription_settings()):
                await until(lambda: proxy.cluster.members("G") == ["one", "two"])
                found = proxy.cluster.broker.parts.state.members.consumer_connections("G")
                assert found.consume_type == "CONSUME_POP"
                assert list(found.subscription_table) == ["T"]

                await client.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
                assert proxy.cluster.members("G") == ["two"]

    run(main())


def test_a_client_stays_a_member_while_it_sends_heartbeats() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            async with client.telemetry(subscription_settings()):
                for _ in range(40):
                    await asyncio.sleep(10)
                    answer = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.PUSH_CONSUMER))
                    assert answer.status.code == m.Code.OK
                assert proxy.cluster.members("G") == ["client-1"]

    run(main())


def test_a_client_without_a_stream_or_a_call_is_forgotten() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            async with client.telemetry(subscription_settings()):
                await asyncio.sleep(60)
                assert proxy.cluster.members("G") == ["client-1"]
            await asyncio.sleep(40)
            assert proxy.cluster.members("G") == []
            assert (len(proxy.calls.sessions), proxy.calls.sessions.expired) == (0, 1)

    run(main())


def test_a_client_that_was_forgotten_while_it_stood_still_becomes_a_member_again() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            async with client.telemetry(subscription_settings()) as (stream, _):
                for settings in (None, subscription_settings()):
                    assert proxy.cluster.members("G") == ["client-1"]
                    await asyncio.sleep(150)
                    assert proxy.cluster.members("G") == []
                    if settings is None:
                        kind = m.ClientType.SIMPLE_CONSUMER
                        await client.call("Heartbeat", m.HeartbeatRequest(client_type=kind))
                    else:
                        await stream.ask(settings)
                assert proxy.cluster.members("G") == ["client-1"]
                (session,) = proxy.calls.sessions
                assert len(session.streams) == 1
            assert session.streams == []

    run(main())


def test_heartbeats_and_terminations_need_settings_first() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            for method, request in (
                ("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.PRODUCER)),
                ("NotifyClientTermination", m.NotifyClientTerminationRequest()),
            ):
                with pytest.raises(Refused) as refusal:
                    await proxy.client().call(method, request)
                assert refusal.value.code is m.Code.UNRECOGNIZED_CLIENT_TYPE

    run(main())


def test_a_client_type_without_support_is_refused() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            async with client.telemetry(subscription_settings()):
                with pytest.raises(Refused) as refusal:
                    await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.PULL_CONSUMER))
                assert refusal.value.code is m.Code.UNRECOGNIZED_CLIENT_TYPE

    run(main())


def test_clients_above_the_limit_are_refused_with_the_cause() -> None:
    async def main() -> None:
        async with virtual_proxy(max_clients=1) as proxy:
            await proxy.client("one").send(message())
            with pytest.raises(Refused, match="max_clients") as refusal:
                await proxy.client("two").send(message())
            assert refusal.value.code is m.Code.TOO_MANY_REQUESTS

    run(main())


def test_an_administrator_gets_the_stacks_of_a_client_and_lets_it_verify_a_message() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            sent = await client.send(message())
            async with client.telemetry(subscription_settings()) as (stream, _), _admin(proxy) as admin:
                asking = asyncio.create_task(admin.groups.running_info("G", "client-1", stacks=True))
                nonce = (await stream.next()).print_thread_stack_trace_command.nonce
                trace = m.ThreadStackTrace(nonce=nonce, thread_stack_trace="at main")
                stream.send(m.TelemetryCommand(status=m.Status(code=m.Code.OK), thread_stack_trace=trace))
                info = await asking
                assert info.jstack == "at main"
                assert sent.status.code == m.Code.OK

    run(main())


def test_a_broker_that_does_not_answer_delays_settings_by_a_second_only() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as cluster:
            proxy = VirtualProxy(cluster)
            cluster.network.partition("10.0.8.1", cluster.place("broker-b"))
            client, began = proxy.client(), cluster.loop.time()
            async with client.telemetry(subscription_settings()):
                assert cluster.loop.time() - began < 1.5
                assert cluster.members("G", "broker-a") == ["client-1"]
                began = cluster.loop.time()
                await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.SIMPLE_CONSUMER))
                assert cluster.loop.time() - began < 0.1

                cluster.network.heal()
                await asyncio.sleep(30)
                await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.ClientType.SIMPLE_CONSUMER))
                await until(lambda: cluster.members("G", "broker-b") == ["client-1"])
            await proxy.calls.stop()

    run(main())


def test_a_broker_that_does_not_answer_delays_a_stop_by_seconds_whatever_the_number_of_clients() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as cluster:
            proxy = VirtualProxy(cluster)
            clients = [proxy.client(f"client-{number}") for number in range(20)]
            async with AsyncExitStack() as streams:
                for client in clients:
                    await streams.enter_async_context(client.telemetry(subscription_settings()))
                for number in range(600):
                    await clients[0].send(message(id=f"{number:034}"))
                await clients[0].drain(600, auto_renew=True)
            cluster.network.partition("10.0.8.1", cluster.place("broker-b"))
            began = cluster.loop.time()
            await proxy.calls.stop()
            assert cluster.loop.time() - began < 10
            assert cluster.members("G", "broker-a") == []

    run(main())


def test_tools_see_which_queues_a_client_pops() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            async with client.telemetry(subscription_settings()), _admin(proxy) as admin:
                await client.receive()
                owners = await admin.groups.owners("G")
                info = await admin.groups.running_info("G", "client-1")
                popped = info.mq_pop_table[MessageQueue("T", "broker-a", -1)]
                age_ms = proxy.cluster.clock.now_ms() - popped.last_pop_timestamp

                assert owners.of(MessageQueue("T", "broker-a", 2)) == ("client-1",)
                assert 0 < age_ms < 30_000

    run(main())


def test_an_administrator_lets_a_client_consume_a_message() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            client = proxy.client()
            await client.send(message(body=b"again"))
            (stored,) = [one for queue in range(4) for one in proxy.cluster.stored("T", queue)]
            async with client.telemetry(subscription_settings()) as (stream, _), _admin(proxy) as admin:
                asking = asyncio.create_task(admin.messages.consume_directly("G", "client-1", stored))
                command = (await stream.next()).verify_message_command
                assert (command.message.body, command.message.topic.name) == (b"again", "T")
                result = m.VerifyMessageResult(nonce=command.nonce)
                status = m.Status(code=m.Code.FAILED_TO_CONSUME_MESSAGE, message="not today")
                stream.send(m.TelemetryCommand(status=status, verify_message_result=result))
                outcome = await asking
                assert (outcome.consume_result, outcome.remark) == ("CR_LATER", "not today")

    run(main())


def _admin(proxy: Any) -> AsyncAdmin:
    return AsyncAdmin(str(NAME_SERVER), dependencies=proxy.cluster.dependencies("10.0.7.1"), client_ip="10.0.7.1")


def test_a_route_has_all_queues_and_the_endpoints_of_the_client() -> None:
    async def main() -> None:
        async with virtual_proxy("T", "F:FIFO") as proxy:
            for topic, kind in (("T", m.MessageType.NORMAL), ("F", m.MessageType.FIFO)):
                request = m.QueryRouteRequest(topic=m.Resource(name=topic), endpoints=ENDPOINTS)
                route = await proxy.client().call("QueryRoute", request)
                queues = route.message_queues
                assert route.status.code == m.Code.OK
                assert [queue.id for queue in queues] == [0, 1, 2, 3]
                assert {queue.permission for queue in queues} == {m.Permission.READ_WRITE}
                assert {queue.broker.name for queue in queues} == {"broker-a"}
                assert {tuple(queue.accept_message_types) for queue in queues} == {(kind,)}
                assert all(queue.broker.endpoints == ENDPOINTS for queue in queues)

    run(main())


def test_queues_that_are_only_readable_come_first() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            proxy.cluster.add_topic("R")
            async with _admin(proxy) as admin:
                await admin.topics.alter("R", read_queues=4, write_queues=3)
            await asyncio.sleep(1)
            route = await proxy.client().call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="R")))
            assert [queue.permission for queue in route.message_queues] == [m.Permission.READ] + [
                m.Permission.READ_WRITE
            ] * 3
            assert route.message_queues[0].broker.endpoints.addresses[0].port == 8081

    run(main())


def test_the_route_of_an_unknown_topic_is_not_found() -> None:
    async def main() -> None:
        async with virtual_proxy() as proxy:
            with pytest.raises(Refused, match="pocketmq topic create") as refusal:
                await proxy.client().call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="unknown")))
            assert refusal.value.code is m.Code.TOPIC_NOT_FOUND

    run(main())


@pytest.mark.parametrize(("group", "numbers"), [(None, [-1]), ({"consume_message_orderly": True}, [0, 1, 2, 3])])
def test_an_assignment_is_a_broker_or_for_fifo_each_queue(group: dict[str, Any] | None, numbers: list[int]) -> None:
    async def main() -> None:
        async with virtual_proxy(group=group) as proxy:
            request = m.QueryAssignmentRequest(
                topic=m.Resource(name="T"), group=m.Resource(name="G"), endpoints=ENDPOINTS
            )
            answer = await proxy.client().call("QueryAssignment", request)
            assert [one.message_queue.id for one in answer.assignments] == numbers
            assert {one.message_queue.broker.name for one in answer.assignments} == {"broker-a"}

    run(main())
