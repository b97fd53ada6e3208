"""Dead letters: messages that a group could not consume. List them, see the reason, send them again.

    %DLQ%group ── read ──► letters ── edit ──► sent to the original topic

A broker cannot delete a single message, so a letter stays after it is sent again. The new message has the id of the original one as a
property.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from pocketmq.client.admin.targets import Operations, check_limit, read_queue, shown_message
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.results import SendResult
from pocketmq.client.received import DEAD_LETTER_REASON, readable
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import PocketMQError, ProtocolError, TopicNotFound, UsageError
from pocketmq.model import Message, MessageQueue, StoredMessage, TopicName
from pocketmq.model import properties as names
from pocketmq.model.names import DLQ_PREFIX, INNER_PRODUCER_GROUP, dlq_topic, group_of, is_dlq

DEFAULT_LIMIT = 100
_HISTORY = names.RESERVED - {names.TAGS, names.KEYS, names.SHARDING_KEY}
"""Properties that describe earlier deliveries. A broker would interpret some of them as requests."""

Edit = Callable[["Letter", Message], Message | None]
"""Returns the message to send instead of the given one, or None to send nothing."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter."""

    group: str
    queue: MessageQueue
    """The queue of the dead-letter topic."""
    message: StoredMessage
    topic: str
    """The original topic."""
    original_id: str
    """The id that the producer got, as in logs and traces; the id of the broker if the producer set no id."""
    reason: str | None
    """The reason, if the consumer reported one."""

    @property
    def died_ms(self) -> int:
        return self.message.store_ms

    @property
    def attempts(self) -> int:
        """How often it was consumed without success."""
        return self.message.reconsume_times


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a resend, in the order of the letters."""

    sent: tuple[tuple[Letter, SendResult], ...] = ()
    left: tuple[Letter, ...] = ()
    """Letters for which `edit` returned None."""
    failed: tuple[tuple[Letter, str], ...] = ()
    """Letters that could not be sent, with the error."""


class DeadLetterAdmin(Operations):
    """Dead letters of groups."""

    async def counts(self) -> dict[str, int]:
        """The number of dead letters by group, for groups that ever had one."""
        await self._targets.masters()  # raises NetworkError if no broker is registered
        topics = [one for one in await self._targets.instance.name_servers.topics() if is_dlq(one)]
        mine = sorted(
            self._targets.shown(topic).removeprefix(DLQ_PREFIX) for topic in topics if self._targets.is_ours(topic)
        )
        counts = await self._targets.gather(mine, self.count)
        return dict(zip(mine, counts, strict=True))

    async def count(self, group: str) -> int:
        """The number of dead letters of a group."""
        return sum(end - begin for _, begin, end in await self.ranges(group))

    async def read(self, group: str, *, limit: int = DEFAULT_LIMIT, newest: bool = False) -> list[Letter]:
        """The oldest or newest dead letters of a group, in order of time."""
        check_limit(limit)

        async def of(bounds: tuple[MessageQueue, int, int]) -> list[Letter]:
            queue, begin, end = bounds
            begin, end = (max(begin, end - limit), end) if newest else (begin, min(end, begin + limit))
            return [self._letter(group, queue, one) async for one in read_queue(self._targets, queue, begin, end)]

        parts = await self._targets.gather(await self.ranges(group), of)
        letters = sorted((letter for part in parts for letter in part), key=lambda letter: letter.died_ms)
        return letters[-limit:] if newest else letters[:limit]

    async def resend(
        self,
        letters: Iterable[Letter],
        *,
        topic: str | None = None,
        properties: Mapping[str, str | None] | None = None,
        edit: Edit | None = None,
    ) -> Resent:
        """Send letters again, one after the other, to their original topic or to `topic`.

        `properties` sets properties, and removes those with the value None; `edit` may change the whole message. After an
        error, the next letters are sent all the same.
        """
        outbox = self._outbox()
        sent: list[tuple[Letter, SendResult]] = []
        left: list[Letter] = []
        failed: list[tuple[Letter, str]] = []
        for letter in letters:
            try:
                message: Message | None = message_to_resend(letter, topic, properties or {})
                if edit is not None and message is not None:
                    message = edit(letter, message)
                if message is None:
                    left.append(letter)
                else:
                    sent.append((letter, await outbox.deliver(outbox.packer.pack(message))))
            except PocketMQError as error:
                failed.append((letter, f"{type(error).__name__}: {error}"))
        return Resent(sent=tuple(sent), left=tuple(left), failed=tuple(failed))

    async def drop(self, group: str) -> int:
        """Delete the dead-letter topic of a group with all letters, and return their number. Single letters cannot be deleted.

        The next dead letter creates the topic again.
        """
        letters = await self.count(group)
        try:
            await TopicAdmin(self._client).delete(f"{DLQ_PREFIX}{group}")
        except TopicNotFound:
            return 0
        return letters

    async def in_queue(self, group: str, queue: MessageQueue, begin: int, end: int) -> list[Letter]:
        """Letters of one queue with offsets from `begin` to below `end`, to read many letters page by page. See `ranges`."""
        wire_queue = self._targets.wire_queue(queue)
        await self._targets.route(TopicName(wire_queue.topic))
        return [self._letter(group, wire_queue, one) async for one in read_queue(self._targets, wire_queue, begin, end)]

    async def ranges(self, group: str) -> list[tuple[MessageQueue, int, int]]:
        """The queues of the dead-letter topic, each with its minimum and maximum offset."""
        topic = dlq_topic(self._targets.group(group))
        try:
            route = await self._targets.route(topic)
        except TopicNotFound:
            await self._targets.masters()  # raises NetworkError if no broker is registered
            return []
        queues = sorted({*route.readable, *route.writable})
        calls = self._targets.brokers.offsets
        ends = await self._targets.gather(queues, calls.largest)
        begins = await self._targets.gather(queues, calls.smallest)
        return list(zip(queues, begins, ends, strict=True))

    def _letter(self, group: str, queue: MessageQueue, message: StoredMessage) -> Letter:
        properties = message.properties
        topic = properties.get(names.RETRY_TOPIC) or properties.get(names.REAL_TOPIC) or ""
        return Letter(
            group=group,
            queue=self._targets.shown_queue(queue),
            message=shown_message(self._targets, message),
            topic=self._targets.shown(topic),
            original_id=properties.get(names.UNIQ_KEY) or properties.get(names.ORIGIN_MESSAGE_ID) or message.message_id,
            reason=properties.get(DEAD_LETTER_REASON),
        )

    def _outbox(self) -> Outbox:
        instance, settings = self._targets.instance, self._targets.settings
        own = ProducerSettings(
            name_servers=settings.name_servers, namespace=settings.namespace, group=INNER_PRODUCER_GROUP
        )
        return Outbox(instance, own)


def message_to_resend(letter: Letter, topic: str | None, properties: Mapping[str, str | None]) -> Message:
    """The original message of a letter, with changed properties. Raises UsageError if the topic is unknown."""
    try:
        stored = readable(letter.message, None)
    except ProtocolError as error:
        raise UsageError(f"the body of the letter is damaged and cannot be decoded: {error}") from None
    where = topic or letter.topic
    if not where or group_of(where):
        raise UsageError(f"the letter has no original topic, only {where!r}: give topic=")
    kept = {
        name: value for name, value in stored.properties.items() if name not in _HISTORY and name != DEAD_LETTER_REASON
    }
    message = Message(TopicName(where), stored.body, flag=stored.flag)
    edits = Message(where, stored.body, properties={name: value for name, value in properties.items() if value})
    message.properties = {**kept, **edits.properties, names.ORIGIN_MESSAGE_ID: letter.original_id}
    for name in (name for name, value in properties.items() if value is None):
        message.properties.pop(name, None)
    return message
