"""A server process with faults, a producer, a consumer group, and the guarantees that each scene must keep.

    numbered messages ── send ──► acknowledged? ──► written down      every number that was acknowledged must be handled,
                           │                                          by a consumer that was there all the time
    consumer ◄── pulls ── server ◄── faults (injector, signals, files)

The clients live in the driver, outside of the attack, and are those of the product. A refused send is sent again under its number.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from tests.assault.injector import Fault, Injector
from tests.client.processes import ROOT, Child, Children

from pocketmq import Admin, Producer, PushConsumer, StoredMessage
from pocketmq.errors import PocketMQError

TOPIC: Final = "Assault"
GROUP: Final = "assault"
QUEUES: Final = 4
SENDERS: Final = 4
PAUSE_S: Final = 0.02
"""After a refused send."""
SETTINGS: Final = (
    "mappedFileSizeCommitLog=1048576",
    "mappedFileSizeConsumeQueue=20000",
    "flushConsumerOffsetInterval=500",
)
"""So that files roll and tables are saved during a scene of some seconds."""
QUICK: Final[dict[str, Any]] = {"route_poll_ms": 1_000, "heartbeat_ms": 1_000}
DRAIN_S: Final = 40.0


class Broken(AssertionError):
    """A guarantee that the server did not keep."""


class Load:
    """Senders in threads and a consumer group, until the end of a `with`. `acknowledged` and `handled` have numbers."""

    def __init__(self, name_server: str, *, first: int = 0, consuming: bool = True, **options: Any) -> None:
        self.acknowledged: set[int] = set()
        self.handled: Counter[int] = Counter()
        self.refused: Counter[str] = Counter()
        self._stop = Event()
        self._producer = Producer(name_server, group="PG_assault", send_timeout_ms=2_000, retries=0, **QUICK, **options)
        self._consumer = PushConsumer(
            name_server,
            group=GROUP,
            start_at="first",
            rebalance_ms=1_000,
            persist_ms=500,
            **QUICK,
            **options,
        )
        self._consumer.subscribe(TOPIC, self._handle)
        self._consuming = consuming
        self._senders = [Thread(target=self._send, args=(first + number,), daemon=True) for number in range(SENDERS)]

    def __enter__(self) -> Self:
        self._producer.start()
        if self._consuming:
            self._consumer.start()
        for sender in self._senders:
            sender.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_sending()
        self._consumer.stop()
        self._producer.stop()

    def begin_consuming(self) -> None:
        """For a load whose group was not there from the beginning."""
        self._consumer.start()

    def stop_sending(self) -> None:
        self._stop.set()
        for sender in self._senders:
            sender.join(30)

    @property
    def missing(self) -> set[int]:
        """Acknowledged and not handled yet."""
        return set(self.acknowledged) - self.handled.keys()

    def _handle(self, message: StoredMessage) -> None:
        if message.body[:12].isdigit():  # else it was sent by the attack
            self.handled[int(message.body[:12])] += 1

    def _send(self, number: int) -> None:
        while not self._stop.is_set():
            try:
                self._producer.send(TOPIC, b"%012d" % number + bytes(200))
            except PocketMQError as error:
                self.refused[_kind(error)] += 1
                self._stop.wait(PAUSE_S)
            else:
                self.acknowledged.add(number)
                number += SENDERS


def _kind(error: PocketMQError) -> str:
    """An error as one word: RocketMQ's word in brackets if it has one."""
    text = str(error)
    begin, end = text.find("["), text.find("]")
    word = text[begin + 1 : end]
    return word if 0 <= begin < end and word.replace("_", "").isupper() else type(error).__name__


