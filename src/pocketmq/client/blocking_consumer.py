"""What all blocking consumers are made of: an async one on the shared loop thread.

    on, subscribe, unsubscribe, assign ──┬─ before the start: told to the core at once, which waits for nothing yet
                                         └─ while running: on the loop thread, as everything else

After a fork a consumer belongs to the parent process, which goes on reading: the child is refused, and makes its own. One that was made
but not started before the fork may be started in the child: what it was told is told to the core there.
"""

import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pocketmq.client.async_consumer import AsyncConsumer
from pocketmq.client.blocking import BlockingClient
from pocketmq.client.identity import generation, require_same_process
from pocketmq.errors import WrongState

C = TypeVar("C", bound=AsyncConsumer[Any, Any])


class BlockingConsumer(BlockingClient[C]):
    """Base of the blocking consumers."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._told: list[Callable[[C], object]] = []

        def make_and_tell() -> C:
            core = make()
            for tell in self._told:
                tell(core)
            return core

        super().__init__(make_and_tell, "consumer")
        self._over = threading.Event()

    def stop(self) -> None:
        """Take no more messages, wait for those in work, leave the group. Harmless when done twice, or without a start."""
        super().stop()
        self._over.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the consumer was stopped, at once or before the time is up. Ctrl-C ends the waiting."""
        return self._over.wait(timeout_s)

    @property
    def client_id(self) -> str:
        """How brokers call this client."""
        return self.core().client_id

    def _tell_new(self, tell: Callable[[C], object]) -> bool:
        """Tell the core something before the start; False when it is too late for that."""
        with self._lock:
            if not self.is_new:
                return False
            if self._made_in != generation():
                self._replace_core()
            tell(self._core)
            self._told.append(tell)
            return True

    def _tell(self, work: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        """Tell the core something, before the start or while running."""
        if not self._tell_new(lambda core: _at_once(work(core))):
            self.call(work(self.core()))

    def _begin_anew(self) -> None:
        require_same_process(self._made_in, "consumer")


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that has nothing to wait for, with or without a loop around."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise WrongState("this has to wait for others, which it can only once the consumer was started")
