"""An event loop in a thread of its own, through which blocking code runs coroutines.

    blocking thread ── run(coroutine) ──► loop thread ── result or error ──► blocking thread

The thread is started by the first use and joined by `close`. After a fork the child has no such thread: whatever was going on
belongs to the parent, and the child's next use starts a thread and a loop of its own.
"""

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from pocketmq.errors import CallTimedOut, WrongState
from pocketmq.net.loops import new_loop

T = TypeVar("T")

log = logging.getLogger("pocketmq.net")

LONG_CLOSE_S: Final = 10.0
"""A close that takes longer logs the tasks that it waits for."""
_portals: "WeakSet[Portal]" = WeakSet()
_left_to_the_parent: list[object] = []


class _LoopThread(threading.Thread):
    """Runs one loop until told to stop. A daemon: a program that forgets to close its portal can still end."""

    def __init__(self, name: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__(name=name, daemon=True)
        self._loop_factory = loop_factory
        self._told_to_stop = asyncio.Event()
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()

    def run(self) -> None:
        # Leaving the runner cancels what still runs and waits for it, so nothing outlives the loop.
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                self._ready.set_result(runner.get_loop())
                runner.run(self._until_stopped())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            elif threading.main_thread().is_alive() or not isinstance(error, RuntimeError):
                raise
            # Else the program ends: Python 3.12 has no thread any more that could wait for those of the loop's executor.

    async def _until_stopped(self) -> None:
        await self._told_to_stop.wait()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, once it is there."""
        return self._ready.result()

    def ask_to_stop(self) -> None:
        """Cancel what runs, then end."""
        self.loop.call_soon_threadsafe(self._told_to_stop.set)


class Portal:
    """The blocking side's way into a loop. Any thread may use it; `with Portal() as portal:` closes it."""

    def __init__(
        self, name: str = "pocketmq", *, loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_loop
    ) -> None:
        self._name = name
        self._loop_factory = loop_factory
        self._lock = threading.Lock()  # guards _thread and _closed, so that two first uses start one thread; taken last
        self._thread: _LoopThread | None = None
        self._closed = False
        _portals.add(self)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of `work`. After `timeout` seconds, or Ctrl-C, the coroutine is cancelled and not waited for."""
        try:
            refuse_in_a_loop()
        except WrongState:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise WrongState("the portal was closed before the call was done") from None
        except TimeoutError:
            if future.done():
                raise  # the coroutine's own
            raise CallTimedOut(f"no result within {timeout} s; the call was cancelled") from None
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work` and return at once. Cancelling the future cancels the coroutine."""
        # Under the lock, so that work is handed over before `close` says stop, or refused: never left in between.
        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._loop())
        except BaseException:
            work.close()
            raise

    def close(self) -> None:
        """Cancel what runs and join the thread. Harmless when done twice."""
        if self._thread is threading.current_thread():
            raise WrongState("a portal cannot be closed from its own loop: close it from the thread that made it")
        with self._lock:
            thread, self._thread, self._closed = self._thread, None, True
            if thread is not None:
                thread.ask_to_stop()
        if thread is not None:
            thread.join(LONG_CLOSE_S)
            if thread.is_alive():
                tasks = (
                    "; ".join(map(repr, asyncio.all_tasks(thread.loop))) or "none: a thread of its executor still runs"
                )
                log.warning(
                    "%s: still closing after %d s; cancelled tasks that have not ended: %s",
                    self._name,
                    LONG_CLOSE_S,
                    tasks,
                )
                thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise WrongState("the portal is closed")
        if self._thread is not None:
            return self._thread.loop
        thread = _LoopThread(self._name, self._loop_factory)
        thread.start()
        loop = thread.loop
        self._thread = thread
        return loop

    def _begin_anew(self) -> None:
        """In the child of a fork. The lock may have been held by a thread that the child does not have."""
        self._lock = threading.Lock()
        if self._thread is not None:
            # Kept for ever: when collected, the loop would be closed, and the parent's with it: they share one epoll.
            _left_to_the_parent.append(self._thread)
            self._thread = None


def refuse_in_a_loop() -> None:
    """WrongState inside a running event loop, which a blocking call would stop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongState(
        "a blocking call inside a running event loop would stop that loop: "
        "use the async class and `await` it, or call from another thread with `asyncio.to_thread`"
    )


def _begin_anew_after_fork() -> None:
    for portal in _portals:
        portal._begin_anew()


os.register_at_fork(after_in_child=_begin_anew_after_fork)
