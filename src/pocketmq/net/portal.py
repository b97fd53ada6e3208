"""A portal: an event loop in a thread, in which blocking code runs coroutines.

    blocking thread ── run(coroutine) ──► loop thread ── result or error ──► blocking thread

The first use starts the thread, and `close` joins it. The child of a fork has no such thread: running calls belong to the parent,
and the first use in the child starts a new thread and loop.
"""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from pocketmq import system
from pocketmq.errors import CallTimedOut, WrongState
from pocketmq.net.loops import new_loop

T = TypeVar("T")

log = logging.getLogger("pocketmq.net")

LONG_CLOSE_S: Final = 10.0
"""A `close` that takes longer logs the tasks that it waits for, or leaves a loop that does not end its own close."""
_portals: "WeakSet[Portal]" = WeakSet()
_loops_of_the_parent: list[object] = []


class _LoopThread(threading.Thread):
    """Runs one loop until `stop`. A daemon thread, so that a program that forgets to close its portal can exit."""

    def __init__(self, name: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__(name=name, daemon=True)
        self._loop_factory = loop_factory
        self._stop_requested = asyncio.Event()
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()

    def run(self) -> None:
        # Leaving the runner cancels the remaining tasks and waits for them.
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                self._ready.set_result(runner.get_loop())
                runner.run(self._until_stopped())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            elif threading.main_thread().is_alive() or not isinstance(error, RuntimeError):
                raise
            # Else the interpreter is exiting: Python 3.12 then cannot start the thread that joins the loop's executor.

    async def _until_stopped(self) -> None:
        await self._stop_requested.wait()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop. Blocks until it is created."""
        return self._ready.result()

    def stop(self) -> None:
        """Cancel the running tasks, then end."""
        self.loop.call_soon_threadsafe(self._stop_requested.set)


class Portal:
    """Runs coroutines for blocking callers. Thread-safe; `with Portal() as portal:` closes it."""

    def __init__(
        self, name: str = "pocketmq", *, loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_loop
    ) -> None:
        self._name = name
        self._loop_factory = loop_factory
        self._lock = threading.Lock()  # guards _thread and _closed; the innermost lock
        self._thread: _LoopThread | None = None
        self._closed = False
        _portals.add(self)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of `work`. After `timeout` seconds or Ctrl-C, the coroutine is cancelled without waiting for it."""
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
                raise  # raised by the coroutine
            raise CallTimedOut(f"no result within {timeout} s; the call was cancelled") from None
        finally:
            future.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work` and return at once. Cancelling the future cancels the coroutine."""
        # Under the lock, so that `close` stops the thread either before or after this.
        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._loop())
        except BaseException:
            work.close()
            raise

    def close(self) -> None:
        """Cancel the running tasks and join the thread. Idempotent."""
        if self._thread is threading.current_thread():
            raise WrongState("a portal cannot be closed from its own loop thread; close it from another thread")
        with self._lock:
            thread, self._thread, self._closed = self._thread, None, True
            if thread is not None:
                thread.stop()
        if thread is not None:
            self._join(thread)

    def _join(self, thread: _LoopThread) -> None:
        thread.join(LONG_CLOSE_S)
        if not thread.is_alive():
            return
        if thread.loop.is_closed():
            # uvloop has been seen to never return from closing its handles. All tasks and executor threads have ended.
            log.warning(
                "%s: the event loop did not close within %d s; its thread is abandoned", self._name, LONG_CLOSE_S
            )
            return
        tasks = "; ".join(map(repr, asyncio.all_tasks(thread.loop)))
        log.warning(
            "%s: close has taken %d s so far; still waiting for cancelled tasks: %s",
            self._name,
            LONG_CLOSE_S,
            tasks or "none; a thread of its executor is still running",
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

    def _reset_after_fork(self) -> None:
        """In the child of a fork: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        if self._thread is not None:
            # Never collected: closing the loop would break the parent's, because they share one epoll descriptor.
            _loops_of_the_parent.append(self._thread)
            self._thread = None


def refuse_in_a_loop() -> None:
    """Raise WrongState inside a running event loop, which a blocking call would stop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongState(
        "a blocking call inside a running event loop would stop that loop: "
        "use the async class and `await` it, or call from another thread with `asyncio.to_thread`"
    )


def _reset_portals_after_fork() -> None:
    for portal in _portals:
        portal._reset_after_fork()


system.after_fork_in_child(_reset_portals_after_fork)