class Stage:
    """The server of one scene. `facts` are shown in the table; a broken guarantee raises Broken."""

    def __init__(self, folder: Path, children: Children, injector: Injector, seed: int) -> None:
        self.folder = folder
        self.injector = injector
        self.seed = seed
        self.facts: list[str] = []
        self.server: Child
        self.name_server = ""
        self.broker_address = ""
        self._children = children
        self._args: tuple[object, ...] = ()
        self._options: dict[str, Any] = {}

    @property
    def data(self) -> Path:
        """The broker's folder."""
        return self.folder / "data" / "broker-a"

    def serve(self, *args: object, settings: tuple[str, ...] = SETTINGS, **options: Any) -> None:
        """Start the server on free ports, and create the topic; `options` are for all clients of the scene."""
        self._options = options
        sets = [word for setting in settings for word in ("--set", setting)]
        self._args = (*args, *sets)
        self._start(0, 0)
        self.until(self._create_topic, "the topic")

    def start_again(self) -> None:
        """After its end, with the same data at the same ports."""
        ports = [int(address.rpartition(":")[2]) for address in (self.name_server, self.broker_address)]
        self._start(*ports)

    def try_to_start(self) -> int | None:
        """Start it on free ports, which may fail: its exit code, or None when it is ready."""
        command = ("pocketmq", "serve", "--json", *self._command(0, 0))
        self.server = self._children.start(*command, env=self.injector.environment)
        self.until(lambda: self.server.said or self.server.code is not None, "the start, or its failure")
        return self.server.code

    def _command(self, name_server_port: int, broker_port: int) -> tuple[object, ...]:
        ports = ("--namesrv-port", name_server_port, "--broker-port", broker_port)
        return (*ports, "--data", self.folder / "data", *self._args)

    def _start(self, name_server_port: int, broker_port: int) -> None:
        command = self._command(name_server_port, broker_port)
        self.server, told = self._children.server("serve", *command, env=self.injector.environment)
        self.name_server, self.broker_address = told["name_server"], told["brokers"][0]["address"]

    def _create_topic(self) -> bool:
        with Admin(self.name_server, **self._options) as admin:
            try:
                if not admin.topics.exists(TOPIC):  # an earlier attempt may have failed half-way
                    admin.topics.create(TOPIC, queues=QUEUES)
            except PocketMQError:
                return False
            return True

    @contextmanager
    def load(self, *, first: int = 0) -> Iterator[Load]:
        """Running clients; at the end of the block every acknowledged message must be handled. Numbers begin at
        `first`.
        """
        with Load(self.name_server, first=first, **self._options) as load:
            self.until(lambda: len(load.handled) > 100, "the first messages")
            yield load
            self.expect(self.server.code is None, f"the server ended with {self.server.code}: {self.log_tail()}")
            self.until_sent(load, 100, "sends after the attack")
            load.stop_sending()
            self.drain(load)
            self.facts.append(told_of(load))

    def drain(self, load: Load) -> None:
        deadline = monotonic() + DRAIN_S
        while load.missing and monotonic() < deadline:
            Event().wait(0.1)
        lost = sorted(load.missing)
        self.expect(
            not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged messages were not handled: {lost[:5]}"
        )

    def stop(self) -> None:
        """Stop the server by SIGTERM, which must end it cleanly, and check its files."""
        code = self.server.terminate(15)
        self.expect(code == 0, f"SIGTERM ended the server with {code}: {self.log_tail()}")
        self.verify()

    def verify(self) -> None:
        command = [sys.executable, "-m", "pocketmq", "store", "verify", "--json", str(self.data)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        self.expect(done.returncode == 0, f"store verify: exit code {done.returncode}: {findings_of(done.stdout)}")

    def until(self, condition: Callable[[], object], what: str, patience_s: float = 30) -> None:
        self._children.until(condition, what, patience_s)

    def until_sent(self, load: Load, count: int, what: str) -> None:
        """More sends are acknowledged."""
        before = len(load.acknowledged)
        self.until(lambda: len(load.acknowledged) > before + count, what)

    def until_hit(self, fault: Fault, times: int, what: str) -> None:
        self.until(lambda: fault.hits >= times, what)

    def during(self, seconds: float) -> None:
        """Keep the clients running while a fault is active."""
        Event().wait(seconds)

    def expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            raise Broken(otherwise)

    @property
    def log_bytes(self) -> int:
        return self.server.log.stat().st_size

    def log_tail(self) -> str:
        return self.server.log.read_text()[-600:]

    def memory_mb(self) -> int:
        """Resident memory of the server."""
        for line in Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
        return 0

    @contextmanager
    def latencies(self) -> Iterator[list[float]]:
        """The duration of queries to the broker, in seconds, repeated during the block."""
        taken: list[float] = []
        done = Event()

        def look() -> None:
            with Admin(self.name_server, call_timeout_ms=10_000, **self._options) as admin:
                while not done.wait(0.05):
                    began = monotonic()
                    admin.offsets.committed(GROUP, TOPIC)
                    taken.append(monotonic() - began)

        looker = Thread(target=look, daemon=True)
        looker.start()
        try:
            yield taken
        finally:
            done.set()
            looker.join(30)


def told_of(load: Load) -> str:
    doubled = load.handled.total() - len(load.handled)
    refusals = ", ".join(f"{count} {kind}" for kind, count in load.refused.most_common(3)) or "none"
    return f"{len(load.acknowledged)} acknowledged, all handled, {doubled} twice; refused: {refusals}"


def findings_of(text: str) -> str:
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return "; ".join(str(one) for one in found[:3])
