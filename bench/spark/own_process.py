"""Work with Spark in a process of its own, and so with a Java of its own.

    this process ── work ──► a process ──► Spark
        └────── result ◄───────┘             └── ends before the next one begins

Java compiles by what it has seen: loops through which first Parquet's rows and then Kafka's went are compiled for both, and are slower for
either. Nobody runs so many kinds of queries in turn in one Java, so a comparison has one that has seen nothing else.
"""

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, ParamSpec, TypeVar

END_S: Final = 30.0

P = ParamSpec("P")
T = TypeVar("T")


def in_own_process(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `work` gives, which is a function of a module, as its arguments travel. What it raises is printed there and ends this run."""
    fresh = get_context("spawn")
    here, there = fresh.Pipe(duplex=False)
    process = fresh.Process(target=_tell, args=(there, work, arguments, named))
    process.start()
    there.close()
    try:
        result: T = here.recv()
        return result
    except EOFError:
        sys.exit("the process with Spark ended before it had a result")
    finally:
        process.join(END_S)
        if process.is_alive():
            process.terminate()
            process.join()


def _tell(there: Connection, work: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with suppress(KeyboardInterrupt):  # the other process has it as well, and says so
        there.send(work(*arguments, **named))
