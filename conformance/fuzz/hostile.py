"""A server that sends arbitrary answers, and our client that must survive them.

    a request ─┬─ a recorded answer to such a request, changed or not        so that the client continues with the next step
               ├─ an answer to another request, or to none
               ├─ noise, half an answer, a cut connection, no answer
               └─ a request from the server: notifications, resets, queries

It is name server and broker on one port: its routes contain its own address.
"""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any, Final, Self

from conformance.fuzz.frames import Mutations, answers, requests, with_opaque
from conformance.fuzz.servers import Broken
from pocketmq.codes import RequestCode
from pocketmq.errors import ProtocolError
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import FrameSplitter

MOST_GROWTH_BYTES: Final = 150 << 20
PATIENCE_S: Final = 90.0
"""By how much the client may exceed the given time."""


class HostileServer:
    """Use it as `async with HostileServer(seed) as server:`."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._mutations = Mutations(self._dice)
        self._server: asyncio.Server | None = None
        self.port = 0
        self.heard = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameSplitter()
        try:
            while data := await reader.read(65_536):
                for frame in frames.feed(data):
                    command = decode_command(frame)
                    if command.is_response:
                        continue
                    self.heard += 1
                    writer.write(self._answer(command))
                    if self._dice.random() < 0.03:
                        return
                await writer.drain()
        except (OSError, ProtocolError):
            return
        finally:
            writer.close()

    def _answer(self, request: Command) -> bytes:
        dice = self._dice
        chance = dice.random()
        if chance < 0.05:
            return b""
        if chance < 0.08:
            return self._mutations.noise()
        if chance < 0.15:
            return self._mutations.of(
                dice.choice(requests())
            )  # a request of its own, for which the client has handlers
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and chance < 0.8:
            answer = self._route(request)
        else:
            known = answers()
            answer = with_opaque(dice.choice(known.get(request.code, known[0])), request.opaque)
        return answer if chance < 0.5 else self._mutations.of(answer)

    def _route(self, request: Command) -> bytes:
        here = f"127.0.0.1:{self.port}"
        body = {
            "brokerDatas": [{"brokerAddrs": {"0": here}, "brokerName": "broker-a", "cluster": "DefaultCluster"}],
            "filterServerTable": {},
            "queueDatas": [
                {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
            ],
        }
        return encode_command(request.reply(body=json.dumps(body).encode()))


async def torment(folder: Path, seconds: float, seed: int) -> str:
    """Let our client live with such a server; a line about it. Broken when something did not hold."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    async with HostileServer(seed) as server:
        with (folder / "log").open("wb") as log:
            client = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "conformance.fuzz.victim", f"127.0.0.1:{server.port}", str(seconds)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
            try:
                async with asyncio.timeout(seconds + PATIENCE_S):
                    printed, _ = await client.communicate()
            except TimeoutError:
                client.kill()
                await client.wait()
                raise Broken(f"the client hangs: {_tail(folder)}") from None
        heard = server.heard
    if client.returncode:
        raise Broken(f"the client ended with exit code {client.returncode}: {_tail(folder)}")
    if "Traceback (most recent call last)" in (folder / "log").read_text(errors="replace"):
        raise Broken(f"an unexpected error: {_tail(folder)}")
    report: dict[str, Any] = json.loads(printed)
    if report["grown_bytes"] > MOST_GROWTH_BYTES:
        raise Broken(f"the client's memory grew by {report['grown_bytes'] >> 20} MiB")
    calls = sum(report["outcomes"].values())
    return f"{heard:,} requests answered, {calls:,} calls ended, memory +{max(0, report['grown_bytes']) >> 20} MiB"


def _tail(folder: Path) -> str:
    text = (folder / "log").read_text(errors="replace")
    at = text.find("Traceback (most recent call last)")
    return text[max(0, at - 300) : at + 3000] if at >= 0 else text[-3000:]
