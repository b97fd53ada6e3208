"""The broker of the demo, in a process of its own: it would have to share the interpreter with producers, consumers and Spark's driver.

It ends when the pipe to it does, so also when the demo is killed.
"""

import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from pocketmq.embedded.server import Server
from pocketmq.errors import PocketMQError, ProgramFailed

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
