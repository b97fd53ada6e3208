"""Messages that a consumer sends back because it failed to consume them (code 36).

On any answer but success, the consumer sends the message again by itself, or keeps it and retries later.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from pocketmq.broker.delivery.retries import Retries
from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.messages.appending import Appender
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.stats import Tally
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import FlushDiskTimeout, NoPermission, ServerFailed, StoreDamaged
from pocketmq.model.flags import Perm
from pocketmq.model.message import StoredMessage
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api.sending import SendMessageBack
from pocketmq.store.message_store import MessageStore


class RetryHandlers:
    """Accepts messages that are sent back. `tally_of` returns the counter of a group and a topic."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        groups: GroupTable,
        retries: Retries,
        settings: SettingsInUse,
        clock: Clock,
        tally_of: Callable[[str, str], Tally],
    ) -> None:
        self._store = store
        self._appender = appender
        self._groups = groups
        self._retries = retries
        self._settings = settings
        self._clock = clock
        self._tally_of = tally_of

    def table(self) -> dict[RequestCode, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: Request[SendMessageBack]) -> Reply | Coroutine[Any, Any, Reply]:
        """The message is stored on return; the coroutine only waits for the disk."""
        header = request.header
        group = self._groups.ensure(header.group, self._clock.now_ms())
        if not self._settings.now.permission & Perm.WRITE:
            raise NoPermission(f"the broker[{self._settings.now.broker_name}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return Reply()
        retry_topic = self._retries.retry_topic_of(group, unit_mode=bool(header.unit_mode))
        message = self._message(header.offset)
        draft = self._retries.sent_back(message, group, retry_topic, header, request.command.version)
        self._appender.append(draft)
        tally = self._tally_of(header.group, message.topic)
        tally.count += 1
        tally.bytes += len(message.body)
        return self._when_safe()

    def _message(self, offset: int) -> StoredMessage:
        """The message at an offset of a client, which may be any number."""
        try:
            message = self._store.message(offset)
        except StoreDamaged:
            message = None
        if message is None or message.log_offset != offset:
            raise ServerFailed(f"look message by offset failed, {offset}")
        return message

    async def _when_safe(self) -> Reply:
        if not await self._appender.safe():
            raise FlushDiskTimeout("the message is stored for its next attempt, but not yet synced to disk")
        return Reply()
