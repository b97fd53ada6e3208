"""Pulls of a thread that reads megabytes, on its own connections instead of the event loop.

    send(receiver, …)    ──► request; one connection to each broker for all receivers of the thread
    receive(receiver)    ◄── next response on that connection, of any receiver: body ──► buffer of its receiver
                                └─ connection lost, timeout, refused ──► all its receivers fail, and use the event loop instead

As for `DirectSends`, no heartbeat is sent on these connections, so brokers send only responses on them. Threads only read the routes and
addresses that belong to the event loop, and sign with keys that never change.
"""

from typing import Final, Protocol

from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.received import is_hole, passes_over
from pocketmq.clock import Clock
from pocketmq.codes import ResponseCode
from pocketmq.errors import PocketMQError, ProtocolError, TooManyCalls, error_for
from pocketmq.model import MessageQueue, Subscription
from pocketmq.net import Address
from pocketmq.net.blocking import BlockingCalls, IdleConnections

MAX_CONNECTIONS: Final = 16
"""Connections to one broker. A thread that gets none uses the event loop."""


class PullReceiver(Protocol):
    """Waits for the response to a pull."""

    def buffer(self, size: int) -> memoryview:
        """A buffer for `size` bytes of records."""

    def received(self, next_offset: int, min_offset: int, max_offset: int) -> None:
        """The records are in the buffer."""

    def fail(self, error: PocketMQError) -> None:
        """There is no response, or it is an error."""


def connections_for_pulls(clock: Clock, *, connect_s: float) -> IdleConnections[BlockingCalls]:
    """The connections of all threads of a client."""
    return IdleConnections(lambda address, _: BlockingCalls(address, clock, connect_s=connect_s), most=MAX_CONNECTIONS)


class _PendingPulls:
    """A connection, and its receivers by request number."""

    def __init__(self, connection: BlockingCalls) -> None:
        self.connection = connection
        self.waiting: dict[int, tuple[PullReceiver, MessageQueue, int, bool]] = {}
        """With queue and offset of the request, and whether it has no filter."""


class DirectPulls:
    """The pulls of one thread."""

    def __init__(self, pulls: Pulling, connections: IdleConnections[BlockingCalls], *, timeout_s: float) -> None:
        self._pulls = pulls
        self._connections = connections
        self._timeout_s = timeout_s
        self._pending: dict[Address, _PendingPulls] = {}
        self._by_receiver: dict[PullReceiver, _PendingPulls] = {}

    def send(
        self,
        receiver: PullReceiver,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        limit: int,
        more_flags: int = 0,
    ) -> None:
        """Send a pull. An error is passed to the receiver."""
        pending = None
        try:
            address = self._pulls.address_of(queue)
            pending = self._pending.get(address)
            if pending is None:
                connection = self._connections.take(address)
                if connection is None:
                    raise TooManyCalls(
                        f"{MAX_CONNECTIONS} connections to {address} are in use, or the client is stopping"
                    )
                pending = self._pending[address] = _PendingPulls(connection)
            number = pending.connection.next_number()
            pending.waiting[number] = receiver, queue, offset, subscription.matches_all
            self._by_receiver[receiver] = pending
            pending.connection.send(
                self._pulls.frame(queue, offset, subscription, limit, more_flags, number), self._timeout_s
            )
        except PocketMQError as error:
            receiver.fail(error)
            if pending is not None:
                self._connection_lost(pending, error)

    def receive(self, receiver: PullReceiver) -> None:
        """Read the next response on the connection of a receiver. It may be that of another one."""
        pending = self._by_receiver[receiver]
        try:
            answer, size = pending.connection.head(self._timeout_s)
            found = pending.waiting.get(answer.opaque) if answer.is_response else None
            buffer = memoryview(bytearray(size)) if found is None else found[0].buffer(size)
            pending.connection.body_into(buffer, self._timeout_s)
        except PocketMQError as error:
            self._connection_lost(pending, error)
            return
        if found is None:
            return  # not a response to one of our requests
        owner, queue, offset, takes_all = found
        del pending.waiting[answer.opaque], self._by_receiver[owner]
        try:
            code, header, _, _ = self._pulls.parse_records(queue, answer)
            if code == ResponseCode.PULL_OFFSET_MOVED:
                raise error_for(code, answer.remark)  # the message may exist: an administrator has reset the group
            if is_hole(code, header.next_begin_offset, offset):
                raise ProtocolError(f"the queue has a gap at offset {offset}")
            if takes_all and passes_over(code, buffer, offset):
                raise ProtocolError(f"the response skips messages at offset {offset}")
        except PocketMQError as error:
            owner.fail(error)
        else:
            owner.received(header.next_begin_offset, header.min_offset, header.max_offset)

    def close(self) -> None:
        """Release the connections. Those with pending responses are closed."""
        for pending in self._pending.values():
            if pending.waiting:
                pending.connection.close()
            self._connections.give(pending.connection)
        self._pending.clear()

    def _connection_lost(self, pending: _PendingPulls, error: PocketMQError) -> None:
        """Close the connection and fail its receivers. The next pull gets another connection."""
        pending.connection.close()
        if self._pending.get(pending.connection.address) is pending:
            self._connections.give(pending.connection)
        self._pending = {address: other for address, other in self._pending.items() if other is not pending}
        waiting, pending.waiting = pending.waiting, {}
        for receiver, *_ in waiting.values():
            self._by_receiver.pop(receiver, None)
            receiver.fail(error)
