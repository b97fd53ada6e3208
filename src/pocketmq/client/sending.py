"""Sending: from a message that is ready to its result.

    deliver ── first attempt, written at once if route and line are there and nobody watches ──► answer ──► SendResult
    submit                         │ it cannot be, or fails                                                    ▲
    outbox ── it did so ───────────┴──► attempts, as many as are worth it, see `attempts` ─────────────────────┘

Messages to one broker share its line and do not wait for one another: the answers come back in any order. A first attempt that is
written at once costs no step through the loop. Those of usual messages are the business of `outbox`; what comes after a failure
is the same for all.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from pocketmq.client.attempts import Attempts
from pocketmq.client.hooks import HookList
from pocketmq.client.identity import require_same_loop
from pocketmq.client.instance import Instance
from pocketmq.client.outbox import NO_QUEUE, Posted
from pocketmq.client.outgoing import Outgoing
from pocketmq.client.queue_choice import ANY_QUEUE, Wish
from pocketmq.client.results import SendResult, result_of
from pocketmq.client.retries import SendKind
from pocketmq.client.room import Room
from pocketmq.client.send_frames import SendFrames, code_of
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import ConnectFailed, NetworkError, PocketMQError
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.stored_answers import StoredAnswer


class Sender:
    """Sends what is ready, for one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, hooks: HookList, room: Room) -> None:
        self._loop = asyncio.get_running_loop()
        self._brokers = instance.brokers
        self._links = instance.links
        self._clock = instance.clock
        self._room = room
        self._timeout_s = settings.send_timeout_ms / 1000
        self.frames = SendFrames(settings)
        self.attempts = attempts = Attempts(instance, settings, hooks, self.frames)
        self.choice = attempts.choice
        self._ask = attempts.ask
        self.leave_first: Callable[[], None] = _nothing
        """Lets go what waits in the outbox: nothing overtakes it."""
        self._is_plain = not (
            hooks.watch_sends
            or settings.avoid_slow_brokers
            or settings.retry_when_not_stored
            or instance.links.is_watched
        )
        self.uses_outbox = self._is_plain and not instance.links.adds_fields

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
            return await self.attempts.until_stored(out, wish, deadline, kind, queue=queue)
        try:
            return result_of(await answer, out.message_id, self.choice.shown(queue))
        except PocketMQError as failure:
            wait_ms = self.attempts.wait_ms(failure, 1, deadline, kind, wish)
            if wait_ms is None:
                raise
        return await self.attempts.later(wait_ms, out, wish, deadline, kind, queue.broker_name)

    async def go_on(
        self, out: Outgoing, wish: Wish, timeout_s: float, queue: MessageQueue, failure: PocketMQError
    ) -> SendResult:
        """What follows a first attempt that somebody else made: others, or its failure."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        if isinstance(failure, ConnectFailed):  # nothing was sent: it was no attempt
            last_broker = queue.broker_name
            return await self.attempts.until_stored(out, wish, deadline, SendKind.AWAITED, last_broker=last_broker)
        wait_ms = self.attempts.wait_ms(failure, 1, deadline, SendKind.AWAITED, wish)
        if wait_ms is None:
            raise failure
        return await self.attempts.later(wait_ms, out, wish, deadline, SendKind.AWAITED, queue.broker_name)

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
            if queue is not None and self._is_plain and not out.is_timed and not self._overtakes(queue, wish):
                future: asyncio.Future[SendResult] = self._loop.create_future()
                if self._submit_now(_Submitted(self, future, out, wish, queue, code_of(out), seconds, deadline)):
                    return future
        except BaseException:
            self._room.give(out.count, out.size)
            raise
        return self._start_in_order(out, wish, deadline, SendKind.CALLBACK, queue)

    async def tell(self, out: Outgoing, wish: Wish = ANY_QUEUE) -> None:
        """Send one-way: once, and nobody knows what becomes of it."""
        self.leave_first()
        await self.attempts.tell(out, wish, asyncio.get_running_loop().time() + self._timeout_s)

    # for threads that send past the loop: nothing here changes anything but whose turn it is

    def aim(self, out: Outgoing, wish: Wish) -> tuple[MessageQueue, Address] | None:
        """Where a first attempt goes; None when there is something to wait for, or somebody watches."""
        if not self._is_plain or out.is_timed:
            return None
        queue = self.choice.at_once(out.topic, out.message, wish)
        try:
            if queue is None or self._overtakes(queue, wish):
                return None
            return queue, self._brokers.master(queue.broker_name)
        except ConnectFailed:
            return None  # no master is known: the loop waits for one

    def _overtakes(self, queue: MessageQueue, wish: Wish) -> bool:
        """Whether others wait for the queue that was chosen."""
        return not wish.is_any and self.choice.order.is_waited_for(queue)

    def is_connected(self, address: Address) -> bool:
        """Whether the loop has a line to this address."""
        return self._brokers.live(address) is not None

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

    def _begin(
        self, out: Outgoing, wish: Wish, timeout_s: float
    ) -> tuple[MessageQueue | None, asyncio.Future[Command] | None]:
        """A first attempt without waiting for anything: its queue and the future of its answer, as far as that goes."""
        queue = self.choice.at_once(out.topic, out.message, wish)
        if queue is None or not self._is_plain or out.is_timed or self._overtakes(queue, wish):
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
        wait_ms = None if future.done() else self.attempts.wait_ms(failure, 1, deadline, SendKind.CALLBACK, wish)
        if wait_ms is not None:
            again = self.attempts.later(wait_ms, out, wish, deadline, SendKind.CALLBACK, submitted.queue.broker_name)
            _hand_over(self._start(out, again), future)
            return
        self._room.give(out.count, out.size)
        if not future.done():
            future.set_exception(failure)

    # what cannot go on from the outbox by itself

    def posted_failed(self, posted: Posted, failure: PocketMQError) -> None:
        """The first attempt of a message from the outbox failed, which may be worth another one."""
        future, deadline, wish = posted.future, posted.deadline, posted.wish
        wait_ms = None if future.done() else self.attempts.wait_ms(failure, 1, deadline, posted.kind, wish)
        if wait_ms is not None:
            out = posted.outbox.outgoing(posted)
            again = self.attempts.later(wait_ms, out, wish, deadline, posted.kind, posted.queue.broker_name)
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
        _hand_over(self._start_in_order(out, posted.wish, deadline, posted.kind, queue), posted.future)

    def _start_in_order(
        self, out: Outgoing, wish: Wish, deadline: float, kind: SendKind, queue: MessageQueue | None
    ) -> asyncio.Task[SendResult]:
        """The attempts of a message. In a queue that was chosen it has its turn from now on, not only from the first step of its task."""
        turn = None if queue is None or wish.is_any else self.choice.order.turn(queue)
        task = self._start(out, self.attempts.until_stored(out, wish, deadline, kind, queue=queue, turn=turn))
        if turn is not None:
            task.add_done_callback(lambda _: turn.end())
        return task

    def _start(self, out: Outgoing, attempts: Coroutine[Any, Any, SendResult]) -> asyncio.Task[SendResult]:
        """The attempts of a submitted message that could not be made at once; it has its room already."""
        task = asyncio.get_running_loop().create_task(attempts)
        # Not by a `finally` in the coroutine: one that is cancelled before its first step never gets there.
        task.add_done_callback(lambda _: self._room.give(out.count, out.size))
        return task


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
