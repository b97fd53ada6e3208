"""The broker of the demo, in a process of its own: it would have to share the interpreter with producers, consumers and Spark's driver.

It ends when the pipe to it does, so also when the demo is killed.

The web console beside the demo, in a process of its own. Without the libraries that it needs, the demo goes on without it.

Where a demo keeps everything, so that one that was cut off can go on.

    DIR/demo.json      the day: seed, date, how many orders
       demo.lock       held while a demo runs, so that no other one empties the folder
       broker/         topics and groups
       checkpoints/    how far Spark is
       lake/           orders and revenue, as Parquet
       revenue.svg     the chart
       report.json     what came of it
       spark.log       what Spark and the broker said

A folder that holds anything else is left alone.

Topics of the shop: made, and, where they are small, read whole.
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
from pocketmq.embedded.server import Server
from pocketmq.errors import PocketMQError, ProgramFailed, UsageError, WrongState
from pocketmq.files import DiskFiles, remove_whole, write_atomically
from pocketmq.model.message import StoredMessage

START_S: Final = 60.0
STOP_S: Final = 60.0


@contextmanager
def running_broker(folder: Path, settings: Mapping[str, int]) -> Iterator[str]:
    """A broker; the address of its name server."""
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
    """What the process does: a broker until the other end of the pipe is closed."""
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
    """Its address for a browser; None when it cannot start. Port 0 is any free one. It shows the picture once that is drawn."""
    where = ("--namesrv", name_servers, "--port", str(port), "--picture", str(picture))
    options = ("--json", "--until-end-of-input", *where)
    # In a session of its own: ctrl-C on the terminal is for the demo, which then closes the console's input stream.
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
    def held(self) -> Iterator[None]:
        """For one demo at a time. WrongState while another one runs in it."""
        self._files.make_dir(self.path)
        with self._files.open(self.path / LOCK_FILE, create=True) as lock:
            if not lock.lock():
                raise WrongState(f"another demo runs in {self.path}: stop it first, or give another folder with --dir")
            yield

    def start_over(self, day: Day) -> None:
        """Empty it of an earlier demo, and note the day. It must be held."""
        self.refuse_strangers()
        names = [name for name in self._files.list(self.path) if name != LOCK_FILE]
        for name in sorted(names, key=lambda name: name == DAY_FILE):  # the day last: until then it is a demo's
            remove_whole(self.path / name)
        self._files.make_dir(self.path)
        write_atomically(self._files, self.path / DAY_FILE, msgspec.json.encode(day._asdict()))

    def resume(self) -> Day:
        """The day of the demo that was cut off. UsageError when there is none."""
        path = self.path / DAY_FILE
        if self._files.status(path) is None:
            raise UsageError(f"there is no demo in {self.path} to go on with: start one without --resume")
        try:
            return Day(**msgspec.json.decode(self._files.read(path), type=dict[str, int]))
        except (msgspec.MsgspecError, TypeError) as error:
            raise WrongState(f"{path} is damaged ({error}): start over without --resume") from None

    def refuse_strangers(self) -> None:
        """WrongState when something of somebody else is in it."""
        if strangers := sorted(set(self._files.list(self.path)) - OWN_NAMES):
            raise WrongState(
                f"{self.path} holds {strangers[0]}, which is not of a demo: give another folder with --dir, "
                "for this one would be emptied"
            )

    def make(self, path: Path) -> None:
        self._files.make_dir(path)

    def keep(self, path: Path, data: bytes) -> None:
        write_atomically(self._files, path, data)


def make_topics(name_servers: str) -> None:
    """Those of the shop, where they are not there."""
    with Admin(name_servers) as admin:
        for topic, queues in TOPICS.items():
            if not admin.topics.exists(topic):
                admin.topics.create(topic, queues=queues)


def keys_of(admin: Admin, topic: str) -> set[str]:
    """The keys of all its messages."""
    return {key for message in messages_of(admin, topic) for key in message.keys}


def messages_of(admin: Admin, topic: str) -> list[StoredMessage]:
    """All of them; none where there is no such topic."""
    if not admin.topics.exists(topic):
        return []
    found: list[StoredMessage] = []
    for state in admin.topics.describe(topic).queues:
        for begin in range(state.min_offset, state.max_offset, DEFAULT_LIMIT):
            found += admin.messages.in_queue(state.queue, begin, min(state.max_offset, begin + DEFAULT_LIMIT))
    return found
