"""Running clients as a program: until SIGINT or SIGTERM, then an orderly end.

    run(producer, consumer) ── start in this order ──► wait ──┬─ SIGINT, SIGTERM ──────────┐
                                                              └─ a consumer was stopped ───┼──► stop in reverse order, return
    await consumer.run()    ── the same for one consumer on a loop; several may run at once ┘

Stopping is that of each client: a consumer takes no more messages, waits up to `stop_timeout_ms` for its listeners, commits its offsets
and leaves its group. A second signal ends the program at once. Python handles signals in the main thread only, so elsewhere both
refuse. The handlers that were there before come back at the end.
"""

import asyncio
import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from pocketmq.errors import UsageError, WrongState
from pocketmq.net.portal import refuse_in_a_loop

log = logging.getLogger("pocketmq.client")

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
LOOK_S: Final = 0.2
"""How often `run` looks whether another thread has stopped a client."""


class Runs(Protocol):
    """A blocking client."""

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def run(*clients: Runs) -> None:
    """Start blocking clients, wait for SIGINT or SIGTERM, then stop them in reverse order and return.

    Clients that listeners use, such as producers, come first. It also returns when one of them was stopped elsewhere.
    WrongState outside the main thread.
    """
    for client in clients:
        if asyncio.iscoroutinefunction(getattr(client, "start", None)):
            raise UsageError(
                f"{type(client).__name__} is for asyncio: `await consumer.run()`, or give the blocking class"
            )
    refuse_in_a_loop()
    _require_main_thread()
    # A queue and not an event: a handler may interrupt the wait at any point, also while an event holds its lock.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    starting: list[Runs] = []

    def signalled(number: int, _: FrameType | None) -> None:
        _end_at_once_next_time(number)
        signals.put(number)
        if starting:
            starting[0].stop()  # ends the start by WrongState

    with _handlers(signalled), ExitStack() as started:  # one that fails to stop does not keep the others from it
        try:
            for client in clients:
                if not client.is_running:
                    starting[:] = [client]
                    client.start()
                    starting.clear()
                started.callback(client.stop)
            _wait(signals, clients)
        except WrongState:
            if signals.empty() or not starting:
                raise
        finally:
            starting.clear()


def _wait(signals: "queue.SimpleQueue[int]", clients: tuple[Runs, ...]) -> None:
    while all(client.is_running for client in clients):
        try:
            signals.get(timeout=LOOK_S)
        except queue.Empty:
            continue
        return


@contextmanager
def _handlers(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    try:
        for number in STOP_SIGNALS:
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            _put_back(number, old)


def _put_back(number: signal.Signals, old: Any) -> None:
    """None stands for a handler that was not set from Python, which Python cannot set again."""
    signal.signal(number, signal.SIG_DFL if old is None else old)


class _LoopSignals:
    """The signals of one event loop, for all that run on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._before: dict[signal.Signals, Any] = {}
        self.came = asyncio.Event()

    def __enter__(self) -> asyncio.Event:
        if not self._users:
            self._before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
            self.came.clear()
            for number in STOP_SIGNALS:
                self._loop.add_signal_handler(number, self._signalled, number)
        self._users += 1
        return self.came

    def __exit__(self, *exc: object) -> None:
        self._users -= 1
        if not self._users:
            for number, old in self._before.items():
                self._loop.remove_signal_handler(number)
                _put_back(number, old)

    def _signalled(self, number: int) -> None:
        for each in STOP_SIGNALS:
            self._loop.remove_signal_handler(each)
        _end_at_once_next_time(number)
        self.came.set()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopSignals] = WeakKeyDictionary()


def signals_of_loop() -> _LoopSignals:
    """For `with`: an event that is set when SIGINT or SIGTERM comes. WrongState outside the main thread."""
    _require_main_thread()
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = _LoopSignals(loop)
    return found


def _require_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise WrongState(
            "run() handles SIGINT and SIGTERM, which Python allows in the main thread only: elsewhere start the client "
            "with `with`, wait with `wait()`, and call `stop()` from the main thread"
        )


def _end_at_once_next_time(number: int) -> None:
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    log.info(
        "%s: the clients finish what is under way and stop; a second signal ends the program at once",
        signal.Signals(number).name,
    )
