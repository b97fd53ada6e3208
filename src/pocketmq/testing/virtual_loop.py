"""An event loop with virtual time: when nothing is ready, it jumps to the next timer instead of sleeping.

    loop turn ── select(timeout) ── something ready ───────────► handle it
                      │ nothing
                      ├─ a thread is working ─────────────────► wait in real time; virtual time stops
                      ├─ a real socket is open ────────────────► wait `io_grace_s` of real time, then jump
                      ├─ a timer is due later ─────────────────► now = its time; an hour takes microseconds
                      ├─ … later than `timeout_s` ─────────────► Stuck
                      └─ no timer, no I/O, no thread ──────────► Stuck, with the waiting tasks

Virtual time stops while `run_in_executor` or `asyncio.to_thread` is running. The loop does not know other threads that use
`call_soon_threadsafe`: register them with `hold_while`, or time may pass before they call. Before the loop reports a deadlock,
running threads get `patience_s` of real time to call. If a test blocks threads on purpose, register their number with
`count_stalled`, so that time continues.

A run without threads and real sockets is repeatable. `run` seeds the module `random` and restores its state.
"""

import asyncio
import random
import selectors
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from pocketmq.errors import Stuck

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LONGEST_RUN_S = 86_400.0
"""Virtual time after which a loop gives up: a day."""
PATIENCE_S = 5.0
"""Real time for threads and sockets before the loop reports a deadlock."""
IO_GRACE_S = 0.01
"""Real time for open sockets before each jump."""
MAX_TURNS = 1_000_000
"""The limit on loop iterations without any passing of time, which means that a task spins."""
_POLL_S = 0.001


class JumpingSelector(selectors.BaseSelector):
    """A selector that sets `now` to the next timer instead of sleeping."""

    def __init__(self, timeout_s: float, patience_s: float, io_grace_s: float, max_turns: int) -> None:
        self.now = 0.0
        self.own_files = 0
        self.jobs = 0
        self.holds: list[Callable[[], bool]] = []
        self.stalls: list[Callable[[], int]] = []
        self._real = selectors.DefaultSelector()
        self._timeout_s = self._end = timeout_s
        self._patience_s = patience_s
        self._io_grace_s = io_grace_s
        self._max_turns = max_turns
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if timeout is not None and timeout <= 0:
            self._turns += 1
            if self._turns > self._max_turns:
                self._turns = 0  # lets tasks clean up
                raise Stuck(
                    f"{self._max_turns} iterations of the loop without any passing of time: a task spins without waiting"
                )
            return ready
        self._turns = 0
        return ready or self._wait(timeout)

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        if ready := self._wait_for_threads():
            return ready
        sockets_open = len(self._real.get_map()) > self.own_files
        if timeout is None:
            # An open socket or an unregistered thread may still call.
            patience_s = self._patience_s if sockets_open or threading.active_count() > 1 else 0
            if ready := self._real.select(patience_s):
                return ready
            raise Stuck("deadlock: no timer, I/O or thread can wake a task")
        if sockets_open and (ready := self._real.select(self._io_grace_s)):
            return ready
        self._jump(timeout)
        return []

    def _jump(self, seconds: float) -> None:
        if self.now + seconds > self._end:
            self.now = self._end
            self._end += self._timeout_s  # lets tasks clean up
            raise Stuck(f"not finished after {self.now} virtual seconds; use a larger timeout_s if this is intended")
        self.now += seconds

    def _wait_for_threads(self) -> list[tuple[selectors.SelectorKey, int]]:
        waited_s = 0.0
        while self._working_threads() > 0:
            if ready := self._real.select(_POLL_S):
                return ready
            waited_s += _POLL_S
            if waited_s > self._patience_s:
                raise Stuck(f"the loop has waited for a thread for {self._patience_s} s of real time")
        return self._real.select(0)

    def _working_threads(self) -> int:
        return self.jobs + sum(hold() for hold in self.holds) - sum(stalled() for stalled in self.stalls)

    def register(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping["FileDescriptorLike", selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop for `asyncio.Runner(loop_factory=VirtualLoop)`; `run` does that."""

    def __init__(
        self,
        *,
        seed: int = 0,
        timeout_s: float = LONGEST_RUN_S,
        patience_s: float = PATIENCE_S,
        io_grace_s: float = IO_GRACE_S,
        max_turns: int = MAX_TURNS,
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311 repeatable, not secret
        self._jumping = JumpingSelector(timeout_s, patience_s, io_grace_s, max_turns)
        super().__init__(self._jumping)
        self._jumping.own_files = len(self._jumping.get_map())

    def time(self) -> float:
        return self._jumping.now

    def hold_while(self, busy: Callable[[], bool]) -> None:
        """Stop virtual time while `busy()` is true: a thread works and will call this loop."""
        self._jumping.holds.append(busy)

    def count_stalled(self, stalled: Callable[[], int]) -> None:
        """Do not stop virtual time for the threads that are blocked on purpose, such as `FaultyFiles.stalled`."""
        self._jumping.stalls.append(stalled)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._jumping.jobs += 1
        future.add_done_callback(self._count_job_done)
        return future

    def _count_job_done(self, _: asyncio.Future[Any]) -> None:
        self._jumping.jobs -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        # Newer Pythons join with a timeout, to which virtual time would jump at once.
        self._jumping.jobs += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._jumping.jobs -= 1

    def run_forever(self) -> None:
        try:
            super().run_forever()
        except Stuck as stuck:
            stuck.add_note(waiting_tasks(self))
            raise


def waiting_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """One line per waiting task: its name, and its call chain down to the line where it waits."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "\n".join(f"waiting: {task.get_name()}: {_call_chain(task)}" for task in tasks)


def _call_chain(task: asyncio.Task[Any]) -> str:
    steps: list[str] = []
    step: Any = task.get_coro()
    while step is not None:
        # Coroutines and generators have different attributes; a future ends the chain.
        code: CodeType | None = getattr(step, "cr_code", None) or getattr(step, "gi_code", None)
        frame: FrameType | None = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if code is None or frame is None:
            break
        steps.append(f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None)
    return " -> ".join(steps) or repr(task)


def run(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    timeout_s: float = LONGEST_RUN_S,
    patience_s: float = PATIENCE_S,
) -> T:
    """Run `main` in a virtual loop. Raises `Stuck` on a deadlock and after `timeout_s` of virtual time.

    An error has a note with the seed and the virtual time.
    """
    before = random.getstate()
    random.seed(seed)
    loop = VirtualLoop(seed=seed, timeout_s=timeout_s, patience_s=patience_s)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main)
    except Exception as error:
        error.add_note(f"virtual run with seed={seed} ended at {loop.time():.3f} s")
        raise
    finally:
        random.setstate(before)
