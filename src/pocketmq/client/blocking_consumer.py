"""What all blocking consumers are made of: an async one on the shared loop thread.

After a fork a consumer belongs to the parent process, which goes on reading: the child is refused, and makes its own. One that was made
but not started before the fork may be started in the child.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from pocketmq.client.async_consumer import AsyncConsumer
from pocketmq.client.blocking import BlockingClient
from pocketmq.client.identity import require_same_process

C = TypeVar("C", bound=AsyncConsumer[Any, Any])


class BlockingConsumer(BlockingClient[C]):
    """Base of the blocking consumers."""

    def __init__(self, make: Callable[[], C]) -> None:
        super().__init__(make, "consumer")
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

    def _begin_anew(self) -> None:
        require_same_process(self._made_in, "consumer")
