"""Sends messages whose consumption failed back to the broker, or to the dead letters.

    failed ──► send back (code 36), with a delay level ──► broker: %RETRY%group after a while, or %DLQ%group
                  │ refused, or the broker is too old to know the message
                  └──► a copy to %RETRY%group, with its number of attempts
                          │ failed
                          └──► consumed again by this consumer after 5 s

A dead letter with a reason is always sent as a copy, because a send-back has no properties. So is one of an orderly consumer: the broker
sees that the group has locks, and moves the copy to the dead letters.

    delay level    -1 dead letter · 0 the broker chooses: 3, 4, 5 … · n that level
"""

import logging
from typing import Final

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.consume_result import Verdict
from pocketmq.client.producer.outbox import Outbox
from pocketmq.client.received import (
    RetryMessage,
    dead_letter,
    is_of_inner_batch,
    is_unreadable_as_stored,
    original_topic,
    retry_message,
)
from pocketmq.client.settings import ClientSettings, ProducerSettings
from pocketmq.errors import MessageIllegal, PocketMQError
from pocketmq.model import GroupName, StoredMessage
from pocketmq.model.names import INNER_PRODUCER_GROUP
from pocketmq.model.retries import MAX_RECONSUME_TIMES, UNLIMITED
from pocketmq.protocol.api.messages import SendMessageBack

log = logging.getLogger("pocketmq.client")

LOCAL_RETRY_SECONDS: Final = 5.0
"""The delay after which this consumer consumes a message again that could not be sent back."""
OVERDUE_LEVEL: Final = 3
"""The delay level of messages whose listener takes too long."""
SEND_BACK_TIMEOUT_MS: Final = 5_000


def max_reconsume_times(configured: int | None, *, is_orderly: bool) -> int:
    """The maximum number of retries. None and Java's -1 stand for 16, or no limit for orderly consumers."""
    if configured is not None and configured >= 0:
        return configured
    return UNLIMITED if is_orderly else MAX_RECONSUME_TIMES


class RetrySender:
    """Sends the failed messages of one consumer."""

    def __init__(
        self, instance: Instance, settings: ClientSettings, group: GroupName, max_times: int | None, *, is_orderly: bool
    ) -> None:
        self._instance = instance
        self._group = group
        self._unit_mode = settings.unit_mode
        self.max_times = max_reconsume_times(max_times, is_orderly=is_orderly)
        inner = ProducerSettings(
            name_servers=settings.name_servers, group=INNER_PRODUCER_GROUP, send_timeout_ms=SEND_BACK_TIMEOUT_MS
        )
        self._outbox = Outbox(instance, inner)

    async def send(self, message: StoredMessage, broker_name: str, verdict: Verdict) -> bool:
        """Whether the broker has the message now. `broker_name` is the broker from which it was pulled."""
        is_last = message.reconsume_times >= self.max_times
        if verdict.reason and (verdict.is_dead or is_last) and await self.send_dead_letter(message, verdict.reason):
            return True
        if is_of_inner_batch(message):  # a send-back would return the whole batch
            return await self._send(self._copy(message, verdict), message)
        header = SendMessageBack(
            offset=message.log_offset,
            group=self._group,
            delay_level=verdict.delay_level,
            origin_msg_id=message.message_id,
            origin_topic=original_topic(message),
            unit_mode=self._unit_mode,
            max_reconsume_times=self.max_times,
        )
        try:
            await self._instance.brokers.messages.send_back(broker_name, header, timeout_s=SEND_BACK_TIMEOUT_MS / 1000)
        except PocketMQError as error:
            log.warning(
                "message %s could not be sent back to %s: %s; sending a copy to the retry topic",
                message.message_id,
                broker_name,
                error,
            )
            return await self._send(self._copy(message, verdict), message)
        return True

    def _copy(self, message: StoredMessage, verdict: Verdict) -> RetryMessage:
        """A copy for the retry topic; a dead letter if there is no other attempt, or if the copy would hide that the body is damaged."""
        if verdict.is_dead or is_unreadable_as_stored(message):
            return dead_letter(message, self._group, verdict.reason)
        return retry_message(message, self._group, self.max_times)

    async def send_dead_letter(self, message: StoredMessage, reason: str) -> bool:
        """Move the message to the dead letters, with the reason if its properties have space for it. Whether it worked."""
        try:
            await self._deliver(dead_letter(message, self._group, reason))
        except MessageIllegal:
            return await self._send(dead_letter(message, self._group), message)
        except PocketMQError as error:
            log.warning(
                "message %s could not be moved to the dead letters: %s; delivering it again here",
                message.message_id,
                error,
            )
            return False
        return True

    async def _deliver(self, copy: RetryMessage) -> None:
        await self._outbox.deliver(self._outbox.packer.pack_retry(copy))

    async def _send(self, copy: RetryMessage, message: StoredMessage) -> bool:
        try:
            await self._deliver(copy)
        except PocketMQError as error:
            log.warning(
                "a copy of message %s could not be sent to %s: %s; delivering the message again here",
                message.message_id,
                copy.topic,
                error,
            )
            return False
        return True
