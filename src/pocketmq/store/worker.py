"""A thread for calls that block: it runs the jobs of its owner, and returns the results to the owner's thread.

    owner's thread                            worker's thread
    submit(work, done, failed) ── jobs ─────► work()
    settle() ◄──────────────── outcomes ───── result or error
        └─ done(result) | failed(error)         └─ post(settle): wakes the owner

So every state of the store has one owner and no lock: the threads share only the two queues. The owner may also call
`settle` itself when it cannot wait for its loop: while closing, or when it needs the result now.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from pocketmq.errors import WrongState

Post = Callable[[Callable[[], None]], object]
"""Runs a callback on the owner's thread soon; for example `loop.call_soon_threadsafe`."""

T = TypeVar("T")

log = logging.getLogger("pocketmq.store")


class Worker:
    """One thread that runs jobs one after the other. It starts with the first job; `close` ends it."""

    def __init__(self, name: str, post: Post | None = None) -> None:
        self._name = name
        self._post = post
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._unsettled = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self.failed_starts = 0
        """How often the thread could not be started."""

    @property
    def busy(self) -> bool:
        """Whether there is a submitted job whose result the owner has not processed."""
        return self._unsettled > 0

    @property
    def lacks_thread(self) -> bool:
        """Whether jobs wait because the system cannot start a thread."""
        return self._unsettled > 0 and self._thread is None

    def submit(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Run `work` on the thread; then `done` or `failed` on the owner's thread."""
        if self._closed:
            raise WrongState(f"{self._name} is closed")
        self._unsettled += 1
        self._jobs.put(partial(self._carry_out, work, done, failed))
        self._start()

    def _start(self) -> None:
        """Start the thread, unless it runs. If the system cannot start one, jobs wait, and the next `settle` retries."""
        if self._thread is not None:
            return
        # A daemon: a program must be able to end without closing its store, which is a crash for the store. Set
        # before the start: an outcome may arrive, and submit the next job, before `start` returns.
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._thread = None
            self.failed_starts += 1
            if self.failed_starts == 1:
                log.error("cannot start the thread %s; retrying: %s", self._name, error or type(error).__name__)
            return
        if self.failed_starts:
            log.warning("started the thread %s after %d failed attempts", self._name, self.failed_starts)

    def settle(self) -> None:
        """Owner: process the finished jobs. Call it at every tick, too: it also retries to start the thread."""
        if self._unsettled and self._thread is None and not self._closed:
            self._start()
        while True:
            try:
                outcome = self._outcomes.get_nowait()
            except Empty:
                return
            self._unsettled -= 1
            outcome()

    def drain(self, timeout_s: float) -> bool:
        """Owner: wait until all jobs submitted so far are done, and process them; False after the timeout."""
        if self._unsettled:
            self._start()
        if self._thread is not None:
            idle = threading.Event()
            self._jobs.put(idle.set)
            if not idle.wait(timeout_s):
                return False
        else:
            self._run_here()
        self.settle()
        return True

    def _run_here(self) -> None:
        """Without a thread, the owner runs the jobs itself: only if it would wait for them anyway."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job()

    def close(self, timeout_s: float) -> bool:
        """Owner: end the thread after the jobs submitted so far. A second call does nothing. Returns False after the
        timeout: a call to the disk has not returned. The thread ends when the call returns.
        """
        self._closed = True
        if self._thread is None:
            self._run_here()
            self.settle()
            return True
        self._jobs.put(None)
        self._thread.join(timeout_s)
        self.settle()
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _carry_out(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        try:
            result = work()
        except Exception as error:  # the owner must receive every exception
            self._outcomes.put(partial(failed, error))
        else:
            self._outcomes.put(partial(done, result))
        # An owner that closes processes results itself, and its loop may be closed.
        if self._post is not None and not self._closed:
            try:
                self._post(self.settle)
            except (
                RuntimeError,
                MemoryError,
            ):  # a closed loop, or no memory: the owner's next tick processes the outcome, and the thread continues
                log.exception("%s could not wake the event loop; the next tick processes the result", self._name)
