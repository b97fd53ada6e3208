"""Attempts to send a message, one after the other, until a broker has stored it, a retry is useless, or the deadline has passed.

    queue ──► connection to its broker ──► request ──► response ──► SendResult
      ▲              │                        │
      │              └─ no connection: another broker at once; without another, wait for one, see `Reconnects` ──┐
      ├──────────────────────────────────────────────────────────────────────────────────────────────────────────┘
      └─ another queue, of another broker if there is one ◄── a failure that is worth a retry, before the deadline

Without a connection nothing was sent, so this does not count as an attempt. The producer tries again until the deadline, whatever `retries`
is, also for a chosen queue and for a one-way message.

Hooks run for each attempt. With `avoid_slow_brokers`, each attempt also updates the health of its broker. A first attempt that can be
written at once is made by `outbox`, or by a thread in `DirectSends`. After a failure, the attempts continue here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.hooks import HookList, SendEvent
from pocketmq.client.producer.fault_strategy import (
    FLOW_CONTROL_CODES,
    RETRIED_CODES,
    BrokerHealth,
    SendKind,
    SendRetries,
)
from pocketmq.client.producer.outgoing import Outgoing, traced_type
from pocketmq.client.producer.queue_choice import Destination, QueueChoice, Turn
from pocketmq.client.producer.results import SendResult, SendStatus, result_of
from pocketmq.client.producer.send_frames import SendFrames, code_of
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import VERSION, ResponseCode, Version
from pocketmq.errors import (
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    PocketMQError,
    RemoteError,
    error_for,
)
from pocketmq.model import MessageQueue
from pocketmq.net import Address, Peer
from pocketmq.protocol.command import Command

T = TypeVar("T")

_REFUSALS: Final = RETRIED_CODES | FLOW_CONTROL_CODES
"""Response codes that concern the broker and not the message."""


class Attempts:
    """Makes the attempts of one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, hooks: HookList, frames: SendFrames) -> None:
        self._brokers = instance.brokers
        self._reconnects = instance.reconnects
        self._rpc = instance.rpc
        self._heartbeats = instance.heartbeats
        self._clock = instance.clock
        self._dice = instance.dice
        self._hooks = hooks
        self._frames = frames
        self._group = settings.group
        self._retries = SendRetries(
            retries=settings.retries,
            when_not_stored=settings.retry_when_not_stored,
            when_busy=settings.retry_when_busy,
        )
        self._health = BrokerHealth() if settings.avoid_slow_brokers else None
        self.choice = QueueChoice(instance, settings, self._health)

    async def until_stored(
        self,
        out: Outgoing,
        destination: Destination,
        deadline: float,
        kind: SendKind,
        *,
        queue: MessageQueue | None = None,
        made: int = 0,
        last_broker: str | None = None,
        turn: Turn | None = None,
    ) -> SendResult:
        """Attempts until one succeeds or a retry is useless. `queue` and `turn` are for the first attempt, if already known."""
        while True:
            made += 1
            make = partial(self._make, out, deadline=deadline, number=made)
            queue, outcome = await self._in_turn(make, out, destination, deadline, queue, last_broker, turn)
            if isinstance(outcome, PocketMQError):
                failure = outcome
            elif outcome.status is SendStatus.SEND_OK or not self._retries.when_not_stored:
                return outcome
            else:
                failure = error_for(ResponseCode[outcome.status], "the message is stored, but not safely")
            wait_ms = self.wait_ms(failure, made, deadline, kind, destination)
            if wait_ms is None:
                if not isinstance(outcome, PocketMQError):
                    return outcome
                if made > 1:
                    failure.add_note(f"{made} attempts were made, the last one at {queue}")
                raise failure
            await asyncio.sleep(wait_ms / 1000)
            last_broker, queue, turn = queue.broker_name, None, None

    async def _in_turn(
        self,
        make: Callable[..., Awaitable[T]],
        out: Outgoing,
        destination: Destination,
        deadline: float,
        queue: MessageQueue | None = None,
        last_broker: str | None = None,
        turn: Turn | None = None,
    ) -> tuple[MessageQueue, T | PocketMQError]:
        """One attempt; in a chosen queue, after the messages that already wait for it. See `_when_connected`."""
        if destination.is_any:
            return await self._when_connected(partial(make, turn=None), out, destination, deadline, queue, last_broker)
        if queue is None:
            queue = await self.choice.find(out.topic, out.message, destination, deadline, last_broker)
        with turn or self.choice.order.turn(queue) as turn:
            await turn.wait(deadline)
            return await self._when_connected(partial(make, turn=turn), out, destination, deadline, queue, last_broker)

    async def _when_connected(
        self,
        make: Callable[[MessageQueue, bool], Awaitable[T]],
        out: Outgoing,
        destination: Destination,
        deadline: float,
        queue: MessageQueue | None = None,
        last_broker: str | None = None,
    ) -> tuple[MessageQueue, T | PocketMQError]:
        """One attempt at the first broker that can be connected; returns its queue and the outcome.

        ConnectFailed when no broker can be connected before the deadline. `make` receives whether there is another broker.
        """
        unreached: set[str] = set()
        while True:
            if queue is None:
                queue = await self.choice.find(out.topic, out.message, destination, deadline, last_broker, unreached)
            has_others = destination.is_any and bool(self.choice.brokers(out.topic) - unreached - {queue.broker_name})
            try:
                return queue, await make(queue, has_others)
            except ConnectFailed as failure:
                unreached.add(queue.broker_name)
                if not has_others:
                    unreached = await self._await_broker(out, destination, queue, deadline, failure)
            except PocketMQError as failure:
                return queue, failure
            last_broker, queue = None, None

    async def _await_broker(
        self, out: Outgoing, destination: Destination, queue: MessageQueue, deadline: float, failure: ConnectFailed
    ) -> set[str]:
        """Wait until a broker for the message is connected; returns the brokers that are not."""
        only = None if destination.is_any else queue.broker_name
        if not await self._reconnects.wait(out.topic, only, deadline):
            raise ConnectFailed(
                f"no connection to {queue.broker_name} before the send timed out; nothing was sent: {failure}"
            ) from failure
        return {name for name in self.choice.brokers(out.topic) if self._brokers.live_master(name) is None}

    async def continue_after(
        self, out: Outgoing, destination: Destination, timeout_s: float, queue: MessageQueue, failure: PocketMQError
    ) -> SendResult:
        """Continue after the failed first attempt of a thread: retry, or raise its failure."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        last_broker, kind = queue.broker_name, SendKind.AWAITED
        if isinstance(failure, ConnectFailed):  # nothing was sent: it was no attempt
            return await self.until_stored(out, destination, deadline, kind, last_broker=last_broker)
        wait_ms = self.wait_ms(failure, 1, deadline, kind, destination)
        if wait_ms is None:
            raise failure
        return await self.later(wait_ms, out, destination, deadline, kind, last_broker)

    async def later(
        self, wait_ms: int, out: Outgoing, destination: Destination, deadline: float, kind: SendKind, last_broker: str
    ) -> SendResult:
        """The retries, after a failed first attempt and a pause."""
        await asyncio.sleep(wait_ms / 1000)
        return await self.until_stored(out, destination, deadline, kind, made=1, last_broker=last_broker)

    def wait_ms(
        self, failure: PocketMQError, made: int, deadline: float, kind: SendKind, destination: Destination
    ) -> int | None:
        """The pause after `made` attempts before the next one; None for no retry."""
        return self._retries.wait_ms(
            failure,
            attempts=made,
            left_ms=(deadline - asyncio.get_running_loop().time()) * 1000,
            kind=kind,
            is_pinned=not destination.is_any,
            chance=self._dice.random(),
        )

    def ask(self, peer: Peer, out: Outgoing, queue: MessageQueue, left_s: float) -> asyncio.Future[Command]:
        """Send the request; the future of its response."""
        born_ms = self._clock.now_ms()
        if self._rpc.is_watched:
            return self._rpc.start(peer, self._frames.command(out, queue, born_ms), left_s)
        return peer.ask_encoded(code_of(out), self._frames.encode, left_s, out, queue, born_ms)

    async def send_one_way(self, out: Outgoing, destination: Destination, deadline: float) -> None:
        """The only attempt of a one-way message."""
        _, failure = await self._in_turn(
            partial(self._send_one_way, out, deadline=deadline), out, destination, deadline
        )
        if failure is not None:
            raise failure

    async def _send_one_way(
        self, out: Outgoing, queue: MessageQueue, has_others: bool, *, deadline: float, turn: Turn | None
    ) -> None:
        address = self._brokers.master(queue.broker_name)
        event = self._before(out, queue, address) if self._hooks.watch_sends else None
        peer = await self._usable_peer(address, deadline, waits_for_retry=not has_others)
        self._rpc.send_one_way(peer, self._rpc.signed(self._frames.command(out, queue, self._clock.now_ms())))
        if turn is not None:
            turn.end()
        if event is not None:
            self._after(event)

    async def probe(self) -> None:
        """Try to connect to unreachable brokers."""
        if self._health is None:
            return
        self._health.keep_only(self._brokers.names)
        for name in self._health.due_probes(self._clock.monotonic()):
            try:
                await self._brokers.peer(self._brokers.master(name))
            except PocketMQError:
                continue  # the next probe tries again
            self._health.record_reachable(name)

    async def _make(
        self, out: Outgoing, queue: MessageQueue, has_others: bool, *, deadline: float, number: int, turn: Turn | None
    ) -> SendResult:
        address = self._brokers.master(queue.broker_name)
        event = self._before(out, queue, address, number)
        try:
            peer = await self._usable_peer(address, deadline, waits_for_retry=not has_others)
            left_s = round(deadline - asyncio.get_running_loop().time(), 3)
            if left_s <= 0:
                raise CallTimedOut(f"{address}: the send timed out before the attempt; nothing was sent")
            if out.is_timed:
                await self._require_timers(address)
            answer = self.ask(peer, out, queue, left_s)
            if turn is not None:
                turn.end()
            event.result = result_of(await answer, out.message_id, event.queue)
        except BaseException as error:
            event.error = error
            raise
        finally:
            self._after(event)
        return event.result

    async def _require_timers(self, address: Address) -> None:
        """InvalidMessage when the broker has no timers: it would deliver the message at once."""
        await self._heartbeats.wait_answered(address)
        version = self._heartbeats.versions.get(address, VERSION)
        if version < Version.V5_0_0:
            raise InvalidMessage(
                f"the broker at {address} is older than RocketMQ 5.0 (version number {version}) and has no timers: "
                "use delay_level instead of deliver_at_ms or delay_ms"
            )

    async def _usable_peer(self, address: Address, deadline: float, *, waits_for_retry: bool) -> Peer:
        """A writable connection; see `Pool.peer`."""
        try:
            async with asyncio.timeout_at(deadline):
                peer = await self._brokers.peer(address, waits_for_retry=waits_for_retry)
                if not peer.connection.writable:
                    await peer.connection.wait_writable()
                return peer
        except TimeoutError:
            raise CallTimedOut(
                f"{address}: no writable connection before the send timed out; nothing was sent"
            ) from None

    # hooks and broker health

    def _before(self, out: Outgoing, queue: MessageQueue, address: Address, attempt: int = 1) -> SendEvent:
        event = SendEvent(
            group=self._group,
            messages=out.messages,
            message_ids=out.message_ids,
            queue=self.choice.shown(queue),
            address=str(address),
            kind=traced_type(out),
            body_bytes=len(out.body),
            started_ms=self._clock.now_ms(),
            started=self._clock.monotonic(),
            attempt=attempt,
        )
        self._hooks.before_send(event)
        return event

    def _after(self, event: SendEvent) -> None:
        now = self._clock.monotonic()
        event.cost_ms = (now - event.started) * 1000
        if self._health is not None:
            _record(self._health, event, now)
        self._hooks.after_send(event)


def _record(health: BrokerHealth, event: SendEvent, now: float) -> None:
    """Update the health of a broker after an attempt."""
    broker, error = event.queue.broker_name, event.error
    if isinstance(error, ConnectFailed | ConnectionLost):
        health.record_failure(broker, now, is_reachable=False)
    elif isinstance(error, CallTimedOut) or (isinstance(error, RemoteError) and error.response_code in _REFUSALS):
        health.record_failure(broker, now)
    elif error is None or isinstance(error, RemoteError):
        health.record_success(broker, event.cost_ms, now)
