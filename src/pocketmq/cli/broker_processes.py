"""Several brokers behind one name server: the name server in this process, each broker in one of its own.

    pocketmq serve --brokers 3 ─┬─ name server
                                ├─ pocketmq broker --name broker-a --data DIR/broker-a
                                ├─ pocketmq broker --name broker-b --data DIR/broker-b
                                └─ pocketmq broker --name broker-c --data DIR/broker-c

They live and end together. A broker that ends by itself ends all of them; if this process is killed, their input streams
end, and so do they.
"""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple, Self

import msgspec

from pocketmq.errors import ProgramFailed
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.own_host import reachable

log = logging.getLogger("pocketmq.cli")

STOP_S = 60
"""How long a broker has to end after it was told to; it gives up on a hanging disk before."""
MOST_BROKERS = len(ascii_lowercase)


class BrokerPlan(NamedTuple):
    """One broker: its name, where its messages are, and what else its command line says."""

    name: str
    folder: Path
    options: Sequence[str]


class BrokerProcess:
    """A broker that runs. `ready` is what it told when it was: address, data folder and so on."""

    def __init__(self, name: str, process: Process, ready: dict[str, Any]) -> None:
        self.name = name
        self.ready = ready
        self._process = process

    async def wait(self) -> int:
        """Its exit code, when it ends."""
        return await self._process.wait()

    async def stop(self) -> int:
        """Tell it to end, and wait until it did: its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                return await _ended(self._process)
        except TimeoutError:
            log.error(
                "%s did not stop within %s s and is killed; its store recovers at the next start", self.name, STOP_S
            )
            return await _killed(self._process)


class BrokerProcesses:
    """Use it as `async with BrokerProcesses(…) as brokers:`; it is there when all of them are ready."""

    def __init__(self, name_server_settings: NameServerSettings, plans: Sequence[BrokerPlan]) -> None:
        self._name_server = NameServer(name_server_settings)
        self._plans = plans
        self.brokers: list[BrokerProcess] = []

    @property
    def name_server(self) -> str:
        return str(reachable(self._name_server.address))

    async def __aenter__(self) -> Self:
        await self._name_server.start()
        starts = [asyncio.create_task(self._start(plan)) for plan in self._plans]
        try:
            self.brokers = await asyncio.gather(*starts)
        except BaseException:
            await asyncio.gather(*starts, return_exceptions=True)
            self.brokers = [start.result() for start in starts if not start.cancelled() and not start.exception()]
            await self._stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        codes = await self._stop()
        failed = [
            f"{broker.name} ended with exit code {code}"
            for broker, code in zip(self.brokers, codes, strict=True)
            if code
        ]
        if failed and kind is None:
            raise ProgramFailed("; ".join(failed))

    async def _stop(self) -> list[int]:
        codes = await asyncio.gather(*(broker.stop() for broker in self.brokers))
        await self._name_server.stop()
        return codes

    async def until_one_ends(self) -> None:
        """Waits until a broker ends by itself, and raises ProgramFailed."""
        waits = {asyncio.ensure_future(broker.wait()): broker for broker in self.brokers}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        ended = [f"{waits[wait].name} ended by itself with exit code {wait.result()}" for wait in done]
        raise ProgramFailed("; ".join(ended) + ", so all brokers stop")

    async def _start(self, plan: BrokerPlan) -> BrokerProcess:
        # In a session of its own: ctrl-C on the terminal is for this process, which then tells its brokers.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "pocketmq", "broker", "--json", "--until-end-of-input"),
            *("--name", plan.name, "--data", str(plan.folder), "--namesrv", self.name_server),
            *plan.options,
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
        except BaseException:
            await _killed(process)
            raise
        if not line:
            raise ProgramFailed(f"{plan.name} ended with exit code {await _ended(process)} before it was ready")
        return BrokerProcess(plan.name, process, msgspec.json.decode(line))


async def _ended(process: Process) -> int:
    """The exit code, when the process has ended and its streams are closed."""
    await process.communicate()
    return await process.wait()


async def _killed(process: Process) -> int:
    if process.returncode is None:
        process.kill()
    return await _ended(process)


def broker_name(number: int) -> str:
    """broker-a, broker-b …"""
    return f"broker-{ascii_lowercase[number]}"
