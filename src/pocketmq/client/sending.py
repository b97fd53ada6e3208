"""Sending: from a message that is ready to the broker's answer, over as many attempts as are worth it.

    route ── the queue that was wished for, or the next in turn ──► line to its broker ──► request ──► answer ──► SendResult
      ▲                                                                    │
      └───────── another queue, of another broker if there is one ◄── a failure that is worth another attempt, and time is left

Messages to one broker share its line and do not wait for one another: the answers come back in any order.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from pocketmq.client.fault_strategy import BrokerHealth, QueueChooser
from pocketmq.client.hooks import HookList, SendEvent
from pocketmq.client.instance import Instance
from pocketmq.client.outgoing import Outgoing
from pocketmq.client.queue_names import QueueNames
from pocketmq.client.results import SendResult, SendStatus, result_of
from pocketmq.client.retries import FLOW_CONTROL_CODES, RETRIED_CODES, SendKind, SendRetries
from pocketmq.client.room import Room
from pocketmq.client.routes import TopicRoute
from pocketmq.client.selectors import QueueSelector
from pocketmq.client.send_frames import SendFrames, code_of
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    NetworkError,
    NoPermission,
    PocketMQError,
    RemoteError,
    error_for,
)
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import Message
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command
from pocketmq.protocol.trace_text import TracedType


class Wish(NamedTuple):
    """Which queue a message should go to: this one, the one that a selector chooses by `key`, or any."""

    queue: MessageQueue | None = None
    selector: QueueSelector | None = None
    key: object = None

    @property
    def is_any(self) -> bool:
        return self.queue is None and self.selector is None


ANY_QUEUE = Wish()

_REFUSALS = RETRIED_CODES | FLOW_CONTROL_CODES
"""Answers that speak of the broker and not of the message."""


class Sender:
    """Sends what is ready. Queues outside of it have the names that users know, inside those of the wire."""

    def __init__(self, instance: Instance, settings: ProducerSettings, hooks: HookList, room: Room) -> None:
        self._brokers = instance.brokers
        self._routes = instance.routes
        self._links = instance.links
        self._clock = instance.clock
        self._dice = instance.dice
        self._settings = settings
        self._hooks = hooks
        self._room = room
        self._timeout_s = settings.send_timeout_ms / 1000
        self._frames = SendFrames(settings)
        self._retries = SendRetries(
            retries=settings.retries,
            when_not_stored=settings.retry_when_not_stored,
            when_busy=settings.retry_when_busy,
        )
        self._health = BrokerHealth() if settings.avoid_slow_brokers else None
        self._chooser = QueueChooser(lambda: self._dice.randrange(2**31), self._health)
        self.names = QueueNames(settings.namespace)

    async def deliver(
        self,
        out: Outgoing,
        wish: Wish = ANY_QUEUE,
        timeout_s: float | None = None,
        *,
        kind: SendKind = SendKind.AWAITED,
    ) -> SendResult:
        """Where the message was stored; the failure of the last attempt when it was not."""
        deadline = asyncio.get_running_loop().time() + (self._timeout_s if timeout_s is None else timeout_s)
        return await self._deliver(out, wish, deadline, kind)

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
        """The same as a future. When route and line are there, it costs no task, and has been written when this returns."""
        loop = asyncio.get_running_loop()
        seconds = self._timeout_s if timeout_s is None else timeout_s
        begun = None if self._hooks.watch_sends else self._begin(out, wish, seconds)
        if begun is None:
            return loop.create_task(self.deliver(out, wish, seconds, kind=SendKind.CALLBACK))
        queue, answer = begun
        future: asyncio.Future[SendResult] = loop.create_future()
        answer.add_done_callback(partial(self._settle, future, out, wish, queue, loop.time() + seconds))
        return future

    async def tell(self, out: Outgoing, wish: Wish = ANY_QUEUE, timeout_s: float | None = None) -> None:
        """Send one-way: once, and nobody knows what becomes of it."""
        deadline = asyncio.get_running_loop().time() + (self._timeout_s if timeout_s is None else timeout_s)
        queue = await self._queue_for(out, wish, deadline, None)
        address = self._brokers.master(queue.broker_name)
        event = self._before(out, queue, address) if self._hooks.watch_sends else None
        peer = await self._usable_peer(address, deadline)
        peer.oneway(self._links.signed(self._frames.command(out, queue, self._clock.now_ms())))
        if event is not None:
            self._after(event)

    async def pinned(self, message: Message, wish: Wish) -> Wish:
        """What a selector chooses now, as a wish for that queue."""
        topic = wrap(self._settings.namespace, message.topic)
        route = self._routes.get(topic) or await self._route(topic, asyncio.get_running_loop().time() + self._timeout_s)
        return Wish(self._chosen(message, wish, _written(route), None))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` that can be written to, by the names that users know."""
        route = await self._routes.find(wrap(self._settings.namespace, topic))
        return [self.names.shown(queue) for queue in route.writable]

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

    def forget(self, topic: str) -> None:
        """Nobody sends to `topic` any more."""
        self._chooser.forget(topic)
        self.names.forget(topic)

    async def _deliver(
        self,
        out: Outgoing,
        wish: Wish,
        deadline: float,
        kind: SendKind,
        attempts: int = 0,
        last_broker: str | None = None,
    ) -> SendResult:
        while True:
            queue = await self._queue_for(out, wish, deadline, last_broker)
            attempts += 1
            result = None
            try:
                result = await self._attempt(out, queue, deadline)
                if result.status is SendStatus.SEND_OK or not self._retries.when_not_stored:
                    return result
                failure: PocketMQError = error_for(ResponseCode[result.status], "stored, but not safely")
            except PocketMQError as error:
                failure = error
            wait_ms = self._wait_ms(failure, attempts, deadline, kind, wish)
            if wait_ms is None:
                if result is not None:
                    return result
                if attempts > 1:
                    failure.add_note(f"{attempts} attempts were made, the last one at {queue}")
                raise failure
            await asyncio.sleep(wait_ms / 1000)
            last_broker = queue.broker_name

    def _wait_ms(
        self, failure: PocketMQError, attempts: int, deadline: float, kind: SendKind, wish: Wish
    ) -> int | None:
        return self._retries.wait_ms(
            failure,
            attempts=attempts,
            left_ms=(deadline - asyncio.get_running_loop().time()) * 1000,
            kind=kind,
            is_pinned=not wish.is_any,
            chance=self._dice.random(),
        )

    # one attempt

    async def _attempt(self, out: Outgoing, queue: MessageQueue, deadline: float) -> SendResult:
        loop = asyncio.get_running_loop()
        started = loop.time()
        address = self._brokers.master(queue.broker_name)
        event = self._before(out, queue, address) if self._hooks.watch_sends else None
        try:
            peer = self._brokers.live(address)
            if peer is None or not peer.line.writable:
                peer = await self._usable_peer(address, deadline)
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise CallTimedOut(f"{address}: no time was left to send to it")
            answer = await self._ask(peer, out, queue, left_s)
            result = result_of(answer, out.message_id, self.names.shown(queue))
        except BaseException as error:
            if self._health is not None:
                self._note_failure(self._health, queue.broker_name, error)
            if event is not None:
                event.error = error
                self._after(event)
            raise
        if self._health is not None:
            self._health.note_success(queue.broker_name, (loop.time() - started) * 1000, self._clock.monotonic())
        if event is not None:
            event.result = result
            self._after(event)
        return result

    def _ask(self, peer: Peer, out: Outgoing, queue: MessageQueue, left_s: float) -> asyncio.Future[Command]:
        """The request on its way; the future of the answer."""
        born_ms = self._clock.now_ms()
        if self._links.adds_fields or out.attempts is not None:
            return peer.ask(self._links.signed(self._frames.command(out, queue, born_ms)), left_s)
        return peer.ask_encoded(code_of(out), partial(self._frames.encode, out, queue, born_ms), left_s)

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

    def _begin(
        self, out: Outgoing, wish: Wish, timeout_s: float
    ) -> tuple[MessageQueue, asyncio.Future[Command]] | None:
        """A first attempt without waiting for anything; None when there is something to wait for."""
        route = self._routes.get(out.topic)
        if route is None or not route.writable:
            return None
        queue = self._chosen(out.message, wish, route, None)
        try:
            peer = self._brokers.live(self._brokers.master(queue.broker_name))
            if peer is None or not peer.line.writable:
                return None
            return queue, self._ask(peer, out, queue, timeout_s)
        except NetworkError:
            return None

    def _settle(
        self,
        future: asyncio.Future[SendResult],
        out: Outgoing,
        wish: Wish,
        queue: MessageQueue,
        deadline: float,
        answer: asyncio.Future[Command],
    ) -> None:
        """The first attempt of a submitted message has its answer, or will have none."""
        if future.done():
            return  # whoever submitted it gave up
        try:
            future.set_result(result_of(answer.result(), out.message_id, self.names.shown(queue)))
        except PocketMQError as failure:
            wait_ms = self._wait_ms(failure, 1, deadline, SendKind.CALLBACK, wish)
            if wait_ms is None:
                future.set_exception(failure)
                return
            again = self._deliver_later(wait_ms, out, wish, deadline, queue.broker_name)
            _hand_over(asyncio.get_running_loop().create_task(again), future)

    async def _deliver_later(
        self, wait_ms: int, out: Outgoing, wish: Wish, deadline: float, last_broker: str
    ) -> SendResult:
        await asyncio.sleep(wait_ms / 1000)
        return await self._deliver(out, wish, deadline, SendKind.CALLBACK, 1, last_broker)

    # which queue

    async def _queue_for(self, out: Outgoing, wish: Wish, deadline: float, last_broker: str | None) -> MessageQueue:
        route = self._routes.get(out.topic)
        if route is None:
            route = await self._route(out.topic, deadline)
        if wish.queue is None:
            route = _written(route)
        return self._chosen(out.message, wish, route, last_broker)

    async def _route(self, topic: str, deadline: float) -> TopicRoute:
        settings = self._settings
        try:
            async with asyncio.timeout_at(deadline):
                return await self._routes.find_or_template(topic, settings.template_topic, settings.new_topic_queues)
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(f"no name server told in time where topic {topic!r} is; nothing was sent") from None

    def _chosen(self, message: Message, wish: Wish, route: TopicRoute, last_broker: str | None) -> MessageQueue:
        if wish.queue is not None:
            return self.names.on_the_wire(wish.queue, route.topic)
        if wish.selector is not None:
            shown = [self.names.shown(queue) for queue in route.writable]
            return self.names.on_the_wire(wish.selector(shown, message, wish.key), route.topic)
        return self._chooser.choose(route.topic, route.writable, self._clock.monotonic(), last_broker)

    # who is told

    def _before(self, out: Outgoing, queue: MessageQueue, address: Address) -> SendEvent:
        event = SendEvent(
            group=self._settings.group,
            messages=out.messages,
            message_ids=out.message_ids,
            queue=self.names.shown(queue),
            address=str(address),
            kind=_traced_type(out),
            body_bytes=len(out.body),
            started_ms=self._clock.now_ms(),
            started=self._clock.monotonic(),
        )
        self._hooks.before_send(event)
        return event

    def _after(self, event: SendEvent) -> None:
        event.cost_ms = (self._clock.monotonic() - event.started) * 1000
        self._hooks.after_send(event)

    def _note_failure(self, health: BrokerHealth, broker: str, error: BaseException) -> None:
        now = self._clock.monotonic()
        if isinstance(error, ConnectFailed | ConnectionLost):
            health.note_failure(broker, now, is_reachable=False)
            return
        refused = isinstance(error, RemoteError) and error.response_code in _REFUSALS
        if refused or isinstance(error, CallTimedOut):
            health.note_failure(broker, now)


def _written(route: TopicRoute) -> TopicRoute:
    """`route`, if it has a queue to write to."""
    if not route.writable:
        raise NoPermission(
            f"topic {route.topic!r} has no queue that can be written to: its brokers have no master, or it is read-only"
        )
    return route


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


def _traced_type(out: Outgoing) -> TracedType:
    if out.sys_flag & SysFlag.TRANSACTION_PREPARED:
        return TracedType.HALF
    properties = out.message.properties
    if any(name in properties for name in (names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS)):
        return TracedType.DELAYED
    return TracedType.NORMAL
