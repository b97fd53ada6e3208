"""Settling: what follows when listeners returned for messages.

    pulled messages      done ──► the smallest offset in flight is committed
                         failed ──► sent back ──► %RETRY%group, or the dead letters
    leased messages      done ──► acknowledged; those of one step of the event loop go to a broker together
                         failed ──► the lease ends after the back-off, and the message returns alone
                         the last attempt failed ──► dead letters, then acknowledged

An ack that a broker cannot take now is repeated while the lease is extended. One that is too late is rejected, logged and
counted: the broker may have delivered the message to another member.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from pocketmq.client.consumer.consume_result import Verdict
from pocketmq.client.consumer.leases import LeaseTable
from pocketmq.client.consumer.listening import Messages, Settling
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.errors import LeaseLost, PocketMQError
from pocketmq.model import StoredMessage
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.retries import UNLIMITED, retry_level

log = logging.getLogger("pocketmq.client")

ACK_RETRY_S: Final = 1.0
"""When a failed ack is repeated."""
MAX_ACKS: Final = 1_000
"""Messages of one request."""


class OffsetSettling(Settling):
    """For pulled messages. `retry_sender` None: a broadcasting consumer, which has no retries."""

    def __init__(self, offsets: Offsets, retry_sender: RetrySender | None, *, is_ordered: bool) -> None:
        self._record = offsets.move if is_ordered else offsets.advance
        self._retry_sender = retry_sender
        self.max_times = UNLIMITED if retry_sender is None else retry_sender.max_times
        self.has_retries = retry_sender is not None

    def may_call(self, messages: Messages) -> bool:
        return True

    def handled(self, owned: ProcessQueue, messages: Messages, now: float) -> None:
        if (offset := owned.finish(messages, now)) is not None:
            self._record(owned.queue, offset)

    def sent_back(self, owned: ProcessQueue, messages: Messages, now: float) -> None:
        self.handled(owned, messages, now)

    def commit(self, owned: ProcessQueue, now: float) -> None:
        if (offset := owned.commit(now)) is not None:
            self._record(owned.queue, offset)

    async def send_back(self, owned: ProcessQueue, message: StoredMessage, verdict: Verdict) -> bool:
        assert self._retry_sender is not None
        return await self._retry_sender.send(message, owned.queue.broker_name, verdict)

    def release(self, messages: Messages) -> None:
        """The offset of the queue is before them."""

    async def send_dead_letter(self, message: StoredMessage, reason: str) -> bool:
        return self._retry_sender is None or await self._retry_sender.send_dead_letter(message, reason)


class LeaseSettling(Settling):
    """For leased messages."""

    has_retries = True

    def __init__(self, leases: LeaseTable, retry_sender: RetrySender) -> None:
        self._leases = leases
        self._retry_sender = retry_sender
        self.max_times = retry_sender.max_times
        self._done: list[StoredMessage] = []
        """Handled messages whose ack was not sent."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False

    def may_call(self, messages: Messages) -> bool:
        return all(map(self._leases.holds, messages))

    def handled(self, owned: ProcessQueue, messages: Messages, now: float) -> None:
        owned.finish(messages, now)
        self.acknowledge(messages)

    def sent_back(self, owned: ProcessQueue, messages: Messages, now: float) -> None:
        owned.finish(messages, now)

    def commit(self, owned: ProcessQueue, now: float) -> None:
        messages = owned.unfinished()
        owned.commit(now)
        self.acknowledge(messages)

    # acks

    def acknowledge(self, messages: Messages) -> None:
        """Acknowledge messages soon."""
        self._done += messages
        if self._done and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_acks)

    def _send_acks(self) -> None:
        self._is_scheduled = False
        done, self._done = self._done, []
        for at in range(0, len(done), MAX_ACKS):
            self._start(self._ack(done[at : at + MAX_ACKS]))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ack(self, messages: Sequence[StoredMessage]) -> None:
        is_logged = False
        while True:
            try:
                await self._leases.acknowledge(messages)
            except LeaseLost:
                return  # logged and counted there
            except PocketMQError as error:
                if not is_logged:
                    log.warning("%d acks failed: %s; repeating them while the leases last", len(messages), error)
                is_logged = True
                messages = [message for message in messages if self._leases.holds(message)]
                if not messages:
                    return
                await asyncio.sleep(ACK_RETRY_S)
            else:
                return

    async def flush(self, timeout_s: float) -> None:
        """Wait until handled messages are acknowledged, at most for this time."""
        await asyncio.sleep(0)  # acks of this step of the loop
        tasks = [*self._tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()

    # failures

    async def send_back(self, owned: ProcessQueue, message: StoredMessage, verdict: Verdict) -> bool:
        if verdict.is_dead or message.reconsume_times >= self.max_times:
            return await self.bury(message, verdict.reason)
        level = retry_level(verdict.delay_level, message.reconsume_times)
        try:
            await self._leases.give_back(message, DELAY_LEVELS.ms(level) / 1000)
        except LeaseLost:
            log.warning("message %s failed after its lease was over; the broker delivers it again", message.message_id)
        except PocketMQError as error:
            log.warning(
                "message %s could not be given back to %s: %s; delivering it again here",
                message.message_id,
                owned.queue.broker_name,
                error,
            )
            return False
        return True

    async def bury(self, message: StoredMessage, reason: str) -> bool:
        """Make a message a dead letter: a copy, as the topic in which a retried message is stored is a retry topic. Whether
        the broker has it.
        """
        if not self._leases.holds(message):
            return True  # another member has the message
        if not await self._retry_sender.send_dead_letter(message, reason):
            return False
        self.acknowledge([message])
        return True

    async def send_dead_letter(self, message: StoredMessage, reason: str) -> bool:
        return await self._retry_sender.send_dead_letter(message, reason)

    def release(self, messages: Messages) -> None:
        self._start(self.give_back_all(messages))

    async def give_back_all(self, messages: Iterable[StoredMessage]) -> None:
        """Let messages return at once that no listener got."""
        await asyncio.gather(*map(self.give_back, messages))

    async def give_back(self, message: StoredMessage) -> None:
        try:
            await self._leases.give_back(message, 0.0, was_tried=False)
        except PocketMQError as error:
            self._leases.forget(message)  # it is not extended any more
            log.debug("message %s returns at the end of its lease: %s", message.message_id, error)
