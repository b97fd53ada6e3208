"""Sending: from a message that is ready to the broker's answer, over as many attempts as are worth it.

    queue ──► line to its broker ──► request ──► answer ──► SendResult
      ▲                                  │
      └─ another queue, of another broker if there is one ◄── a failure that is worth another attempt, and time is left

Messages to one broker share its line and do not wait for one another: the answers come back in any order. When route and line
are there and nobody watches, the first attempt is written at once, without a step through the loop. The first attempts of usual
messages are the business of `outbox`; what comes after a failure is the same for all.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from pocketmq.client.fault_strategy import BrokerHealth
from pocketmq.client.hooks import HookList, SendEvent
from pocketmq.client.identity import require_same_loop
from pocketmq.client.instance import Instance
from pocketmq.client.outbox import NO_QUEUE, Posted
from pocketmq.client.outgoing import Outgoing, traced_type
from pocketmq.client.queue_choice import ANY_QUEUE, QueueChoice, Wish
from pocketmq.client.results import SendResult, SendStatus, result_of
from pocketmq.client.retries import FLOW_CONTROL_CODES, RETRIED_CODES, SendKind, SendRetries
from pocketmq.client.room import Room
from pocketmq.client.send_frames import SendFrames, code_of
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import VERSION, ResponseCode, Version
from pocketmq.errors import (
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    NetworkError,
    PocketMQError,
    RemoteError,
    error_for,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.stored_answers import StoredAnswer

_REFUSALS = RETRIED_CODES | FLOW_CONTROL_CODES
"""Answers that speak of the broker and not of the message."""


class Sender:
    """Sends what is ready, for one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, hooks: HookList, room: Room) -> None:
        self._loop = asyncio.get_running_loop()
        self._brokers = instance.brokers
        self._links = instance.links
        self._heartbeats = instance.heartbeats
        self._clock = instance.clock
        self._dice = instance.dice
        self._hooks = hooks
        self._room = room
        self._group = settings.group
        self._timeout_s = settings.send_timeout_ms / 1000
        self.frames = SendFrames(settings)
        self._retries = SendRetries(
            retries=settings.retries,
            when_not_stored=settings.retry_when_not_stored,
            when_busy=settings.retry_when_busy,
        )
        self._health = BrokerHealth() if settings.avoid_slow_brokers else None
        self.leave_first: Callable[[], None] = _nothing
        """Lets go what waits in the outbox: nothing overtakes it."""
        self._is_plain = not (hooks.watch_sends or settings.avoid_slow_brokers or settings.retry_when_not_stored)
        self.uses_outbox = self._is_plain and not instance.links.adds_fields
        self.choice = QueueChoice(instance, settings, self._health)

    async def deliver(
        self,
        out: Outgoing,
        wish: Wish = ANY_QUEUE,
        timeout_s: float | None = None,
        *,
        kind: SendKind = SendKind.AWAITED,
    ) -> SendResult:
        """Where the message was stored; the failure of the last attempt when it was not."""
        require_same_loop(asyncio.get_running_loop(), self._loop, "producer")
        self.leave_first()
        seconds = self._timeout_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + seconds
        queue, answer = self._begin(out, wish, seconds)
        if queue is None or answer is None:
            return await self._attempts(out, wish, deadline, kind, queue=queue)
        try:
            return result_of(await answer, out.message_id, self.choice.shown(queue))
        except PocketMQError as failure:
            wait_ms = self._wait_ms(failure, 1, deadline, kind, wish)
            if wait_ms is None:
                raise
        return await self._later(wait_ms, out, wish, deadline, kind, queue.broker_name)

    async def go_on(
        self, out: Outgoing, wish: Wish, timeout_s: float, queue: MessageQueue, failure: PocketMQError
    ) -> SendResult:
        """What follows a first attempt that somebody else made: others, or its failure."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        wait_ms = self._wait_ms(failure, 1, deadline, SendKind.AWAITED, wish)
        if wait_ms is None:
            raise failure
        return await self._later(wait_ms, out, wish, deadline, SendKind.AWAITED, queue.broker_name)

    async def deliver_in_room(
        self, out: Outgoing, wish: Wish = ANY_QUEUE, timeout_s: float | None = None
    ) -> SendResult:
        """The same, when there is room for it. The time for it begins when it is let in."""
        count, size = out.count, out.size
        await self._room.take(count, size)
        try:
            return await self.deliver(out, wish, timeout_s)
        finally:
            self._room.give(count, size)

    def submit(
        self, out: Outgoing, wish: Wish = ANY_QUEUE, timeout_s: float | None = None
    ) -> asyncio.Future[SendResult]:
        """The same as a future; TooManyCalls when there is no room for it.

        When nothing is to be waited for, the message is on its way when this returns, and costs no task.
        """
        require_same_loop(asyncio.get_running_loop(), self._loop, "producer")
        self.leave_first()
        seconds = self._timeout_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + seconds
        self._room.take_now(out.count, out.size)
        try:
            queue = self.choice.at_once(out.topic, out.message, wish)
            if queue is not None and self._is_plain and not out.is_timed:
                future: asyncio.Future[SendResult] = self._loop.create_future()
                if self._submit_now(_Submitted(self, future, out, wish, queue, code_of(out), seconds, deadline)):
                    return future
        except BaseException:
            self._room.give(out.count, out.size)
            raise
        return self._start(out, self._attempts(out, wish, deadline, SendKind.CALLBACK, queue=queue))

    async def tell(self, out: Outgoing, wish: Wish = ANY_QUEUE) -> None:
        """Send one-way: once, and nobody knows what becomes of it."""
        self.leave_first()
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        queue = await self.choice.find(out.topic, out.message, wish, deadline)
        address = self._brokers.master(queue.broker_name)
        event = self._before(out, queue, address) if self._hooks.watch_sends else None
        peer = await self._usable_peer(address, deadline)
        peer.oneway(self._links.signed(self.frames.command(out, queue, self._clock.now_ms())))
        if event is not None:
            self._after(event)

    # for threads that send past the loop: nothing here changes anything but whose turn it is

    def aim(self, out: Outgoing, wish: Wish) -> tuple[MessageQueue, Address] | None:
        """Where a first attempt goes; None when there is something to wait for, or somebody watches."""
        if not self._is_plain or out.is_timed:
            return None
        queue = self.choice.at_once(out.topic, out.message, wish)
        return None if queue is None else (queue, self._brokers.master(queue.broker_name))

    def frame(self, out: Outgoing, queue: MessageQueue, number: int) -> bytes:
        """The request as bytes."""
        born_ms = self._clock.now_ms()
        if out.attempts is None and not self._links.adds_fields:
            return self.frames.encode(out, queue, born_ms, number)
        command = self._links.signed(self.frames.command(out, queue, born_ms))
        command.opaque = number
        return encode_command(command)

    def result(self, answer: Command, out: Outgoing, queue: MessageQueue) -> SendResult:
        """What the answer means; the error that it stands for is raised."""
        return result_of(answer, out.message_id, self.choice.shown(queue))

    async def probe(self) -> None:
        """Look whether brokers are back that could not be reached."""
        if self._health is None:
            return
        self._health.keep_only(self._brokers.names)
        for name in self._health.due_probes(self._clock.monotonic()):
            try:
                await self._brokers.peer(self._brokers.master(name))
            except PocketMQError:
                continue  # it is probed again
            self._health.note_reachable(name)

    async def _attempts(
        self,
        out: Outgoing,
        wish: Wish,
        deadline: float,
        kind: SendKind,
        *,
        queue: MessageQueue | None = None,
        made: int = 0,
        last_broker: str | None = None,
    ) -> SendResult:
        """Attempts until one succeeds or none is worth it; `queue` is for the first, if it was chosen already."""
        while True:
            if queue is None:
                queue = await self.choice.find(out.topic, out.message, wish, deadline, last_broker)
            made += 1
            result = None
            try:
                result = await self._attempt(out, queue, deadline, made)
                if result.status is SendStatus.SEND_OK or not self._retries.when_not_stored:
                    return result
                failure: PocketMQError = error_for(ResponseCode[result.status], "stored, but not safely")
            except PocketMQError as error:
                failure = error
            wait_ms = self._wait_ms(failure, made, deadline, kind, wish)
            if wait_ms is None:
                if result is not None:
                    return result
                if made > 1:
                    failure.add_note(f"{made} attempts were made, the last one at {queue}")
                raise failure
            await asyncio.sleep(wait_ms / 1000)
            last_broker, queue = queue.broker_name, None

    def _wait_ms(self, failure: PocketMQError, made: int, deadline: float, kind: SendKind, wish: Wish) -> int | None:
        return self._retries.wait_ms(
            failure,
            attempts=made,
            left_ms=(deadline - asyncio.get_running_loop().time()) * 1000,
            kind=kind,
            is_pinned=not wish.is_any,
            chance=self._dice.random(),
        )

    async def _attempt(self, out: Outgoing, queue: MessageQueue, deadline: float, number: int) -> SendResult:
        address = self._brokers.master(queue.broker_name)
        event = self._before(out, queue, address, number)
        try:
            peer = await self._usable_peer(address, deadline)
            left_s = round(deadline - asyncio.get_running_loop().time(), 3)
            if left_s <= 0:
                raise CallTimedOut(f"{address}: no time was left to send to it")
            if out.is_timed:
                await self._require_timers(address)
            answer = await self._ask(peer, out, queue, left_s)
            event.result = result_of(answer, out.message_id, event.queue)
        except BaseException as error:
            event.error = error
            raise
        finally:
            self._after(event)
        return event.result

    async def _require_timers(self, address: Address) -> None:
        """A broker that knows no timers would store the message and deliver it at once, as if nothing had been said."""
        await self._heartbeats.wait_heard(address)
        version = self._heartbeats.versions.get(address, VERSION)
        if version < Version.V5_0_0:
            raise InvalidMessage(
                f"the broker at {address} is older than RocketMQ 5.0 (version number {version}) and cannot deliver a message "
                "at a time of its own: use delay_level instead of deliver_at_ms or delay_ms"
            )

    def _begin(
        self, out: Outgoing, wish: Wish, timeout_s: float
    ) -> tuple[MessageQueue | None, asyncio.Future[Command] | None]:
        """A first attempt without waiting for anything: its queue and the future of its answer, as far as that goes."""
        queue = self.choice.at_once(out.topic, out.message, wish)
        if queue is None or not self._is_plain or out.is_timed:
            return queue, None
        try:
            peer = self._brokers.live_master(queue.broker_name)
            return queue, None if peer is None else self._ask(peer, out, queue, timeout_s)
        except NetworkError:
            return queue, None

    def _submit_now(self, submitted: "_Submitted") -> bool:
        """The first attempt of a submitted message, if it can be written at once."""
        queue = submitted.queue
        peer = self._brokers.live_master(queue.broker_name)
        if peer is None:
            return False
        try:
            peer.ask_for(submitted, submitted.deadline, self.frame, submitted.out, queue)
        except NetworkError:
            return False
        return True

    def settle(self, submitted: "_Submitted", answer: Command) -> None:
        """The first attempt of a submitted message has its answer."""
        out, future = submitted.out, submitted.future
        try:
            result = result_of(answer, out.message_id, self.choice.shown(submitted.queue))
        except PocketMQError as failure:
            self.settle_failure(submitted, failure)
            return
        self._room.give(out.count, out.size)
        if not future.done():  # else whoever submitted it gave up
            future.set_result(result)

    def settle_failure(self, submitted: "_Submitted", failure: PocketMQError) -> None:
        """… or it failed, which may be worth another one."""
        out, wish, future, deadline = submitted.out, submitted.wish, submitted.future, submitted.deadline
        wait_ms = None if future.done() else self._wait_ms(failure, 1, deadline, SendKind.CALLBACK, wish)
        if wait_ms is not None:
            again = self._later(wait_ms, out, wish, deadline, SendKind.CALLBACK, submitted.queue.broker_name)
            _hand_over(self._start(out, again), future)
            return
        self._room.give(out.count, out.size)
        if not future.done():
            future.set_exception(failure)

    # what cannot go on from the outbox by itself

    def posted_failed(self, posted: Posted, failure: PocketMQError) -> None:
        """The first attempt of a message from the outbox failed, which may be worth another one."""
        future, deadline, wish = posted.future, posted.deadline, posted.wish
        wait_ms = None if future.done() else self._wait_ms(failure, 1, deadline, posted.kind, wish)
        if wait_ms is not None:
            out = posted.outbox.outgoing(posted)
            again = self._later(wait_ms, out, wish, deadline, posted.kind, posted.queue.broker_name)
            _hand_over(self._start(out, again), future)
            return
        self._room.give(1, posted.size)
        if not future.done():
            future.set_exception(failure)

    def posted_late(self, posted: Posted) -> None:
        """A message in the outbox has something to wait for: a route, a line, room on it."""
        out = posted.outbox.outgoing(posted)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        queue = None if posted.queue is NO_QUEUE else posted.queue
        attempts = self._attempts(out, posted.wish, deadline, posted.kind, queue=queue)
        _hand_over(self._start(out, attempts), posted.future)

    def _start(self, out: Outgoing, attempts: Coroutine[Any, Any, SendResult]) -> asyncio.Task[SendResult]:
        """The attempts of a submitted message that could not be made at once; it has its room already."""
        task = asyncio.get_running_loop().create_task(attempts)
        # Not by a `finally` in the coroutine: one that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: self._room.give(out.count, out.size))
        return task

    async def _later(
        self, wait_ms: int, out: Outgoing, wish: Wish, deadline: float, kind: SendKind, last_broker: str
    ) -> SendResult:
        await asyncio.sleep(wait_ms / 1000)
        return await self._attempts(out, wish, deadline, kind, made=1, last_broker=last_broker)

    def _ask(self, peer: Peer, out: Outgoing, queue: MessageQueue, left_s: float) -> asyncio.Future[Command]:
        """The request on its way; the future of the answer."""
        born_ms = self._clock.now_ms()
        if self._links.adds_fields or out.attempts is not None:
            return peer.ask(self._links.signed(self.frames.command(out, queue, born_ms)), left_s)
        return peer.ask_encoded(code_of(out), self.frames.encode, left_s, out, queue, born_ms)

    async def _usable_peer(self, address: Address, deadline: float) -> Peer:
        """A line that can be written to now."""
        try:
            async with asyncio.timeout_at(deadline):
                peer = await self._brokers.peer(address)
                if not peer.line.writable:
                    await peer.line.wait_writable()
                return peer
        except TimeoutError:
            raise CallTimedOut(f"{address}: could not be written to in time; nothing was sent") from None

    # who is told of an attempt

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
            _note(self._health, event, now)
        self._hooks.after_send(event)


class _Submitted(msgspec.Struct, eq=False):
    """A submitted message whose first attempt is on its way: all that is needed when its answer comes, or none."""

    sender: Sender
    future: asyncio.Future[SendResult]
    out: Outgoing
    wish: Wish
    queue: MessageQueue
    code: int
    timeout_s: float
    deadline: float

    def answered(self, response: Command) -> None:
        self.sender.settle(self, response)

    def stored(self, answer: StoredAnswer) -> bool:
        return False

    def failed(self, error: PocketMQError) -> None:
        self.sender.settle_failure(self, error)


def _nothing() -> None:
    """There is no outbox."""


def _note(health: BrokerHealth, event: SendEvent, now: float) -> None:
    """What an attempt says about its broker."""
    broker, error = event.queue.broker_name, event.error
    if isinstance(error, ConnectFailed | ConnectionLost):
        health.note_failure(broker, now, is_reachable=False)
    elif isinstance(error, CallTimedOut) or (isinstance(error, RemoteError) and error.response_code in _REFUSALS):
        health.note_failure(broker, now)
    elif error is None or isinstance(error, RemoteError):
        health.note_success(broker, event.cost_ms, now)


def _hand_over(task: asyncio.Task[SendResult], future: asyncio.Future[SendResult]) -> None:
    """`future` gets what `task` comes to; who gives up on it ends the task."""

    def ended(task: asyncio.Task[SendResult]) -> None:
        if future.done():
            if not task.cancelled():
                task.exception()  # nobody wants to hear of it any more
        elif task.cancelled():
            future.cancel()
        elif error := task.exception():
            future.set_exception(error)
        else:
            future.set_result(task.result())

    task.add_done_callback(ended)
    future.add_done_callback(lambda given_up: task.cancel() if given_up.cancelled() else None)
