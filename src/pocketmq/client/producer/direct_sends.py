"""Sends of threads that wait for each result: over a blocking socket, without the event loop.

    thread ── an idle connection, or a new one ──► request ──► response ──► SendResult
                    └─ too many connections, no route yet, no master, batches, hooks, TLS, an order to keep: the loop sends

Only the first attempt is made here. The loop handles failures and all requests from brokers: these connections never send a heartbeat, so
a broker sends only responses over them. Threads only read the loop's state (routes, addresses). It may have just changed, which is the
same as for a message that is already in flight.
"""

from typing import Final, NamedTuple

from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.producer.queue_choice import Destination
from pocketmq.client.producer.results import SendResult, result_of
from pocketmq.clock import Clock
from pocketmq.errors import ConnectFailed, PocketMQError
from pocketmq.model import Message, MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.blocking import BlockingConnection, IdleConnections

MAX_CONNECTIONS: Final = 64
"""Connections to one broker. When all are busy, the loop sends."""
LEAST_CONNECT_S: Final = 0.001
"""A timeout of 0 would make the socket non-blocking."""


class Failed(NamedTuple):
    """A failed first attempt: the arguments of `Attempts.continue_after`."""

    out: Outgoing
    destination: Destination
    left_s: float
    queue: MessageQueue
    failure: PocketMQError


class DirectSends:
    """The blocking connections of one producer. Thread-safe."""

    def __init__(self, outbox: Outbox, clock: Clock, *, connect_s: float) -> None:
        self._outbox = outbox
        self._clock = clock
        self._unreached: set[Address] = set()
        """Addresses that cannot be connected. Threads do not try them until the loop is connected, see `Reconnects`."""

        def connect(address: Address, within_s: float) -> BlockingConnection:
            return BlockingConnection(address, clock, connect_s=max(min(connect_s, within_s), LEAST_CONNECT_S))

        self.connections = IdleConnections(connect, most=MAX_CONNECTIONS)

    def attempt(
        self, message: Message, destination: Destination, timeout_s: float | None = None
    ) -> SendResult | Failed | None:
        """Pack a message and make the first attempt to send it; None when the loop must send it."""
        out = self._outbox.packer.pack(message)
        timeout_s = self._outbox.timeout_s if timeout_s is None else timeout_s
        deadline = self._clock.monotonic() + timeout_s
        target = self._outbox.direct_target(out, destination)
        if target is None:
            return None
        queue, address = target
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
                # The same timeout for every message saves a system call, see `blocking_connection`.
                left_s = timeout_s if number > 1 else deadline - self._clock.monotonic()
                # Threads that poll for their responses at the same time would keep each other from running.
                answer = connection.exchange(number, frame, left_s, watches=self.connections.in_use == 1)
            finally:
                self.connections.give(connection)
            return result_of(answer, out.message_id, self._outbox.choice.shown(queue))
        except PocketMQError as failure:
            if isinstance(failure, ConnectFailed):
                self._unreached.add(address)
            return Failed(out, destination, deadline - self._clock.monotonic(), queue, failure)

    def close(self) -> None:
        """Close idle connections now and the others after use. May be called twice."""
        self.connections.close()
