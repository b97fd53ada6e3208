"""Sending back: a message that a listener failed on goes back to its broker, on the roads that `retry_sender` describes.

failed ──► code 36 to its broker ── refused ──► a plain message to %RETRY%group ── failed ──► tried again here
given up for a reason, or failed for the last time ──► a plain message to %RETRY%group that says it is dead, and why
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
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import INNER_PRODUCER_GROUP, GroupName
from pocketmq.model.retries import MAX_RECONSUME_TIMES, UNLIMITED
from pocketmq.protocol.api.sending import SendMessageBack

log = logging.getLogger("pocketmq.client")

LOCAL_RETRY_SECONDS: Final = 5.0
"""A message that could not be sent back is consumed again here, after so long."""
OVERDUE_LEVEL: Final = 3
"""Delay level of messages that a clean-up sends back because their listener takes too long."""
SEND_BACK_TIMEOUT_MS: Final = 5_000


def max_reconsume_times(configured: int | None, *, is_orderly: bool) -> int:
    """How often a message is tried again. None, or -1 as Java says it: 16 times, in order without end."""
    if configured is not None and configured >= 0:
        return configured
    return UNLIMITED if is_orderly else MAX_RECONSUME_TIMES


class RetrySender:
    """Sends back for one consumer."""

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
        """Whether somebody else has it now. `broker_name` is where it came from."""
        is_last = message.reconsume_times >= self.max_times
        if verdict.reason and (verdict.is_dead or is_last) and await self.bury(message, verdict.reason):
            return True
        if is_of_inner_batch(message):  # a send-back names the record of the whole batch
            return await self._send(self._again(message, verdict), message)
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
            log.warning("message %s could not be sent back to %s: %s", message.message_id, broker_name, error)
            return await self._send(self._again(message, verdict), message)
        return True

    def _again(self, message: StoredMessage, verdict: Verdict) -> RetryMessage:
        """A copy for another attempt; for the dead letters if there is to be none, or if a copy would look sound and is not."""
        if verdict.is_dead or is_unreadable_as_stored(message):
            return dead_letter(message, self._group, verdict.reason)
        return retry_message(message, self._group, self.max_times)

    async def bury(self, message: StoredMessage, reason: str) -> bool:
        """Make it a dead letter that says why, if there is room for that among its properties. Whether it worked."""
        try:
            await self._deliver(dead_letter(message, self._group, reason))
        except MessageIllegal:
            return await self._send(dead_letter(message, self._group), message)
        except PocketMQError as error:
            log.warning("message %s could not be made a dead letter: %s", message.message_id, error)
            return False
        return True

    async def _deliver(self, again: RetryMessage) -> None:
        await self._outbox.deliver(self._outbox.packer.pack_retry(again))

    async def _send(self, again: RetryMessage, message: StoredMessage) -> bool:
        try:
            await self._deliver(again)
        except PocketMQError as error:
            log.warning("message %s could not be sent to %s: %s", message.message_id, again.topic, error)
            return False
        return True
