"""Following a topic: its queues are looked at in turn, and what came since the last look is read.

    look ── min … max of each queue ──► read from where the last look ended ──► sorted by the time of storing

Nothing is subscribed and nothing committed, so nobody's group changes by being watched.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from pocketmq.client.blocking_admin import Admin

MAX_AT_ONCE = 1_000
"""Messages that are read at once: of one queue and one look, more wait for the next."""


class Tail:
    """Where a follower is in each queue of a topic; only messages that are `wanted` are handed out."""

    def __init__(self, admin: "Admin", topic: str, wanted: Callable[[StoredMessage], bool]) -> None:
        self._admin = admin
        self._topic = topic
        self._wanted = wanted
        self._next: dict[MessageQueue, int] = {}
        self.is_at_end = False
        """Whether the last look left nothing behind."""

    def newest(self, count: int) -> list[StoredMessage]:
        """Begin with the newest of all queues together. Those that are not wanted count too, for they have to be read."""
        found: list[StoredMessage] = []
        for state in self._admin.topics.describe(self._topic).queues:
            begin = max(state.min_offset, state.max_offset - count)
            self._next[state.queue] = state.max_offset
            for at in range(begin, state.max_offset, MAX_AT_ONCE):
                end = min(state.max_offset, at + MAX_AT_ONCE)
                found += self._admin.messages.in_queue(state.queue, at, end, limit=MAX_AT_ONCE)
        self.is_at_end = True
        newest = sorted(found, key=_age)[-count:] if count else []
        return [message for message in newest if self._wanted(message)]

    def what_came(self) -> list[StoredMessage]:
        """What is there since the last look, or since ever. A queue that is new, or was made anew, is read from its begin."""
        found: list[StoredMessage] = []
        self.is_at_end = True
        for state in self._admin.topics.describe(self._topic).queues:
            begin = max(self._next.get(state.queue, 0), state.min_offset)
            if begin > state.max_offset:  # the topic was made anew
                begin = state.min_offset
            end = min(state.max_offset, begin + MAX_AT_ONCE)
            if begin < end:
                found += self._admin.messages.in_queue(state.queue, begin, end, limit=MAX_AT_ONCE)
            self._next[state.queue] = end
            self.is_at_end = self.is_at_end and end == state.max_offset
        return [message for message in sorted(found, key=_age) if self._wanted(message)]


def wanted_tags(text: str | None) -> set[str] | None:
    """`A||B` as the two tags; None when all are wanted."""
    tags = {tag.strip() for tag in (text or "*").split("||")} - {""}
    return None if "*" in tags or not tags else tags


def _age(message: StoredMessage) -> tuple[int, int]:
    return message.store_ms, message.log_offset
