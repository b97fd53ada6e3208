"""The servers and the folder of the demo.

The broker runs in a process of its own, as it would otherwise share the interpreter with producers, consumers and Spark's driver. It ends
when its pipe is closed, even if the demo is killed. The web console also has its own process; without its libraries, the demo runs
without it.

The folder keeps everything, so that an interrupted demo can continue:

    DIR/demo.json      the day: seed, date, number of orders
       demo.lock       locked during a demo, so that no other demo empties the folder
       broker/         topics and groups
       checkpoints/    Spark's checkpoints
       lake/           orders and revenue, as Parquet
       revenue.svg     the chart
       report.json     the report
       spark.log       the log of Spark and the broker

A folder with any other file is left alone.
"""

import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.client import Admin
from pocketmq.client.admin.messages import DEFAULT_LIMIT
from pocketmq.demo.shop import TOPICS, Day
from pocketmq.embedded import Server
from pocketmq.errors import PocketMQError, ProgramFailed, UsageError, WrongState
from pocketmq.files import DiskFiles, remove_whole, write_atomically
from pocketmq.model import StoredMessage

START_S: Final = 60.0
STOP_S: Final = 60.0


@contextmanager
def running_broker(folder: Path, settings: Mapping[str, int]) -> Iterator[str]:
    """Run a broker; yields the address of its name server."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(folder, dict(settings), theirs), name="pocketmq demo broker")
    process.start()
    theirs.close()
    try:
        yield _ready(ours)
    finally:
        ours.close()
        process.join(STOP_S)
        if process.is_alive():
            process.kill()
            process.join()


def _ready(pipe: Connection) -> str:
    try:
        if not pipe.poll(START_S):
            raise ProgramFailed(f"the broker did not start within {START_S:.0f} s")
        is_ready, text = pipe.recv()
    except EOFError:
        raise ProgramFailed("the broker ended before it was ready") from None
    if not is_ready:
        raise ProgramFailed(f"the broker did not start: {text}")
    return str(text)


def _serve(folder: Path, settings: Mapping[str, int], pipe: Connection) -> None:
    """Runs in the process: a broker, until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the demo, which then closes the pipe
    try:
        with Server(folder, settings=settings) as server:
            pipe.send((True, server.name_server))
            pipe.poll(None)
    except (PocketMQError, OSError) as error:
        pipe.send((False, str(error)))


PROGRAM: Final = (sys.executable, "-m", "pocketmq.console")
CONSOLE_STOP_S: Final = 10.0


@contextmanager
def running_console(name_servers: str, port: int, picture: Path) -> Iterator[str | None]:
    """Run the console; yields its URL, None if it cannot start. Port 0 selects a free one. It shows the picture once it exists."""
    where = ("--namesrv", name_servers, "--port", str(port), "--picture", str(picture))
    options = ("--json", "--until-end-of-input", *where)
    # In a session of its own: ctrl-C in the terminal goes to the demo, which then closes the console's stdin.
    with subprocess.Popen(  # noqa: S603 our own program
        [*PROGRAM, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield str(msgspec.json.decode(line)["url"]) if line else None
        finally:
            process.stdin.close()
            try:
                process.wait(CONSOLE_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


DAY_FILE: Final = "demo.json"
LOCK_FILE: Final = "demo.lock"
OWN_NAMES: Final = frozenset(
    {DAY_FILE, f"{DAY_FILE}.tmp", LOCK_FILE, "broker", "checkpoints", "lake", "revenue.svg", "report.json", "spark.log"}
)


class DemoFolder:
    """The folder of a demo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broker = path / "broker"
        self.lake = path / "lake"
        self.plot = path / "revenue.svg"
        self.report = path / "report.json"
        self.log = path / "spark.log"
        self._files = DiskFiles()

    def checkpoint(self, query: str) -> Path:
        return self.path / "checkpoints" / query

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; WrongState if another demo uses it."""
        self._files.make_dir(self.path)
        with self._files.open(self.path / LOCK_FILE, create=True) as lock:
            if not lock.lock():
                raise WrongState(f"another demo runs in {self.path}; stop it, or use another folder with --dir")
            yield

    def start_over(self, day: Day) -> None:
        """Remove an earlier demo, and save the day. The folder must be locked."""
        self.check_own()
        names = [name for name in self._files.list(self.path) if name != LOCK_FILE]
        for name in sorted(names, key=lambda name: name == DAY_FILE):  # the day last: it marks the folder as a demo's
            remove_whole(self.path / name)
        self._files.make_dir(self.path)
        write_atomically(self._files, self.path / DAY_FILE, msgspec.json.encode(day._asdict()))

    def resume(self) -> Day:
        """The day of the interrupted demo; UsageError if there is none."""
        path = self.path / DAY_FILE
        if self._files.status(path) is None:
            raise UsageError(f"{self.path} has no demo to continue; start one without --resume")
        try:
            return Day(**msgspec.json.decode(self._files.read(path), type=dict[str, int]))
        except (msgspec.MsgspecError, TypeError) as error:
            raise WrongState(f"{path} is damaged ({error}); start again without --resume") from None

    def check_own(self) -> None:
        """WrongState if the folder has files that are not a demo's."""
        if others := sorted(set(self._files.list(self.path)) - OWN_NAMES):
            raise WrongState(
                f"{self.path} has {others[0]}, which does not belong to a demo; use another folder with --dir, as the demo "
                "would empty this one"
            )

    def make(self, path: Path) -> None:
        self._files.make_dir(path)

    def keep(self, path: Path, data: bytes) -> None:
        write_atomically(self._files, path, data)


def make_topics(name_servers: str) -> None:
    """Create the missing topics of the shop."""
    with Admin(name_servers) as admin:
        for topic, queues in TOPICS.items():
            if not admin.topics.exists(topic):
                admin.topics.create(topic, queues=queues)


def keys_of(admin: Admin, topic: str) -> set[str]:
    """The keys of all messages of a topic."""
    return {key for message in messages_of(admin, topic) for key in message.keys}


def messages_of(admin: Admin, topic: str) -> list[StoredMessage]:
    """All messages of a topic; an empty list if it does not exist."""
    if not admin.topics.exists(topic):
        return []
    found: list[StoredMessage] = []
    for state in admin.topics.describe(topic).queues:
        for begin in range(state.min_offset, state.max_offset, DEFAULT_LIMIT):
            found += admin.messages.in_queue(state.queue, begin, min(state.max_offset, begin + DEFAULT_LIMIT))
    return found
