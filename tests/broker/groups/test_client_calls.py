"""Requests to clients over their own connection: answers, timeouts, and clients with an old version."""

import asyncio

import pytest
from tests.broker.handlers.client_talk import served

from pocketmq.broker.groups.consumer_group import ClientInfo, call_client, peer_of, require_version
from pocketmq.codes import RequestCode, Version
from pocketmq.errors import CallTimedOut, ImpossibleRequest
from pocketmq.protocol.api.messages import GetConsumerRunningInfo
from pocketmq.protocol.command import Command
from pocketmq.testing import run

HEADER = GetConsumerRunningInfo("g", "c1")


def test_a_client_is_called_over_its_connection_and_answers() -> None:
    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")
            client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda command: command.reply(7, body=b"yes")
            (connection,) = room.server.peers

            answer = await call_client(connection, RequestCode.GET_CONSUMER_RUNNING_INFO, HEADER, b"body", 500)

            assert (answer.code, answer.body) == (7, b"yes")
            assert [(one.ext, one.body) for one in client.told] == [({"consumerGroup": "g", "clientId": "c1"}, b"body")]

    run(main())


def test_a_slow_client_is_not_waited_for() -> None:
    async def slow(command: Command) -> Command:
        await asyncio.sleep(1)
        return command.reply()

    async def main() -> None:
        async with served() as room:
            client = await room.connect("c1")
            client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = slow
            (connection,) = room.server.peers

            with pytest.raises(CallTimedOut):
                await call_client(connection, RequestCode.GET_CONSUMER_RUNNING_INFO, HEADER, b"", 500)

            assert room.clock.monotonic() < 1

    run(main())


def test_a_token_that_is_not_a_peer_cannot_be_called() -> None:
    with pytest.raises(AssertionError, match="are peers"):
        peer_of("not a connection")


@pytest.mark.parametrize(("version", "is_asked"), [(61, False), (62, True), (479, True)])
def test_a_client_is_called_only_if_its_version_supports_the_request(version: int, is_asked: bool) -> None:
    client = ClientInfo("line", "c1", "127.0.0.1:1", "JAVA", version)

    if is_asked:
        require_version(client, Version.V3_1_8_SNAPSHOT)
    else:
        with pytest.raises(ImpossibleRequest, match=r"The Consumer <c1> Version <61> too low .* V3_1_8_SNAPSHOT"):
            require_version(client, Version.V3_1_8_SNAPSHOT)
