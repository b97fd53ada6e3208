"""Sends of threads that wait for each result: straight over a socket, past the loop.

    thread ── a line that no other thread uses, or a new one ──► request ──► answer ──► SendResult
                    └─ too many, no route yet, batches, hooks, TLS: the loop does it

Only the first attempt goes this way. What comes of a failure is the loop's business, as is everything that a broker asks: these
lines are never greeted, so no broker sends anything over them but answers. Threads only read what the loop owns (routes,
addresses); at worst they read what has just changed, as a message does that is already on its way.
"""

import threading
from typing import Final, NamedTuple

from pocketmq.client.outgoing import Outgoing
from pocketmq.client.queue_choice import Wish
from pocketmq.client.results import SendResult
from pocketmq.client.sending import Sender
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.blocking_line import BlockingLine

MAX_LINES: Final = 64
"""Lines to one broker; a thread that finds them all busy takes the way over the loop."""


class Failed(NamedTuple):
    """A first attempt that failed: where, and why."""

    queue: MessageQueue
    failure: PocketMQError


class DirectSends:
    """The lines of one producer's threads. All of it may be called from any thread."""

    def __init__(self, sender: Sender, clock: Clock, *, connect_s: float) -> None:
        self._sender = sender
        self._clock = clock
        self._connect_s = connect_s
        self._idle: dict[Address, list[BlockingLine]] = {}
        self._open: dict[Address, int] = {}
        self._lock = threading.Lock()  # guards the two above; nothing is sent or waited for under it
        self._is_closed = False

    def attempt(self, out: Outgoing, wish: Wish, timeout_s: float) -> SendResult | Failed | None:
        """The first attempt to send; None when it has to go over the loop."""
        aim = self._sender.aim(out, wish)
        if aim is None:
            return None
        queue, address = aim
        try:
            line = self._take(address)
            if line is None:
                return None
            try:
                number = line.next_number()
                answer = line.exchange(number, self._sender.frame(out, queue, number), timeout_s)
            finally:
                self._give(line)
            return self._sender.result(answer, out, queue)
        except PocketMQError as failure:
            return Failed(queue, failure)

    def close(self) -> None:
        """Close the lines that nobody uses; the others follow when they are given back. Harmless when done twice."""
        with self._lock:
            self._is_closed = True
            idle = [line for lines in self._idle.values() for line in lines]
            self._idle.clear()
        for line in idle:
            line.close()

    def _take(self, address: Address) -> BlockingLine | None:
        with self._lock:
            idle = self._idle.setdefault(address, [])
            while idle:
                line = idle.pop()
                if line.is_usable():
                    return line
                line.close()
                self._open[address] -= 1
            if self._is_closed or self._open.get(address, 0) >= MAX_LINES:
                return None
            self._open[address] = self._open.get(address, 0) + 1
        try:
            return BlockingLine(address, self._clock, connect_s=self._connect_s)
        except BaseException:
            with self._lock:
                self._open[address] -= 1
            raise

    def _give(self, line: BlockingLine) -> None:
        with self._lock:
            if line.is_open and not self._is_closed:
                self._idle[line.address].append(line)
                return
            self._open[line.address] -= 1
        line.close()
