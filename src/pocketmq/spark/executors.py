"""Readers, writers and sources on their way to executors.

Spark pickles them, and executors import their modules. In an executor without PocketMQ that would end in a ModuleNotFoundError
behind several stacks. So each travels with the code of a function that opens it, which needs only the standard library. It names
the command that installs PocketMQ.
"""

import os
import pickle
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from pyspark import cloudpickle

from pocketmq.spark.python_processes import HIDE_TRACEBACK


def _open_sent(pickled: bytes) -> object:
    """Runs in an executor that may lack PocketMQ: it uses no function or class of PocketMQ."""
    if find_spec("pocketmq") is None:
        os.environ[HIDE_TRACEBACK] = "1"
        raise ModuleNotFoundError(
            f"an executor lacks PocketMQ. Run this on {socket.gethostname()}, and on every machine with executors: "
            f"{sys.executable} -m pip install 'pocketmq[spark]'"
        )
    kind, fields = pickle.loads(pickled)  # noqa: S301 - it comes from the driver, as all tasks do
    opened: object = object.__new__(kind)
    opened.__dict__.update(fields)
    return opened


_open_sent.__module__ = "__main__"  # cloudpickle then writes its code instead of its name


class _Sent:
    """What SentToExecutors writes: a call of the function above."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_sent, (self._pickled,)


class SentToExecutors:
    """Instances travel with the code that opens them, which explains what an executor lacks."""

    def __reduce__(self) -> tuple[Any, ...]:
        dumps: Callable[[object], bytes] = cloudpickle.dumps
        return cloudpickle.loads, (dumps(_Sent(dumps((type(self), self.__dict__)))),)
