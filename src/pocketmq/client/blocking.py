"""What all blocking clients are made of: an async core on the shared loop thread, and its life.

    new ── start ──► running ── stop ──► stopped
                        │ fork
                        └──► in the child: a new core, made and started by the first use

Programs that end without stopping a client stop it at exit, so what was handed over is sent; that takes `stop_timeout_ms` at most.

From threads to a loop: whatever many threads put in is taken out in one go, so the loop is woken once and not each time.

    threads ── put ──► │ │ │ │ ── woken at once ──► loop: take, take, take, take
    another loop ── put ──► │ │ │ ── woken when that loop has done what is ready ──► loop: take, take, take

To wake a thread that then waits for the interpreter, which the one that woke it still has, costs both. So a loop that puts goes on first.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakSet

from pocketmq.client.cluster.identity import generation
from pocketmq.client.lifecycle import SHARED, State
from pocketmq.errors import WrongState
from pocketmq.net.portal import Portal, refuse_in_a_loop

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


class Calling(Protocol[A_co]):
    """A blocking client, as its methods know it."""

    def core(self) -> A_co: ...

    def call(self, work: Coroutine[Any, Any, T]) -> T: ...


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Calling[A], P], T]:
    """A method of an async client for the blocking one: the same words and arguments, and it returns when it is done."""

    @wraps(method)
    def call(self: Calling[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        core = self.core()
        return self.call(method(core, *args, **kwargs))

    return call


class BlockingClient(Generic[C]):
    """A client for threads. `make` makes its core, again in the child of a fork; `what` is what errors call it."""

    def __init__(self, make: Callable[[], C], what: str) -> None:
        self._make = make
        self._what = what
        self._lock = _new_lock()  # one thread at a time starts or stops; taken before SharedPortal's and Portal's
        self._is_starting = False
        self._core = make()
        self._made_in = generation()
        self._state = State.NEW
        self._portal: Portal

    def start(self) -> None:
        """Take part, on the shared loop thread."""
        with self._lock:
            if self._state is not State.NEW:
                raise self._state.refusal(self._what, "`with`, or start()")
            if self._made_in != generation():
                self._replace_core()
            self._portal = SHARED.borrow()
            self._is_starting = True
            try:
                self._portal.run(self._core.start())
                self._started()
            except BaseException as error:
                self._is_starting = False
                try:
                    if not self.is_new or not isinstance(error, Exception):
                        # Interrupted by a signal, whose handler may have stopped it: the core undoes its start, and the loop must not end before.
                        self._portal.run(self._core.stop())
                finally:
                    SHARED.give_back()
                raise
            finally:
                self._is_starting = False
            self._state = State.RUNNING
        _running.add(self)

    def stop(self) -> None:
        """Finish what is under way, leave. Harmless when done twice, or without a start. Refused inside a loop: it goes on."""
        with self._lock:
            if self._state is State.RUNNING:
                refuse_in_a_loop()
            was, self._state = self._state, State.STOPPED
            if self._is_starting:  # by this very thread, which a signal has interrupted: the error ends the start
                raise WrongState(f"this {self._what} was stopped while it was being started")
            if was is not State.RUNNING:
                return
            _running.discard(self)
            try:
                if self._made_in == generation():  # else it belongs to the parent, who goes on
                    self._portal.run(self._core.stop())
            finally:
                SHARED.give_back()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def is_new(self) -> bool:
        """Whether it was not started yet."""
        return self._state is State.NEW

    @property
    def is_running(self) -> bool:
        return self._state is State.RUNNING

    def core(self) -> C:
        """The running core of this process; WrongState when there is none."""
        if self._state is not State.RUNNING:
            raise self._state.refusal(self._what, "`with`, or start()")
        if self._made_in != generation():
            self._begin_anew()
        return self._core

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of the core comes to."""
        return self._portal.run(work)

    def _begin_anew(self) -> None:
        """In the child of a fork: everything of the old core belongs to the parent."""
        with self._lock:
            if self._made_in == generation():
                return  # another thread was faster
            self._replace_core()
            self._portal.run(self._core.start())
            self._started()

    def _started(self) -> None:
        """A core was started: for what has to be made anew with it."""

    def _replace_core(self) -> None:
        _left_to_the_parent.append(self._core)  # kept for ever: when collected, it would close what the parent uses
        self._core = self._make()
        self._made_in = generation()

    def _forked(self) -> None:
        self._lock = _new_lock()  # a thread that the child does not have may have held it


def _new_lock() -> threading.RLock:
    """One that its holder may take again: a handler of a signal interrupts a start or a stop, and calls `stop`."""
    return threading.RLock()


_running: "WeakSet[BlockingClient[Any]]" = WeakSet()
_left_to_the_parent: list[object] = []


def _forked() -> None:
    for client in _running:
        client._forked()


def _stop_all() -> None:
    for client in list(_running):
        try:
            client.stop()
        except Exception:
            log.exception("a client could not be stopped at exit")


os.register_at_fork(after_in_child=_forked)
atexit.register(_stop_all)


class Mailbox(Generic[T]):
    """Any thread puts, or only that of `source`; `take` is called on the loop, once for each thing, in the order of the putting.

    Needs no lock: threads only add to one end of a deque, and the loop only takes from the other.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[T], None],
        *,
        source: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop
        self._take = take
        self._source = source
        self._waiting: deque[T] = deque()
        self._is_called = False

    def put(self, thing: T) -> None:
        """RuntimeError when the loop is closed."""
        self._waiting.append(thing)
        if not self._is_called:
            # Two threads may both find it false; then the loop comes twice, and finds nothing the second time.
            self._is_called = True
            try:
                self._call()
            except RuntimeError:
                self._is_called = False  # the next who puts is told as well
                raise

    def __len__(self) -> int:
        """Things that wait."""
        return len(self._waiting)

    def left(self) -> list[T]:
        """What was put in and nobody took, once the loop is closed; it is taken out. Nothing before that."""
        found: list[T] = []
        if self._loop.is_closed():
            self._is_called = False  # first, so that whoever puts from now on is told
            while self._waiting:
                found.append(self._waiting.popleft())
        return found

    def _call(self) -> None:
        if self._source is None:
            self._loop.call_soon_threadsafe(self._empty)
        elif self._loop.is_closed():
            raise RuntimeError("the loop is closed")
        else:
            self._source.call_soon(self._wake)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            self._is_called = False  # closed meanwhile: the next who puts is told

    def _empty(self) -> None:
        self._is_called = False  # first, so that whoever puts from now on calls again
        try:
            while self._waiting:
                self._take(self._waiting.popleft())
        finally:
            if self._waiting:  # one could not be taken, which is no fault of the others
                self._loop.call_soon(self._empty)
