"""The acts of each official client as a scenario, with PocketMQ and with Apache's proxy."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.programs import OurServer
from conformance.report import Scenario, Trial
from conformance.sdk import apaches
from conformance.sdk.python_sdk import ACTS, DELAY, FIFO, NORMAL, TRANSACTION
from pocketmq.client import AsyncAdmin

OURS: Final = "PocketMQ"
OUR_PROXY: Final = "PocketMQ's proxy, Apache 5.5.0"
APACHES: Final = "Apache 5.5.0"
COLUMNS: Final = (OURS, OUR_PROXY, APACHES)
VERSION: Final = "5.5.0"
SETTINGS: Final = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 4000,
    "recallMessageEnable": "true",
    "waitTimeMillsInSendQueue": 10_000,
}
TYPES: Final = {NORMAL: "NORMAL", FIFO: "FIFO", DELAY: "DELAY", TRANSACTION: "TRANSACTION"}
CLIENTS_S: Final = 600


def unable(column: str) -> str:
    return apache.reason_to_skip() or ("" if column == OURS else apache.fetch(VERSION)) or apaches.unable()


@contextmanager
def cluster(trial: Trial) -> Iterator[tuple[str, str]]:
    """The addresses of a name server, and of what serves gRPC in front of it."""
    if trial.version == OURS:
        with OurServer.both(trial.say, trial.folder, dict(SETTINGS)) as ours:
            yield ours.name_server, ours.ready["grpc"]
        return
    broker = ApacheBroker(VERSION, trial.folder, dict(SETTINGS), trial.say)
    with broker, _proxy(trial, broker.name_server) as address:
        yield broker.name_server, address


def _proxy(trial: Trial, name_server: str) -> AbstractContextManager[str]:
    if trial.version == APACHES:
        return apaches.proxy(trial.folder / "proxy", name_server, trial.say)
    return _our_proxy(trial.folder / "proxy", name_server)


@contextmanager
def _our_proxy(folder: Path, name_server: str) -> Iterator[str]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pocketmq", "proxy", "-n", name_server, "--port", "0", "--json"]
    with (folder / "proxy.err").open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


async def _prepare(name_server: str, groups: Sequence[str]) -> None:
    async with AsyncAdmin(name_server) as admin:
        for topic, kind in TYPES.items():
            await admin.topics.create(topic, attributes={"message.type": kind})
        for group in groups:
            await admin.groups.create(group, ordered=True)


def _runner(command: Callable[[], Sequence[str]], fifo_group: str) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        with cluster(trial) as (name_server, address):
            asyncio.run(_prepare(name_server, [fifo_group]))
            process = subprocess.Popen(
                [*command(), address],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if line.startswith("{"):
                        outcome = json.loads(line)
                        trial.expect(outcome["check"], outcome["flaws"])
                process.wait(CLIENTS_S)
            finally:
                apache.kill_group(process.pid)
                process.wait()
                process.stdout.close()

    return run


PYTHON: Final = (sys.executable, "-m", "conformance.sdk.python_sdk")
SCENARIOS: Final = (
    Scenario("Python SDK", tuple(ACTS), _runner(lambda: PYTHON, "SdkPythonFifo")),
    Scenario("Java SDK", tuple(ACTS), _runner(apaches.java_sdk, "SdkJavaFifo")),
)
