"""Messages on their way from a lite pull consumer to its user: which of them he has, and which of those are done.

handed out ──► got: he has it ──► done: he came back for more, or for the next of an iteration
"""

from collections.abc import Iterator, Sequence

from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.model.message import StoredMessage


class Handed:
    """Messages that were handed out, on their way to the user. He takes them in his own thread, at once or one by one."""

    __slots__ = ("_seen", "done", "got", "messages", "owned")

    def __init__(self, owned: OwnedQueue, messages: Sequence[StoredMessage], seen: Sequence[StoredMessage]) -> None:
        self.owned = owned
        self.messages = messages
        self._seen = seen
        self.got = 0
        """How many of them he has: done when he comes back."""
        self.done = 0
        """How many of them are done whatever happens to him."""

    def at_once(self) -> list[StoredMessage]:
        self.got = len(self._seen)
        return list(self._seen)

    def one_by_one(self) -> Iterator[StoredMessage]:
        """Each is done when the next one is asked for."""
        for at, message in enumerate(self._seen):
            self.got, self.done = at + 1, at
            yield message
        self.done = self.got
