"""Pulls of a thread that reads megabytes: over lines of its own, past the loop.

    ask(taker, …) ──► request, of as many takers as there are ──► one line to each broker
    pump(taker)   ◄── the next answer there, whoever's it is: body ──► the room that its taker has for it
                          └─ line lost, time is up, refused ──► all takers there fail: the loop can do it, and say what is wrong

As with `direct_sends`, these lines are never greeted, so no broker sends anything over them but answers. Threads only read what the loop
owns (routes, addresses), and sign with keys that never change.
"""

from typing import Final, Protocol

from pocketmq.client.cluster.message_calls import is_hole, passes_over
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.clock import Clock
from pocketmq.codes import ResponseCode
from pocketmq.errors import PocketMQError, ProtocolError, TooManyCalls, error_for
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.net.address import Address
from pocketmq.net.blocking import BlockingCalls, IdleConnections

MAX_LINES: Final = 16
"""Lines to one broker; a thread that finds them all busy takes the way over the loop."""


class Taker(Protocol):
    """Who waits for the answer to a pull."""

    def room(self, size: int) -> memoryview:
        """Where the `size` bytes of its records go."""

    def take(self, next_offset: int, min_offset: int, max_offset: int) -> None:
        """They are there; what the answer says beside them."""

    def fail(self, error: PocketMQError) -> None:
        """There will be no answer, or it is a refusal."""


def connections_for_pulls(clock: Clock, *, connect_s: float) -> IdleConnections[BlockingCalls]:
    """The lines of one client's threads."""
    return IdleConnections(lambda address, _: BlockingCalls(address, clock, connect_s=connect_s), most=MAX_LINES)


class _Asked:
    """A line, and who waits on it, by the number of his request."""

    def __init__(self, connection: BlockingCalls) -> None:
        self.connection = connection
        self.waiting: dict[int, tuple[Taker, MessageQueue, int, bool]] = {}
        """With the offset that was asked for, and whether all messages from there on were."""


class DirectPulls:
    """The pulls of one thread."""

    def __init__(self, pulls: Pulling, connections: IdleConnections[BlockingCalls], *, timeout_s: float) -> None:
        self._pulls = pulls
        self._connections = connections
        self._timeout_s = timeout_s
        self._asked: dict[Address, _Asked] = {}
        self._places: dict[Taker, _Asked] = {}

    def ask(
        self,
        taker: Taker,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        limit: int,
        more_flags: int = 0,
    ) -> None:
        """Send a pull, whose answer the taker will have. What goes wrong, he is told."""
        asked = None
        try:
            address = self._pulls.address_of(queue)
            asked = self._asked.get(address)
            if asked is None:
                connection = self._connections.take(address)
                if connection is None:
                    raise TooManyCalls(f"{MAX_LINES} lines to {address} are in use, or the client is stopping")
                asked = self._asked[address] = _Asked(connection)
            number = asked.connection.next_number()
            asked.waiting[number] = taker, queue, offset, subscription.takes_all
            self._places[taker] = asked
            asked.connection.send(
                self._pulls.frame(queue, offset, subscription, limit, more_flags, number), self._timeout_s
            )
        except PocketMQError as error:
            taker.fail(error)
            if asked is not None:
                self._lost(asked, error)

    def pump(self, taker: Taker) -> None:
        """Take the next answer on the line on which the taker waits, his own or another's."""
        asked = self._places[taker]
        try:
            answer, size = asked.connection.head(self._timeout_s)
            found = asked.waiting.get(answer.opaque) if answer.is_response else None
            room = memoryview(bytearray(size)) if found is None else found[0].room(size)
            asked.connection.body_into(room, self._timeout_s)
        except PocketMQError as error:
            self._lost(asked, error)
            return
        if found is None:
            return  # for nobody who is known here
        whose, queue, offset, wants_all = found
        del asked.waiting[answer.opaque], self._places[whose]
        try:
            code, told, _, _ = self._pulls.heard(queue, answer)
            if code == ResponseCode.PULL_OFFSET_MOVED:
                raise error_for(code, answer.remark)  # what lies at the offset may be there: the group was reset
            if is_hole(code, told.next_begin_offset, offset):
                raise ProtocolError(f"there is a hole in the queue at {offset}")
            if wants_all and passes_over(code, room, offset):
                raise ProtocolError(f"messages at {offset} are passed over, as if they were none")
        except PocketMQError as error:
            whose.fail(error)
        else:
            whose.take(told.next_begin_offset, told.min_offset, told.max_offset)

    def close(self) -> None:
        """Lines on which an answer is still to come cannot be used again."""
        for asked in self._asked.values():
            if asked.waiting:
                asked.connection.close()
            self._connections.give(asked.connection)
        self._asked.clear()

    def _lost(self, asked: _Asked, error: PocketMQError) -> None:
        """The line is of no use any more: who waits there is told, and the next one who asks gets another."""
        asked.connection.close()
        if self._asked.get(asked.connection.address) is asked:
            self._connections.give(asked.connection)
        self._asked = {address: other for address, other in self._asked.items() if other is not asked}
        waiting, asked.waiting = asked.waiting, {}
        for taker, *_ in waiting.values():
            self._places.pop(taker, None)
            taker.fail(error)
