"""Our servers under an assault: the conditions that must hold during it and afterwards.

always          the process runs, answers a request within `ANSWER_S`, logs no unexpected error,
                and its memory stays within `MOST_GROWTH_BYTES` of what it was
with accounts   no request was signed, so nothing has changed: topics, groups, offsets, settings, the end of the log
afterwards      it stops with exit code 0 within `STOP_S`, and its store is sound
"""

import asyncio
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from conformance.fuzz.assault import Assault
from pocketmq import AsyncAdmin, AsyncProducer, AsyncPullConsumer, Credentials
from pocketmq.errors import PocketMQError

ANSWER_S: Final = 10.0
STOP_S: Final = 30.0
MOST_GROWTH_BYTES: Final = 200 << 20
ROUND_S: Final = 2.0
"""The time of the assault between two checks."""
TOPIC: Final = "kept"
GROUP: Final = "keepers"
_KEY: Final = "operator"
_BOUNDS: Final = {"maxTopics": "2000", "maxGroups": "2000"}
"""A server without accounts accepts all requests, so it creates topics and groups with any valid name."""


class Broken(Exception):
    """What should have held, and did not."""


class Target:
    """`pocketmq serve` in a process of its own; as a context manager, one that is stopped in any case."""

    def __init__(self, folder: Path, *, with_accounts: bool) -> None:
        self._folder = folder
        self._credentials = Credentials(_KEY, secrets.token_hex(16)) if with_accounts else None
        self._process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        command = [sys.executable, "-m", "pocketmq", "serve", "--namesrv-port", "0", "--broker-port", "0", "--json"]
        command += ["--data", str(self._folder / "data")]
        command += [word for key, text in _BOUNDS.items() for word in ("--set", f"{key}={text}")]
        if self._credentials is not None:
            accounts = self._folder / "accounts.toml"
            accounts.write_text(
                f'[[account]]\naccess_key = "{_KEY}"\nsecret = "{self._credentials.secret}"\nadmin = true\n'
            )
            accounts.chmod(0o600)
            command += ["--accounts", str(accounts)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Broken(f"it did not start: {self.log[-2000:]}")
        self.ready = msgspec.json.decode(line)
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    @property
    def ports(self) -> dict[str, int]:
        addresses = {"name server": self.ready["name_server"], "broker": self.ready["brokers"][0]["address"]}
        return {name: int(address.rpartition(":")[2]) for name, address in addresses.items()}

    @property
    def options(self) -> dict[str, Any]:
        return {"credentials": self._credentials} if self._credentials else {}

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def memory_bytes(self) -> int:
        assert self._process is not None
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0

    def check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise Broken(f"it ended with exit code {self._process.returncode}: {self.log[-3000:]}")
        if "Traceback (most recent call last)" in self.log:
            at = self.log.index("Traceback (most recent call last)")
            raise Broken(f"an unexpected error: {self.log[max(0, at - 300) : at + 3000]}")

    def stop(self) -> None:
        """Stop it as a user would, and look at what it leaves."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"it did not stop within {STOP_S} s") from None
        if code:
            raise Broken(f"it stopped with exit code {code}: {self.log[-2000:]}")
        store = self.ready["brokers"][0]["data"]
        checked = subprocess.run(
            [sys.executable, "-m", "pocketmq", "store", "verify", store], capture_output=True, text=True, check=False
        )
        if checked.returncode:
            raise Broken(f"its store is not sound: {checked.stdout[-2000:]} {checked.stderr[-2000:]}")


async def attack(folder: Path, seconds: float, seed: int, *, with_accounts: bool) -> str:
    """Half of the time at the name server, half at the broker; a line about it. Broken when something did not hold."""
    with Target(folder, with_accounts=with_accounts) as target:
        await _prepare(target)
        before, memory = await _state(target), target.memory_bytes
        sent = 0
        end = asyncio.get_running_loop().time() + seconds
        number = 0
        while asyncio.get_running_loop().time() < end:
            for port in target.ports.values():
                number += 1
                assault = Assault(port, seed + number)
                await assault.run(ROUND_S)
                sent += assault.sent.total()
                target.check_alive()
                await _answers(target)
        grown = target.memory_bytes - memory
        if grown > MOST_GROWTH_BYTES:
            raise Broken(f"its memory grew by {grown >> 20} MiB")
        if with_accounts:
            _compare(before, await _state(target))
        target.check_alive()
        target.stop()
    return f"{sent:,} frames, memory +{max(0, grown) >> 20} MiB"


async def _prepare(target: Target) -> None:
    async with AsyncProducer(target.ready["name_server"], **target.options) as producer:
        for number in range(20):
            await producer.send(TOPIC, f"{number}".encode(), keys=str(number))
    async with AsyncPullConsumer(target.ready["name_server"], group=GROUP, **target.options) as consumer:
        await consumer.commit(dict.fromkeys(await consumer.queues(TOPIC), 1))


async def _answers(target: Target) -> None:
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            AsyncAdmin(target.ready["name_server"], **target.options) as admin,
        ):
            for place in await admin.cluster.brokers():
                await admin.cluster.runtime_info(place.name)
    except (PocketMQError, TimeoutError) as error:
        raise Broken(f"it does not answer within {ANSWER_S} s: {error!r}") from error


async def _state(target: Target) -> Mapping[str, object]:
    """Everything that a request could change."""
    async with AsyncAdmin(target.ready["name_server"], **target.options) as admin:
        [broker] = [place.name for place in await admin.cluster.brokers()]
        info = await admin.cluster.runtime_info(broker)
        settings = await admin.cluster.settings(broker)
        return {
            "topics": await admin.topics.configs(),
            "groups": await admin.groups.configs(),
            "settings": settings,
            "log": (info["commitLogMinOffset"], info["commitLogMaxOffset"]),
            "queues": await admin.topics.queues(TOPIC),
            "clusters": await admin.cluster.clusters(),
            "offsets": await admin.offsets.committed(GROUP, TOPIC),
        }


def _compare(before: Mapping[str, object], after: Mapping[str, object]) -> None:
    for what, was in before.items():
        if after[what] != was:
            raise Broken(f"{what} changed without permission from {was} to {after[what]}")
