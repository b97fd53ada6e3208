"""Runs clients as a program until SIGINT or SIGTERM.

    run(producer, consumer) ── start in this order ──► wait ──┬─ SIGINT, SIGTERM ──────────┐
                                                              └─ a client was stopped ─────┼──► stop in reverse order, return
    await consumer.run()    ── the same for one consumer on a loop; several may run at once ┘

Each client stops as usual: a consumer stops pulling, waits up to `stop_timeout_ms` for its listeners, commits its offsets and leaves its
group. A second signal ends the program at once. Python handles signals in the main thread only, so both functions raise an error in other
threads. They restore the previous signal handlers at the end.
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

from pocketmq import system
from pocketmq.errors import UsageError, WrongState
from pocketmq.net import refuse_in_a_loop

log = logging.getLogger("pocketmq.client")

CHECK_S: Final = 0.2
"""How often `run` checks whether another thread has stopped a client."""


class RunnableClient(Protocol):
    """A blocking client."""

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def run(*clients: RunnableClient) -> None:
    """Start blocking clients, wait for SIGINT or SIGTERM, then stop them in reverse order and return.

    Put clients that listeners use, such as producers, first. `run` also returns after a call of `stop` in another thread. Raises
    WrongState outside the main thread.
    """
    for client in clients:
        if asyncio.iscoroutinefunction(getattr(client, "start", None)):
            raise UsageError(
                f"{type(client).__name__} is for asyncio: use `await consumer.run()`, or the blocking class"
            )
    refuse_in_a_loop()
    _require_main_thread()
    # Not an event: the handler may interrupt the wait while the event's lock is held.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    starting: list[RunnableClient] = []

    def signalled(number: int, _: FrameType | None) -> None:
        _exit_on_next_signal(number)
        signals.put(number)
        if starting:
            starting[0].stop()  # ends the start with WrongState

    with _handlers(signalled), ExitStack() as started:  # stops all clients, even if one fails to stop
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


def _wait(signals: "queue.SimpleQueue[int]", clients: tuple[RunnableClient, ...]) -> None:
    while all(client.is_running for client in clients):
        try:
            signals.get(timeout=CHECK_S)
        except queue.Empty:
            continue
        return


@contextmanager
def _handlers(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}
    try:
        for number in system.STOP_SIGNALS:
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            _restore_handler(number, old)


def _restore_handler(number: signal.Signals, old: Any) -> None:
    """None is a handler that was not set from Python, and cannot be restored."""
    signal.signal(number, signal.SIG_DFL if old is None else old)


class _LoopSignals:
    """The signal handlers of one event loop, for all consumers on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._before: dict[signal.Signals, Any] = {}
        self.received = asyncio.Event()

    def __enter__(self) -> asyncio.Event:
        if not self._users:
            self._before = {number: signal.getsignal(number) for number in system.STOP_SIGNALS}
            self.received.clear()
            for number in system.STOP_SIGNALS:
                system.add_signal_handler(self._loop, number, self._signalled, number)
        self._users += 1
        return self.received

    def __exit__(self, *exc: object) -> None:
        self._users -= 1
        if not self._users:
            for number, old in self._before.items():
                system.remove_signal_handler(self._loop, number)
                _restore_handler(number, old)

    def _signalled(self, number: int) -> None:
        for each in system.STOP_SIGNALS:
            system.remove_signal_handler(self._loop, each)
        _exit_on_next_signal(number)
        self.received.set()


_signals_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopSignals] = WeakKeyDictionary()


def signals_of_loop() -> _LoopSignals:
    """A context manager with an event that SIGINT and SIGTERM set. Raises WrongState outside the main thread."""
    _require_main_thread()
    loop = asyncio.get_running_loop()
    found = _signals_by_loop.get(loop)
    if found is None:
        found = _signals_by_loop[loop] = _LoopSignals(loop)
    return found


def _require_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise WrongState(
            "run() handles SIGINT and SIGTERM, which Python allows in the main thread only. In other threads use `with` and "
            "`wait()`, and call `stop()` from the main thread"
        )


def _exit_on_next_signal(number: int) -> None:
    for each in system.STOP_SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    log.info(
        "received %s; the clients complete running work and stop. A second signal ends the program at once",
        signal.Signals(number).name,
    )
