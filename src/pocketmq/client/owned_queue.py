"""A queue that this member reads at the moment: what is in flight of it, where its next pull begins, and who pulls it.

    taken ──► pulled by a loop, consumed ──► leaving: nothing more is pulled or begun ──► idle, or time is up ──► dropped

Whoever takes a queue makes a new one; nothing of an earlier time, when it was read before, is left in it.
"""

import asyncio
from collections.abc import Callable

from pocketmq.client.process_queue import ProcessQueue
from pocketmq.model.queue import MessageQueue
from pocketmq.net.peer import Peer


class OwnedQueue:
    """State that rebalance, pull loop and listening share. All of them live on one loop."""

    __slots__ = (
        "_idle",
        "awaits_topic",
        "done_heard",
        "earlier",
        "enough",
        "flight",
        "is_in_doubt",
        "is_leaving",
        "is_listed",
        "is_paused",
        "last_pulled",
        "leave_heard",
        "line",
        "next_offset",
        "pulling",
        "queue",
        "reread",
        "start_after_s",
    )

    def __init__(
        self,
        queue: MessageQueue,
        flight: ProcessQueue,
        next_offset: int,
        *,
        start_after_s: float = 0.0,
        reread: bool = False,
    ) -> None:
        self.queue = queue
        self.flight = flight
        self.next_offset = next_offset
        self.start_after_s = start_after_s
        """The first pull waits so long: another member may still be finishing what it has of the queue."""
        self.reread = reread
        """Ask once more where the group is before the first pull."""
        self.awaits_topic = False
        """Its topic was deleted: when there is one again, ask where the group is, and begin at 0 if it is nowhere."""
        self.last_pulled: tuple[int, int] | None = None
        """Offset and store time of the last message that was pulled, also before the queue was begun anew: by it the log is known."""
        self.is_in_doubt = False
        """A pull failed since, or the master was connected again: the broker may be another process by now, whose log is shorter."""
        self.line: Peer | None = None
        """The line to the master of its broker when it was pulled last."""
        self.earlier: OwnedQueue | None = None
        """The same queue before it was begun anew, if a listener may still work on it that nobody else may meet."""
        self.is_leaving = False
        self.is_paused = False
        self.is_listed = False
        """Whether listening knows that messages wait here."""
        self.enough: int | None = None
        """With more than this in flight listeners have enough of it for a while; None when nobody can tell."""
        self.done_heard: Callable[[], None] | None = None
        """Who waits for listeners to catch up."""
        self.leave_heard: Callable[[OwnedQueue], None] | None = None
        """Who has given messages of it to listeners."""
        self.pulling: asyncio.Task[None] | None = None
        self._idle: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<OwnedQueue {self.queue} at {self.next_offset}>"

    @property
    def is_active(self) -> bool:
        """Whether messages of it may be given to listeners."""
        return not (self.is_leaving or self.flight.is_dropped)

    @property
    def has_enough(self) -> bool:
        return self.enough is not None and self.flight.count > self.enough

    def note_done(self) -> None:
        """Something that was being consumed is not any more."""
        if self.done_heard is not None:
            self.done_heard()
        if self._idle is not None and not self.flight.consuming:
            self._idle.set()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Whether nothing of it is being consumed, at once or before the time is up."""
        if self.earlier is not None and not await self.earlier.wait_idle(timeout_s):
            return False
        self.earlier = None
        if not self.flight.consuming:
            return True
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        finally:
            self._idle = None
        return True

    def leave(self) -> None:
        """Nothing more of it is pulled or begun."""
        self.is_leaving = True
        self._stop_pulling()
        if self.leave_heard is not None:
            self.leave_heard(self)

    def _stop_pulling(self) -> None:
        """No pull of it is sent any more; the answer to one under way is not waited for."""
        task, self.pulling = self.pulling, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
