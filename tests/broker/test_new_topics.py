"""The first send to a new topic, and its creation, are acknowledged when the name servers know the route."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.broker.lives import Lives, in_virtual_time, make_topic, stored
from tests.broker.registering import NAME_SERVER, OTHER, Listener, name_server
from tests.broker.running import Client, sending
from tests.nameserver.talk import route
from tests.net.talk import until

from pocketmq.broker.broker import Broker
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.net.address import Address
from pocketmq.protocol.api.administration import CreateTopic


def now() -> float:
    return asyncio.get_running_loop().time()


def creation(topic: str) -> CreateTopic:
    return CreateTopic(topic, "TBW102", 4, 4, 6, "SINGLE_TAG", False)


@asynccontextmanager
async def registered(lives: Lives, *name_servers: Address) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker that these name servers know, with topic T, and a client."""
    async with lives.broker(name_servers=name_servers or (NAME_SERVER,)) as broker:
        make_topic(broker)
        if (told := broker.parts.registration.announced()) is not None:
            await told
        assert len(broker.parts.registration.registered) == len(name_servers or (NAME_SERVER,))
        yield broker, await lives.client()


def test_a_topic_has_a_route_when_the_first_send_to_it_is_answered() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network.at(NAME_SERVER.host)
        async with name_server(network) as (_, asking), registered(lives) as (_, client):
            for number in range(20):
                await client.sent(topic=f"New{number}")
                assert await route(asking, f"New{number}") is not None
                await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation(f"Made{number}"))
                assert await route(asking, f"Made{number}") is not None

    in_virtual_time(main)


def test_only_sends_to_the_new_topic_wait_for_a_slow_name_server() -> None:
    async def main(lives: Lives) -> None:
        async with Listener(lives.network.at(NAME_SERVER.host)) as server, registered(lives) as (broker, client):
            server.delay_s = 0.5
            began = now()

            async def timed(body: bytes, topic: str) -> float:
                await client.sent(body, topic=topic)
                return now() - began

            took = await asyncio.gather(*(timed(b"%d" % n, "New") for n in range(5)), timed(b"other", "T"))

            assert took[-1] < 0.1
            assert all(0.5 <= one < 0.8 for one in took[:-1])
            assert [message.body for message in stored(broker, "New")] == [b"0", b"1", b"2", b"3", b"4"]
            await client.sent(topic="New")
            assert now() - began < 0.8

    in_virtual_time(main)


def test_a_silent_name_server_delays_a_new_topic_by_a_second_and_an_unreachable_one_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(lives: Lives) -> None:
        async with Listener(lives.network.at(NAME_SERVER.host)) as server, registered(lives) as (_, client):
            server.delay_s = 60
            began = now()
            await client.sent(topic="New")
            waited = now() - began
            await asyncio.sleep(10)  # the line was taken for dead meanwhile
            began = now()
            await client.sent(topic="Other")

            assert 1 <= waited < 1.1
            assert now() - began < 0.1

    in_virtual_time(main)

    assert "did not answer the registration" in caplog.text


def test_every_reachable_name_server_knows_the_topic() -> None:
    async def main(lives: Lives) -> None:
        async with (
            Listener(lives.network.at(NAME_SERVER.host)) as one,
            Listener(lives.network.at(OTHER.host), OTHER) as other,
            registered(lives, NAME_SERVER, OTHER) as (_, client),
        ):
            one.delay_s, other.delay_s = 0.1, 0.4
            began = now()
            answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, creation("New"))

            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert 0.4 <= now() - began < 0.6

    in_virtual_time(main)


def test_a_one_way_send_to_a_new_topic_is_stored_although_its_sender_disconnected() -> None:
    async def main(lives: Lives) -> None:
        async with Listener(lives.network.at(NAME_SERVER.host)) as server, registered(lives) as (broker, client):
            server.delay_s = 0.5
            client.tell(RequestCode.SEND_MESSAGE_V2, sending("New"), b"body")
            await until(lambda: "New" in broker.parts.state.topics)
            client.peer.close()
            await asyncio.sleep(1)

            assert len(stored(broker, "New")) == 1

    in_virtual_time(main)


def test_sends_that_wait_for_a_route_are_limited() -> None:
    async def main(lives: Lives) -> None:
        async with Listener(lives.network.at(NAME_SERVER.host)) as server, registered(lives) as (broker, client):
            server.delay_s = 0.9
            broker.parts.turns.waiting.max_bytes = 20_000
            answers = await asyncio.gather(*(client.send(bytes(4_000), topic="New") for _ in range(10)))

            codes = [answer.code for answer in answers]
            assert codes[:4] == [ResponseCode.SUCCESS] * 4
            assert set(codes[5:]) == {ResponseCode.SYSTEM_BUSY}
            assert "[OVERLOAD]" in (answers[-1].remark or "")

    in_virtual_time(main)


def test_retry_topics_of_many_groups_are_created_when_needed() -> None:
    async def main(lives: Lives) -> None:
        network = lives.network.at(NAME_SERVER.host)
        async with name_server(network) as (_, asking), registered(lives) as (broker, client):
            for number in range(20):
                await client.beat(f"x{number}")
            topics = broker.parts.state.topics
            made = [number for number in range(20) if f"%RETRY%x{number}" in topics]
            await until(lambda: bool(broker.parts.registration.registered))

            assert made == list(range(5))
            assert len(broker.parts.state.groups) > 20
            assert await route(asking, "T") is not None
            await client.sent(topic="%RETRY%x19", properties={"KEYS": "k"})
            assert "%RETRY%x19" in topics

    in_virtual_time(main, max_retry_topics=10)
