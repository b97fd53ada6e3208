"""Many calls at once, and the fast path for calls that only need the stored position."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.net.talk import SERVER, ask
from tests.net.test_peer import connected, frame, never

from pocketmq.codes import HeaderEncoding, ResponseCode
from pocketmq.errors import CallTimedOut, ConnectionLost, PocketMQError, TooManyCalls
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.net.pool import CLIENT_PEER
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.hot_headers import StoredAnswer
from pocketmq.testing import run


class Stored:
    """Records the stored position, if the caller needs only that."""

    code = 310
    timeout_s = 1.0

    def __init__(self, *, is_short: bool = True) -> None:
        self.bodies: list[bytes] = []
        self.errors: list[PocketMQError] = []
        self.offsets: list[str] = []
        self._is_short = is_short

    def answered(self, response: Command) -> None:
        self.bodies.append(response.body)

    def failed(self, error: PocketMQError) -> None:
        self.errors.append(error)

    def stored(self, answer: StoredAnswer) -> bool:
        if self._is_short:
            self.offsets.append(answer.extFields.queueOffset)
        return self._is_short


def storing(peer: Peer, command: Command) -> Command:
    """A broker: `x` is refused, `body` and `binary` are answered in unusual ways."""
    ext = {"msgId": "7F", "queueId": "1", "queueOffset": command.body.decode()}
    if command.body == b"x":
        return command.reply(ResponseCode.SYSTEM_ERROR, "refused")
    if command.body == b"binary":
        command.encoding = HeaderEncoding.ROCKETMQ
    return command.reply(ext=ext, body=command.body if command.body == b"body" else b"")


def ask_many(client: Peer, waiting: Sequence[Stored], bodies: Sequence[bytes]) -> None:
    numbers = client.ask_many(waiting, asyncio.get_running_loop().time() + 1.0)
    client.connection.write(b"".join(map(frame, bodies, numbers)))
    client.connection.flush()


def test_compact_answers_of_many_calls_have_positions_and_others_are_complete() -> None:
    async def main() -> None:
        bodies = [b"1", b"x", b"2", b"body", b"3", b"binary", b"4"]
        client = Peer(settings=CLIENT_PEER)
        waiting = [Stored(is_short=body != b"3") for body in bodies]
        await connected(client, Peer(serve=storing))

        ask_many(client, waiting, bodies)
        last = await client.call(ask(b"5"))

        assert [each.offsets for each in waiting] == [["1"], [], ["2"], [], [], [], ["4"]]
        assert [len(each.bodies) for each in waiting] == [0, 1, 0, 1, 1, 1, 0]
        assert (last.ext or {})["queueOffset"] == "5"
        assert (client.in_flight, client.unmatched) == (0, 0)

    run(main())


def test_many_calls_fail_together_on_timeout_or_loss_of_the_connection() -> None:
    async def main() -> None:
        client, late, lost = Peer(settings=CLIENT_PEER), [Stored(), Stored()], [Stored(), Stored()]
        network = await connected(client, Peer(serve=never))

        ask_many(client, late, [b"1", b"2"])
        await asyncio.sleep(1.1)
        ask_many(client, lost, [b"3", b"4"])
        network.cut(SERVER)
        await client.wait_lost()

        assert [type(error) for each in late for error in each.errors] == [CallTimedOut] * 2
        assert [type(error) for each in lost for error in each.errors] == [ConnectionLost] * 2
        with pytest.raises(ConnectionLost):
            client.ask_many([Stored()], 1.0)

    run(main())


def test_an_unexpected_answer_is_counted_in_the_fast_path_too() -> None:
    async def main() -> None:
        client, server = Peer(settings=CLIENT_PEER), Peer(serve=storing)
        await connected(client, server)
        ask_many(client, [Stored()], [b"1"])
        await client.call(ask(b"2"))

        server.connection.write(
            encode_command(Command(0, {"msgId": "7F", "queueId": "1", "queueOffset": "1"}, flag=1, opaque=9))
        )
        await client.call(ask(b"3"))

        assert client.unmatched == 1

    run(main())


def test_the_number_of_open_calls_is_limited() -> None:
    async def main() -> None:
        client = Peer(settings=PeerSettings(max_in_flight=3))
        await connected(client, Peer(serve=never))

        ask_many(client, [Stored(), Stored()], [b"1", b"2"])

        assert client.spare_calls == 1
        with pytest.raises(TooManyCalls):
            client.ask_many([Stored(), Stored()], 1.0)
        assert client.in_flight == 2

    run(main())
