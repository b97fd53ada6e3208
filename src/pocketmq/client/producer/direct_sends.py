"""Sends of threads that wait for each result: straight over a socket, past the loop.

    thread ── a line that no other thread uses, or a new one ──► request ──► answer ──► SendResult
                    └─ too many, no route yet, no connection, batches, hooks, TLS, an order to keep: the loop does it

Only the first attempt goes this way. What comes of a failure is the loop's business, as is everything that a broker asks: these
lines are never greeted, so no broker sends anything over them but answers. Threads only read what the loop owns (routes,
addresses); at worst they read what has just changed, as a message does that is already on its way.
"""

from typing import Final, NamedTuple

from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.producer.queue_choice import Destination
from pocketmq.client.producer.results import SendResult, result_of
from pocketmq.clock import Clock
from pocketmq.errors import ConnectFailed, PocketMQError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.blocking import BlockingConnection, IdleConnections

MAX_LINES: Final = 64
"""Lines to one broker; a thread that finds them all busy takes the way over the loop."""
LEAST_CONNECT_S: Final = 0.001
"""No time at all would mean something else to the system: not to wait, and to be told that it is being done."""


class Failed(NamedTuple):
    """A first attempt that failed: what `Attempts.go_on` wants to know."""

    out: Outgoing
    destination: Destination
    left_s: float
    queue: MessageQueue
    failure: PocketMQError


class DirectSends:
    """The lines of one producer's threads. All of it may be called from any thread."""

    def __init__(self, outbox: Outbox, clock: Clock, *, connect_s: float) -> None:
        self._outbox = outbox
        self._clock = clock
        self._unreached: set[Address] = set()
        """Addresses that could not be connected. Until the loop has a line there, threads do not try: see `comebacks`."""

        def connect(address: Address, within_s: float) -> BlockingConnection:
            return BlockingConnection(address, clock, connect_s=max(min(connect_s, within_s), LEAST_CONNECT_S))

        self.connections = IdleConnections(connect, most=MAX_LINES)

    def attempt(
        self, message: Message, destination: Destination, timeout_s: float | None = None
    ) -> SendResult | Failed | None:
        """Pack a message, and make the first attempt to send it; None when it has to go over the loop."""
        out = self._outbox.packer.pack(message)
        timeout_s = self._outbox.timeout_s if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + timeout_s
        aim = self._outbox.aim(out, destination)
        if aim is None:
            return None
        queue, address = aim
        if self._unreached and address in self._unreached:
            if not self._outbox.is_connected(address):
                return None
            self._unreached.discard(address)
        try:
            connection = self.connections.take(address, timeout_s)
            if connection is None:
                return None
            try:
                number = connection.next_number()
                frame = self._outbox.frames.encode(out, queue, self._clock.now_ms(), number)
                # Time that changes with every message would have to be told to the system each time: see `blocking_line`.
                left_s = timeout_s if number > 1 else deadline - self._clock.monotonic()
                # Threads that look for their answers at once would only keep each other from running.
                answer = connection.exchange(number, frame, left_s, watches=self.connections.taken == 1)
            finally:
                self.connections.give(connection)
            return result_of(answer, out.message_id, self._outbox.choice.shown(queue))
        except PocketMQError as failure:
            if isinstance(failure, ConnectFailed):
                self._unreached.add(address)
            return Failed(out, destination, deadline - self._clock.monotonic(), queue, failure)

    def close(self) -> None:
        """Close the lines that nobody uses; the others follow when they are given back. Harmless when done twice."""
        self.connections.close()
