"""Dead letters: what a group has given up on, why, and sending it once more.

    %DLQ%group ── read ──► letters ── edited? ──► sent to the topic that they were for

A broker cannot delete one message, so a letter that was sent again stays where it is; the new message names it as its origin.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from pocketmq.client.admin.targets import Targets, check_limit, read_queue, shown_message
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.producer.results import SendResult
from pocketmq.client.received import DEAD_LETTER_REASON, readable
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, ProtocolError, TopicNotFound, UsageError
from pocketmq.model import properties as names
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.names import DLQ_PREFIX, INNER_PRODUCER_GROUP, TopicName, dlq_topic, group_of, is_dlq
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.topics import TopicList
from pocketmq.protocol.java_json import read_body

DEFAULT_LIMIT = 100
_OF_ITS_PAST = names.RESERVED - {names.TAGS, names.KEYS, names.SHARDING_KEY}
"""Properties that tell what happened to it; brokers would take some of them for wishes."""

Edit = Callable[["Letter", Message], Message | None]
"""Changes a message before it is sent, or gives another; None leaves it where it is."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter."""

    group: str
    queue: MessageQueue
    """Where it lies, with `message.queue_offset`."""
    message: StoredMessage
    topic: str
    """The one that it was sent to at first."""
    original_id: str
    """The id that its producer got, which logs and traces have, too; the broker's where the producer gave none."""
    reason: str | None
    """Why it died, when its consumer said so."""

    @property
    def died_ms(self) -> int:
        return self.message.store_ms

    @property
    def attempts(self) -> int:
        """How often it was tried."""
        return self.message.reconsume_times


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of letters that were to be sent once more, in their order."""

    sent: tuple[tuple[Letter, SendResult], ...] = ()
    left: tuple[Letter, ...] = ()
    """Those that the edit did not want sent."""
    failed: tuple[tuple[Letter, str], ...] = ()
    """Those that could not be sent, and why."""


class DeadLetterAdmin:
    """Dead letters of groups."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def counts(self) -> dict[str, int]:
        """How many dead letters there are, by group; groups that never had one are not named."""
        await self._targets.masters()  # where no broker is registered, nobody knows
        answer = await self._targets.instance.name_servers.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = [topic for topic in read_body(TopicList, answer.body).topic_list if is_dlq(topic)]
        mine = sorted(
            self._targets.shown(topic).removeprefix(DLQ_PREFIX) for topic in topics if self._targets.is_ours(topic)
        )
        counts = await self._targets.gather(mine, self.count)
        return dict(zip(mine, counts, strict=True))

    async def count(self, group: str) -> int:
        """How many dead letters of a group are there."""
        return sum(end - begin for _, begin, end in await self.ranges(group))

    async def read(self, group: str, *, limit: int = DEFAULT_LIMIT, newest: bool = False) -> list[Letter]:
        """The oldest dead letters of a group, or the newest, in the order in which they died."""
        check_limit(limit)

        async def of(place: tuple[MessageQueue, int, int]) -> list[Letter]:
            queue, begin, end = place
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
        """Send letters once more, to the topic that each was for or to `topic`, one after the other.

        `properties` are set, or removed where they are None; `edit` may change all of a message. One that cannot be sent
        does not keep back the others.
        """
        outbox = self._outbox()
        sent: list[tuple[Letter, SendResult]] = []
        left: list[Letter] = []
        failed: list[tuple[Letter, str]] = []
        for letter in letters:
            try:
                message: Message | None = again(letter, topic, properties or {})
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
        """Delete all dead letters of a group, with the topic that they lie in; how many they were. Single ones cannot be deleted.

        The next one makes the topic anew.
        """
        letters = await self.count(group)
        try:
            await TopicAdmin(self._targets).delete(f"{DLQ_PREFIX}{group}")
        except TopicNotFound:
            return 0
        return letters

    async def in_queue(self, group: str, queue: MessageQueue, begin: int, end: int) -> list[Letter]:
        """Letters of one of `ranges`, with offsets from `begin` to below `end`: for whoever looks at many, page by page."""
        wire_queue = self._targets.wire_queue(queue)
        await self._targets.route(TopicName(wire_queue.topic))
        return [self._letter(group, wire_queue, one) async for one in read_queue(self._targets, wire_queue, begin, end)]

    async def ranges(self, group: str) -> list[tuple[MessageQueue, int, int]]:
        """Queues with dead letters, and from where to where they lie there."""
        topic = dlq_topic(self._targets.group(group))
        try:
            route = await self._targets.route(topic)
        except TopicNotFound:
            await self._targets.masters()  # where no broker is registered, nobody knows
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


def again(letter: Letter, topic: str | None, properties: Mapping[str, str | None]) -> Message:
    """The message that a letter was, without its past, and with these properties; UsageError when it tells no topic."""
    try:
        stored = readable(letter.message, None)
    except ProtocolError as error:
        raise UsageError(f"its body is damaged and cannot be read: {error}") from None
    where = topic or letter.topic
    if not where or group_of(where):
        raise UsageError(f"the letter does not tell which topic it was for (it says {where!r}): give one")
    kept = {
        name: value
        for name, value in stored.properties.items()
        if name not in _OF_ITS_PAST and name != DEAD_LETTER_REASON
    }
    message = Message(TopicName(where), stored.body, flag=stored.flag)
    edits = Message(where, stored.body, properties={name: value for name, value in properties.items() if value})
    message.properties = {**kept, **edits.properties, names.ORIGIN_MESSAGE_ID: letter.original_id}
    for name in (name for name, value in properties.items() if value is None):
        message.properties.pop(name, None)
    return message
