"""A member of a producer group: what a producer is made of, and what brokers may ask of it.

    packer ──► usual messages ──► outbox ──┐
           ├──► batching ──────────────────┼──► sender ──► brokers
           └──► bulk, requests, transactions ┘

It lives on one loop: the one on which it is started. What brokers ask of its group comes here, see `members.ProducerMember`.
"""

import asyncio
import logging
from collections.abc import Iterable

from pocketmq.client.batching import Batching
from pocketmq.client.bulk import Bulk
from pocketmq.client.fault_strategy import PROBE_SECONDS
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.outbox import Outbox
from pocketmq.client.outgoing import Packer
from pocketmq.client.requests import Requests
from pocketmq.client.room import Room
from pocketmq.client.sending import Sender
from pocketmq.client.settings import ProducerSettings
from pocketmq.client.tracing import Traced, Tracer
from pocketmq.client.transactions import Check, Transactions
from pocketmq.client.usual_messages import UsualMessages
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import unwrap, wrap
from pocketmq.net.peer import Peer
from pocketmq.net.repeating import Repeating
from pocketmq.protocol.api.transactions import CheckTransactionState

log = logging.getLogger("pocketmq.client")


class SendMember:
    """The parts of one producer; all but hooks and room are there from its start on."""

    def __init__(
        self, settings: ProducerSettings, hooks: Iterable[Hooks], check: Check | None, around: Surroundings
    ) -> None:
        self._settings = settings
        self._check = check
        self._around = around
        self._tracer = Tracer(settings, settings.group, Traced.SENDS, around) if settings.trace else None
        self.hooks = HookList((*hooks, self._tracer) if self._tracer is not None else hooks)
        self.room = Room(settings.max_in_flight_messages, settings.max_in_flight_bytes)
        self.instance: Instance
        self.packer: Packer
        self.sender: Sender
        self.outbox: Outbox
        self.usual: UsualMessages
        self.batching: Batching
        self.bulk: Bulk
        self.requests: Requests
        self.transactions: Transactions
        self._probing: Repeating

    # its life

    def start(self) -> None:
        """Make the parts, and be known as a member. Nothing is asked of any server yet."""
        settings, hooks = self._settings, self.hooks
        self.instance = instance = Instance.join(settings, self._around)
        self.packer = packer = Packer(settings, instance.unique_ids, instance.clock)
        self.sender = sender = Sender(instance, settings, hooks, self.room)
        self.outbox = self._new_outbox()
        sender.leave_first = self.outbox.leave
        is_allowed = sender.uses_outbox and not settings.linger_ms and not hooks.add_properties
        self.usual = UsualMessages(self.outbox, packer, is_allowed=is_allowed)
        self.batching = Batching(settings, packer, self.room, sender.deliver)
        self.bulk = Bulk(settings, packer, sender)
        self.requests = Requests(instance, sender, packer, settings)
        self.transactions = Transactions(instance, sender, packer, settings, hooks, self._check)
        self._probing = Repeating("probing of brokers", PROBE_SECONDS, sender.attempts.probe, log)
        if settings.avoid_slow_brokers:
            self._probing.start()
        if self._tracer is not None:
            self._tracer.start()
        instance.add_producer(self)

    async def stop(self) -> None:
        """Wait for what is on its way, `stop_timeout_ms` at most, and leave."""
        self.usual.trays.clear()
        try:
            async with asyncio.timeout(self._settings.stop_timeout_ms / 1000):
                await self.batching.flush()
                await self.room.wait_empty()
        except TimeoutError:
            log.warning("%d messages were still on their way when the producer was stopped", self.room.count)
        self.batching.abandon()
        await self._probing.stop()
        await self.transactions.close()
        await self.instance.remove_producer(self)
        if self._tracer is not None:
            await self._tracer.stop()
        await self.instance.leave()

    def _new_outbox(self) -> Outbox:
        sender = self.sender
        return Outbox(
            self.instance.clock,
            self.instance.brokers,
            sender.choice,
            sender.frames,
            self.packer,
            self.room,
            timeout_s=self._settings.send_timeout_ms / 1000,
            on_failure=sender.posted_failed,
            on_delay=sender.posted_late,
        )

    # as a member of its client; see `members.ProducerMember`

    @property
    def wire_group(self) -> str:
        return wrap(self._settings.namespace, self._settings.group)

    @property
    def decides_transactions(self) -> bool:
        return self._check is not None

    def topic_forgotten(self, topic: str) -> None:
        self.usual.trays.pop(unwrap(self._settings.namespace, topic), None)
        self.sender.choice.forget(topic)

    def check_transaction(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        self.transactions.asked(peer, header, message, broker_name)
