"""Usual messages: which may go by the outbox, and the tray of each topic there.

    message ── no flag, no time of its own, a body that stays as it is ──► tray of its topic ──► outbox
            └─ anything else, or somebody watches ──► None: it goes the way of `sending`

Who finds a tray for a topic need not look at the rest: there is none while the outbox is not used, and after the end.
"""

from typing import NamedTuple

from pocketmq.client.outbox import MAX_TRAYS, NO_QUEUE, Outbox, Tray
from pocketmq.client.outgoing import Packer
from pocketmq.client.queue_choice import ANY_QUEUE, Wish
from pocketmq.client.retries import SendKind
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue


class UsualMessage(NamedTuple):
    """A message for the outbox: what `Outbox.put` wants."""

    tray: Tray
    body: bytes
    own: str
    size: int
    kind: SendKind
    queue: MessageQueue = NO_QUEUE
    wish: Wish = ANY_QUEUE


class UsualMessages:
    """Those of one producer. `is_allowed` is False when all of its messages go another way."""

    def __init__(self, outbox: Outbox, packer: Packer, *, is_allowed: bool) -> None:
        self.is_allowed = is_allowed
        self.trays: dict[object, Tray] = {}
        """By topic."""
        self._outbox = outbox
        self._packer = packer
        self._below_bytes = packer.usual_bytes
        self._overhead = packer.usual_overhead

    def find(self, message: Message, wish: Wish, kind: SendKind) -> UsualMessage | None:
        """What the outbox needs to know of a message; None when it goes another way."""
        body = message.body
        if not self.is_allowed or type(body) is not bytes or not 0 < len(body) < self._below_bytes:
            return None
        own = self._packer.usual_properties(message)
        if own is None:
            return None
        tray = self.trays.get(message.topic) or self.new_tray(message)
        queue = NO_QUEUE if wish is ANY_QUEUE else self._outbox.chosen(tray, message, wish)
        if queue is None:
            return None
        return UsualMessage(tray, body, own, len(body) + len(own) + self._overhead, kind, queue, wish)

    def new_tray(self, message: Message) -> Tray:
        """That of its topic, if messages may be sent there at all."""
        self._packer.checked_body(message)
        if len(self.trays) >= MAX_TRAYS:
            self.trays.clear()
        tray = self.trays[message.topic] = self._outbox.tray(message.topic)
        return tray
