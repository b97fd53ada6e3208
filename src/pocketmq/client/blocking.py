"""Base of all blocking clients: an async core on the shared loop thread.

    new ── start ──► running ── stop ──► stopped
                        │ fork
                        └──► in the child: a new core, created and started by the first call

Clients that a program has not stopped are stopped at its exit, so that sends are completed; that takes `stop_timeout_ms` at most.

A `Mailbox` moves items from threads to an event loop. The loop takes all items that wait, so it is woken once for many:

    threads ── put ──► │ │ │ │ ── woken at once ──► loop: deliver, deliver, deliver, deliver
    another loop ── put ──► │ │ │ ── woken when that loop has run its ready callbacks ──► loop: deliver, deliver, deliver

A woken thread has to wait for the interpreter lock of the thread that woke it, which costs both time. So a loop that puts wakes it last.
"""

import asyncio
import atexit
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakSet

from pocketmq import system
from pocketmq.client.cluster.identity import generation, require_same_process
from pocketmq.client.lifecycle import SHARED_PORTAL, State
from pocketmq.errors import WrongState
from pocketmq.net import Portal, refuse_in_a_loop

log = logging.getLogger("pocketmq.client")


class Core(Protocol):
    """An async client."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


C = TypeVar("C", bound=Core)
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class BlockingCaller(Protocol[A_co]):
    """A blocking client, as decorated methods see it."""

    def core(self) -> A_co: ...

    def call(self, work: Coroutine[Any, Any, T]) -> T: ...


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingCaller[A], P], T]:
    """Make the blocking method of an async one, with the same name and arguments."""

    @wraps(method)
    def call(self: BlockingCaller[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        core = self.core()
        return self.call(method(core, *args, **kwargs))

    return call


class BlockingClient(Generic[C]):
    """A client for threads. `make` creates its core, also in the child of a fork; `what` is its name in errors."""

    def __init__(self, make: Callable[[], C], what: str) -> None:
        self._make = make
        self._what = what
        self._lock = _new_lock()  # one thread at a time starts or stops; taken before those of SharedPortal and Portal
        self._is_starting = False
        self._core = make()
        self._made_in = generation()
        self._state = State.NEW
        self._acquired: Portal | None = None
        """The shared loop thread, from the start on."""

    def start(self) -> None:
        """Start the client on the shared loop thread."""
        with self._lock:
            if self._state is not State.NEW:
                raise self._state.refusal(self._what, "`with`, or start()")
            self._renew_core()
            portal = self._acquired = SHARED_PORTAL.acquire()
            self._is_starting = True
            try:
                portal.run(self._core.start())
                self._started()
            except BaseException as error:
                self._is_starting = False
                try:
                    if not self.is_new or not isinstance(error, Exception):
                        # A signal handler may have stopped the client: the loop must not end before the core has undone its start.
                        portal.run(self._core.stop())
                finally:
                    SHARED_PORTAL.release()
                raise
            finally:
                self._is_starting = False
            self._state = State.RUNNING
        _running.add(self)

    def stop(self) -> None:
        """Complete running calls, and disconnect. May be called twice, or without a start, but not inside an event loop."""
        with self._lock:
            if self._state is State.RUNNING:
                refuse_in_a_loop()
                if self._made_in == generation():
                    self._stopping()
            was, self._state = self._state, State.STOPPED
            if self._is_starting:  # by this thread, in a signal handler: the error ends the start
                raise WrongState(f"this {self._what} was stopped during its start")
            if was is not State.RUNNING:
                return
            _running.discard(self)
            try:
                if self._made_in == generation():  # else it belongs to the parent process
                    self.call(self._core.stop())
            finally:
                SHARED_PORTAL.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
        return self._state is State.NEW

    @property
    def is_running(self) -> bool:
        return self._state is State.RUNNING

    def core(self) -> C:
        """The running core of this process. Raises WrongState if there is none."""
        if self._state is not State.RUNNING:
            raise self._state.refusal(self._what, "`with`, or start()")
        if self._made_in != generation():
            self._replace_after_fork()
        return self._core

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the core and return its result."""
        return self._portal.run(work)

    @property
    def _portal(self) -> Portal:
        assert self._acquired is not None, "it was started"
        return self._acquired

    def _replace_after_fork(self) -> None:
        """In the child of a fork: the old core belongs to the parent."""
        with self._lock:
            if self._made_in == generation():
                return  # another thread was faster
            self._replace_core()
            self.call(self._core.start())
            self._started()

    def _started(self) -> None:
        """Called after the start of a core, for objects that belong to it."""

    def _stopping(self) -> None:
        """Called before the stop of a running client, while its methods still work."""

    def _renew_core(self) -> None:
        """Before the start: create a new core in the child of a fork."""
        if self._made_in != generation():
            self._replace_core()

    def _require_same_process(self) -> None:
        require_same_process(self._made_in, self._what)

    def _replace_core(self) -> None:
        _cores_of_parent.append(self._core)  # never destroyed: that would close connections of the parent
        self._core = self._make()
        self._made_in = generation()

    def _forked(self) -> None:
        self._lock = _new_lock()  # another thread of the parent may have had it


def _new_lock() -> threading.RLock:
    """Reentrant: a signal handler may call `stop` during a start or a stop."""
    return threading.RLock()


_running: "WeakSet[BlockingClient[Any]]" = WeakSet()
_cores_of_parent: list[object] = []


def _forked() -> None:
    for client in _running:
        client._forked()


def _stop_all() -> None:
    for client in list(_running):
        try:
            client.stop()
        except Exception:
            log.exception("%r could not be stopped at the exit of the program", client)


system.after_fork_in_child(_forked)
atexit.register(_stop_all)


class Mailbox(Generic[T]):
    """Items from any thread, or from that of the loop `source`. `deliver` is called on the loop for each, in the order of the puts.

    No lock is needed: threads append to one end of a deque, and the loop takes from the other.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[T], None],
        *,
        source: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._source = source
        self._waiting: deque[T] = deque()
        self._is_scheduled = False

    def put(self, item: T) -> None:
        """Raises RuntimeError if the loop is closed."""
        self._waiting.append(item)
        if not self._is_scheduled:
            # Two threads may both see False. The second callback finds no item then.
            self._is_scheduled = True
            try:
                self._schedule()
            except RuntimeError:
                self._is_scheduled = False  # so that the next put fails, too
                raise

    def __len__(self) -> int:
        """The number of waiting items."""
        return len(self._waiting)

    def undelivered(self) -> list[T]:
        """Remove and return the items that wait for a closed loop. Nothing while it is open."""
        found: list[T] = []
        if self._loop.is_closed():
            self._is_scheduled = False  # first, so that each put from now on fails
            while self._waiting:
                found.append(self._waiting.popleft())
        return found

    def _schedule(self) -> None:
        if self._source is None:
            self._loop.call_soon_threadsafe(self._deliver_all)
        elif self._loop.is_closed():
            raise RuntimeError("the loop is closed")
        else:
            self._source.call_soon(self._wake)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver_all)
        except RuntimeError:
            self._is_scheduled = False  # the loop was closed: the next put fails

    def _deliver_all(self) -> None:
        self._is_scheduled = False  # first, so that each put from now on schedules again
        try:
            while self._waiting:
                self._deliver(self._waiting.popleft())
        finally:
            if self._waiting:  # one raised, which must not stop the others
                self._loop.call_soon(self._deliver_all)
