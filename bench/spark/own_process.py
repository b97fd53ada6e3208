"""Runs work with Spark in its own process, and so in its own Java virtual machine.

    this process ── work ──► a process ──► Spark
        ├────── result ◄───────┤             └── ends with it
        └── what next ────────►┘                 where it is asked for more than once

Java compiles loops for the types that it has seen. A loop that processed first Parquet's rows and then ours is compiled for both,
and is slower for each. Real programs do not alternate between sources, so each source gets its own Java here.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

END_S: Final = 30.0

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def own_process(
    work: Callable[Concatenate[Connection, P], None], *arguments: P.args, **named: P.kwargs
) -> Iterator[Connection]:
    """A process that does `work`, which is a function of a module, as its arguments travel. The two talk over connections: `work` has to
    end when that of its side is at its end, and what it raises is printed there.
    """
    fresh = get_context("spawn")
    here, there = fresh.Pipe()
    process = fresh.Process(target=_do, args=(there, work, arguments, named))
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join(END_S)
        if process.is_alive():
            process.terminate()
            process.join()


def in_own_process(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `work` gives."""
    with own_process(_tell, work, arguments, named) as process:
        result: T = heard(process)
        return result


def heard(process: Connection) -> Any:
    """What comes next. This run ends if that process does."""
    try:
        return process.recv()
    except EOFError:
        sys.exit("the process with Spark ended before it had a result")


def _do(there: Connection, work: Callable[..., None], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with suppress(KeyboardInterrupt):  # the other process has it as well, and says so
        work(there, *arguments, **named)


def _tell(there: Connection, work: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    there.send(work(*arguments, **named))
