"""What a peer does with requests: answers, errors, bounds, and requests that it sends elsewhere."""

import asyncio
import logging

import pytest
from tests.net.talk import BRISK, SERVER, ask, echo

from pocketmq.codes import RequestCode, ResponseCode, Version
from pocketmq.errors import (
    CallTimedOut,
    StoreFull,
    TopicNotFound,
)
from pocketmq.net.peer import Peer, PeerSettings, Serve
from pocketmq.protocol.command import Command
from pocketmq.testing import run
from pocketmq.testing.memory_net import MemoryNetwork, Weather


async def connected(client: Peer, server: Peer, weather: Weather = BRISK) -> MemoryNetwork:
    network = MemoryNetwork(weather=weather)
    await network.listen(lambda: server.connection, SERVER)
    await network.connect(lambda: client.connection, SERVER)
    return network


async def never(peer: Peer, request: Command) -> Command | None:
    await asyncio.Event().wait()
    return None


def test_handlers_of_a_lost_connection_are_cancelled() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def serve(peer: Peer, request: Command) -> Command | None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return None

        client, server = Peer(), Peer(serve=serve)
        await connected(client, server)
        client.oneway(ask())
        await asyncio.sleep(1)
        assert len(server.serving) == 1

        client.close()
        await server.wait_lost()
        await asyncio.sleep(0)

        assert ended == ["cancelled"]
        assert server.serving == frozenset()

    run(main())


@pytest.mark.parametrize("as_coroutine", [False, True])
def test_an_error_of_a_handler_is_answered_with_its_code_and_text(
    as_coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failures = {b"topic": TopicNotFound("no T"), b"disk": StoreFull("no space"), b"bug": KeyError("oops")}

    def fail(peer: Peer, request: Command) -> Command:
        raise failures[request.body]

    async def fail_later(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(0.1)
        raise failures[request.body]

    serve: Serve = fail_later if as_coroutine else fail

    async def main() -> list[tuple[int, str | None]]:
        client = Peer()
        await connected(client, Peer(serve=serve))
        answers = [await client.call(ask(body)) for body in failures]
        return [(answer.code, answer.remark) for answer in answers]

    told = run(main())

    assert told == [
        (ResponseCode.TOPIC_NOT_EXIST, "no T"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "no space"),
        (ResponseCode.SYSTEM_ERROR, "KeyError: 'oops'"),
    ]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "KeyError: 'oops'" in caplog.text


def test_a_peer_without_handlers_answers_not_supported() -> None:
    async def main() -> None:
        client = Peer()
        await connected(client, Peer())

        answer = await client.call(ask(code=4711))

        assert (answer.code, answer.remark) == (3, " request type 4711 not supported")

    run(main())


def test_a_handler_may_answer_a_request_later() -> None:
    async def main() -> None:
        held: list[tuple[Peer, Command]] = []

        def serve(peer: Peer, request: Command) -> None:
            held.append((peer, request))

        client = Peer()
        await connected(client, Peer(serve=serve))
        call = asyncio.create_task(client.call(ask(), timeout=30))
        await asyncio.sleep(20)
        peer, request = held[0]

        peer.answer(request, request.reply(body=b"at last"))

        assert (await call).body == b"at last"

    run(main())


def test_a_coroutine_above_the_limit_is_answered_with_busy() -> None:
    async def main() -> None:
        client = Peer()
        server = Peer(serve=never, settings=PeerSettings(max_serving=3))
        await connected(client, server)
        waiting = [asyncio.create_task(client.call(ask(), timeout=9)) for _ in range(3)]
        await asyncio.sleep(0.1)

        answer = await client.call(ask())

        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert (answer.remark or "").startswith("[OVERLOAD]3 requests of this connection")
        assert len(server.serving) == 3
        await asyncio.wait(waiting)
        assert {type(call.exception()) for call in waiting} == {CallTimedOut}

    run(main())


def test_an_answer_too_large_for_a_frame_becomes_an_error_that_fits(caplog: pytest.LogCaptureFixture) -> None:
    def serve(peer: Peer, request: Command) -> Command:
        return request.reply(body=bytes(17 * 1024 * 1024))

    async def main() -> Command:
        client = Peer()
        await connected(client, Peer(serve=serve))
        return await client.call(ask())

    answer = run(main())

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "the limit of a frame is 16777216" in (answer.remark or "")
    assert "cannot send the response" in caplog.text


@pytest.mark.parametrize(
    ("version", "code"),
    [(Version.V5_3_3, ResponseCode.GO_AWAY), (Version.V4_9_7, ResponseCode.SERVICE_NOT_AVAILABLE)],
)
def test_a_peer_that_is_closing_refuses_new_requests_and_completes_running_ones(
    version: Version, code: ResponseCode
) -> None:
    async def serve(peer: Peer, request: Command) -> Command:
        await asyncio.sleep(1)
        return echo(peer, request)

    async def main() -> None:
        client, server = Peer(), Peer(serve=serve)
        await connected(client, server)
        begun = asyncio.create_task(client.call(ask(b"begun")))
        await asyncio.sleep(0.1)

        server.refuse_requests()
        late = await client.call(Command(RequestCode.PULL_MESSAGE, version=version))

        assert late.code == code
        assert (await begun).body == b"begun"

    run(main())
