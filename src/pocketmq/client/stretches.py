"""Stretches: messages of a queue that came, wait or are consumed together, in the order of their offsets.

    ring:   ◄─► 10 11 12 13 ◄─► 14 15 ◄─► 16 17 … 47 ◄─► (back to the first)
                being consumed   waiting   being consumed

What happens to messages mostly happens to all that came together. So it is written down once for a stretch, and messages are not
touched one by one; a stretch is parted when some of its messages fare otherwise than the rest.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

from pocketmq.model.message import StoredMessage


class Stretch:
    """Some messages, with growing offsets. The list is exchanged when they change, never changed: others may hold it."""

    __slots__ = ("after", "before", "began", "body_bytes", "first", "last", "messages")

    def __init__(self, messages: list[StoredMessage], began: float | None = None) -> None:
        self.began = began
        """When their consumption began; None while they wait."""
        self.hold(messages)
        self.before = self.after = self

    def hold(self, messages: list[StoredMessage]) -> None:
        """These from now on."""
        self.messages = messages
        self.first, self.last = messages[0].queue_offset, messages[-1].queue_offset
        self.body_bytes = sum(map(len, [message.body for message in messages]))


class _Ring(Stretch):
    """Stands between the last and the first, and holds nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        self.before = self.after = self


class Stretches:
    """All stretches of a queue that have messages in flight."""

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        self._ring = _Ring()

    def __iter__(self) -> Iterator[Stretch]:
        stretch = self._ring.after
        while stretch is not self._ring:
            after = stretch.after
            yield stretch
            stretch = after

    @property
    def first(self) -> Stretch:
        return self._ring.after

    @property
    def last(self) -> Stretch:
        return self._ring.before

    def add(self, stretch: Stretch) -> None:
        """At the end."""
        self._insert(stretch, self._ring)

    def remove(self, stretch: Stretch) -> None:
        stretch.before.after, stretch.after.before = stretch.after, stretch.before

    def keep(self, stretch: Stretch, messages: list[StoredMessage]) -> None:
        """Let go of all its messages but these."""
        if messages:
            stretch.hold(messages)
        else:
            self.remove(stretch)

    def split(self, stretch: Stretch, count: int) -> Stretch:
        """Leave it its first messages; the others, as a stretch behind it."""
        rest = Stretch(stretch.messages[count:], stretch.began)
        self._insert(rest, stretch.after)
        stretch.hold(stretch.messages[:count])
        return rest

    def part(self, stretch: Stretch, is_other: Callable[[StoredMessage], bool]) -> Iterator[tuple[bool, Stretch]]:
        """In place of a stretch, its messages parted wherever others follow; whether each part holds those others."""
        for others, messages in groupby(stretch.messages, is_other):
            part = Stretch(list(messages), stretch.began)
            self._insert(part, stretch)
            yield others, part
        self.remove(stretch)

    def _insert(self, stretch: Stretch, after: Stretch) -> None:
        before = after.before
        stretch.before, stretch.after = before, after
        before.after = after.before = stretch
