"""A broker as a process of its own. It stands here because a spawned process finds nothing in a `__main__`."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from pocketmq import Server


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker as a process of its own; the address of its name server."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, folder), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


def serve(pipe: Connection, folder: Path) -> None:
    with Server(data=folder) as server:
        pipe.send(server.name_server)
        pipe.recv()
