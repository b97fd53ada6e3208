"""ReceiveMessage: pops of one broker until one finds messages, as a stream.

    pop ── nothing ──► wait for a notification ──► pop again
     └────┬─ messages ──► filtered: acknowledged │ too many attempts: dead letters │ others ──► status OK, messages, time
          ├─ nothing ───► status MESSAGE_NOT_FOUND, time
          └─ failure ───► status

A receive that waits has no lease: a broker would lease messages to a client that has ended its receive meanwhile. Messages that a client
is not there to read return after a second. A stream that is read slowly delays only itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from pocketmq.access.accounts import Action, Resource
from pocketmq.client.cluster.brokers import MASTER_ID
from pocketmq.client.cluster.calls import named
from pocketmq.client.consumer.subscriptions import matching_messages
from pocketmq.client.received import popped
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import InvalidExpression, PocketMQError, TopicNotFound, UnreadableMessage
from pocketmq.model import StoredMessage, Subscription
from pocketmq.model.properties import POP_CK, raw_property
from pocketmq.protocol.api.messages import Notification, NotificationReply, PopMessage, PopReply
from pocketmq.protocol.command import Command
from pocketmq.protocol.pop import Handle, PoppedQueues, flag_of
from pocketmq.proxy.callers import Caller
from pocketmq.proxy.conversion import HandleText, duration_ms, group_of, proto_of, timestamp_of, topic_of
from pocketmq.proxy.leases import Leased, Renewals, give_all_back
from pocketmq.proxy.messages import Code, ReceiveMessageRequest, ReceiveMessageResponse, Status
from pocketmq.proxy.routes import ALL_QUEUES, Facts
from pocketmq.proxy.sessions import Session, Sessions, filter_type
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import OK, Refused

log = logging.getLogger("pocketmq.grpc")

_POP_CK: Final = POP_CK.encode()
_FROM_THE_END: Final = 1
_DEADLINE_MARGIN_S: Final = 0.5
"""How long before the deadline of the client a receive without messages is answered."""
_CALL_MARGIN_S: Final = 3.0
SLICE_S: Final = 5.0
"""How long one request waits at a broker, which does not notice that the client has ended its receive."""
LEAST_WAIT_S: Final = 0.05
_NOTHING: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})

Write = Callable[[ReceiveMessageResponse], Awaitable[None]]


class Delivery(NamedTuple):
    """A message and its lease."""

    message: StoredMessage
    leased: Leased
    attempt: int


class ReceiveCalls:
    def __init__(
        self, sessions: Sessions, facts: Facts, renewals: Renewals, settings: ProxySettings, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._facts = facts
        self._renewals = renewals
        self._settings = settings
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[tuple[str, str, str], dict[asyncio.Future[None], None]] = {}
        """Receives that wait, by group, topic and broker."""
        self.receives = 0
        """Those that are served now."""

    async def receive(self, caller: Caller, request: ReceiveMessageRequest, write: Write) -> None:
        """Serve one receive. Refused or PocketMQError before anything is written."""
        if self.receives >= self._settings.max_receives:
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"{self.receives} receives wait for messages, the limit of this server (max_receives)",
            )
        session = self._sessions.of(caller)
        self.receives += 1
        session.receives += 1
        try:
            await self._receive(caller, session, request, write)
        finally:
            self.receives -= 1
            session.receives -= 1
            session.touch()

    async def _receive(self, caller: Caller, session: Session, request: ReceiveMessageRequest, write: Write) -> None:
        group, topic = group_of(request.group), topic_of(request.message_queue.topic)
        caller.require(Resource.TOPIC, topic, Action.SUB)
        caller.require(Resource.GROUP, group, Action.SUB)
        subscription = _subscription(topic, request)
        invisible_ms = self._invisible_ms(request)
        poll_s = self._poll_s(caller, session, request)
        try:
            broker_name = await _broker_name(session, topic, request)
        except TopicNotFound as error:
            raise Refused(Code.TOPIC_NOT_FOUND, str(error)) from None
        config = await self._facts.group(session, group, topic)
        header = PopMessage(
            group,
            topic,
            ALL_QUEUES,
            max(1, min(request.batch_size, self._settings.receive_batch)),
            invisible_ms,
            0,
            _FROM_THE_END,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=config.consume_message_orderly,
            attempt_id=request.attempt_id or None,
        )
        session.popped_ms[topic, broker_name] = self._clock.now_ms()
        answer = await self._pop(session, broker_name, header, poll_s)
        deliveries = _deliveries(answer, group, topic, broker_name)
        deliveries = await self._chosen(session, subscription, deliveries, config.retry_max_times + 1)
        await self._write(session, request, deliveries, write)

    async def _pop(self, session: Session, broker_name: str, header: PopMessage, poll_s: float) -> Command:
        """The answer to the pop that finds messages, or to the last one."""
        until = self._clock.monotonic() + poll_s
        while True:
            answer = await self._pop_now(session, broker_name, header)
            left_s = until - self._clock.monotonic()
            if answer.code not in _NOTHING or left_s < LEAST_WAIT_S:
                return answer
            if not await self._wait(session, broker_name, header, min(left_s, SLICE_S)):
                continue
            answer = await self._pop_now(session, broker_name, header)
            if answer.code not in _NOTHING:
                return answer
            await asyncio.sleep(LEAST_WAIT_S)  # another member was faster, or the filter selects none of them

    async def _pop_now(self, session: Session, broker_name: str, header: PopMessage) -> Command:
        """The answer. If the client ends the call meanwhile, its messages return."""
        command = session.brokers.command(RequestCode.POP_MESSAGE, header, extra=named(broker_name))
        call = asyncio.ensure_future(session.brokers.call(broker_name, command))
        try:
            answer = await asyncio.shield(call)
        except asyncio.CancelledError:
            self._start(self._give_back(session, call, header, broker_name))
            raise
        if answer.code not in _NOTHING and (error := answer.error()) is not None:
            raise error
        return answer

    async def _wait(self, session: Session, broker_name: str, header: PopMessage, seconds: float) -> bool:
        """Wait until there may be messages. False if the time is over."""
        key = header.consumer_group, header.topic, broker_name
        notification = Notification(
            header.consumer_group,
            header.topic,
            ALL_QUEUES,
            round(seconds * 1000),
            0,
            header.order,
            header.attempt_id,
            header.exp_type,
            header.exp,
        )
        call = asyncio.ensure_future(
            session.brokers.leases.wait(broker_name, notification, timeout_s=seconds + _CALL_MARGIN_S)
        )
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, {})[woken] = None
        try:
            await asyncio.wait((call, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[key][woken]
            if not self._waiting[key]:
                del self._waiting[key]
            if not call.done():
                self._start(self._pass_on(call, key))
        if woken.done():
            return True
        reply = call.result()
        if reply.polling_full:
            raise Refused(Code.TOO_MANY_REQUESTS, f"too many clients wait at broker {broker_name}")
        return reply.has_msg

    async def _pass_on(self, call: asyncio.Future[NotificationReply], key: tuple[str, str, str]) -> None:
        """Brokers notify one member of a message. If that does not wait any more, notify another one."""
        try:
            has_message = (await call).has_msg
        except PocketMQError:
            return  # its connection was closed
        for woken in self._waiting.get(key, ()) if has_message else ():
            if not woken.done():
                woken.set_result(None)
                return

    async def _give_back(
        self, session: Session, call: asyncio.Future[Command], header: PopMessage, broker_name: str
    ) -> None:
        try:
            answer = await call
            if answer.code == ResponseCode.SUCCESS:
                deliveries = _deliveries(answer, header.consumer_group, header.topic, broker_name)
                await give_all_back(session, [delivery.leased for delivery in deliveries])
        except PocketMQError:
            return  # no messages, or a lost connection: leases end by themselves

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for messages that are given back."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.drain_s)

    async def _chosen(
        self, session: Session, subscription: Subscription, deliveries: Sequence[Delivery], max_attempts: int
    ) -> list[Delivery]:
        """The messages for the client. Brokers compare hashes of tags only, and Apache's have no limit of attempts for pops."""
        matching = {id(one) for one in matching_messages(subscription, [one.message for one in deliveries])}
        chosen: list[Delivery] = []
        for delivery in deliveries:
            try:
                if id(delivery.message) not in matching:
                    await delivery.leased.ack(session)
                elif delivery.attempt > max_attempts:
                    await delivery.leased.forward(session, delivery.message.message_id)
                else:
                    chosen.append(delivery)
            except (PocketMQError, Refused) as error:
                log.warning("Message %s returns at the end of its lease: %s", delivery.message.message_id, error)
        return chosen

    async def _write(
        self, session: Session, request: ReceiveMessageRequest, deliveries: Sequence[Delivery], write: Write
    ) -> None:
        responses: list[tuple[Delivery, ReceiveMessageResponse]] = []
        for delivery in deliveries:
            text = delivery.leased.handle.text()
            try:
                message = proto_of(delivery.message, delivery.leased.topic, handle=text, attempt=delivery.attempt)
            except UnreadableMessage as error:
                log.error("Group %s: %s; it becomes a dead letter after its last attempt", delivery.leased.group, error)
                continue
            responses.append((delivery, ReceiveMessageResponse(message=message)))
        status = OK if responses else Status(code=Code.MESSAGE_NOT_FOUND, message="no message within the polling time")
        written = 0
        try:
            await write(ReceiveMessageResponse(status=status))
            for delivery, response in responses:
                if request.auto_renew:
                    self._renewals.add(session, delivery.leased, delivery.message.message_id, delivery.attempt)
                await write(response)
                written += 1
            await write(ReceiveMessageResponse(delivery_timestamp=timestamp_of(self._clock.now_ms())))
        except BaseException:
            lost = [delivery for delivery, _ in responses[written:]]
            for delivery in lost:
                leased = delivery.leased
                self._renewals.forget(session, (leased.group, delivery.message.message_id, leased.handle.text()))
            self._start(give_all_back(session, [delivery.leased for delivery in lost]))
            raise

    def _invisible_ms(self, request: ReceiveMessageRequest) -> int:
        if request.auto_renew:
            return self._settings.renewed_s * 1000
        invisible_ms = duration_ms(request.invisible_duration)
        least_s, most_s = self._settings.min_invisible_s, self._settings.max_invisible_s
        if not least_s * 1000 <= invisible_ms <= most_s * 1000:
            raise Refused(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"an invisible duration of {invisible_ms / 1000} s is not from {least_s} to {most_s} s",
            )
        return invisible_ms

    def _poll_s(self, caller: Caller, session: Session, request: ReceiveMessageRequest) -> float:
        """How long the broker may wait: as requested, within limits, and before the deadline of the client."""
        settings, left_s = self._settings, caller.time_left_s
        if left_s is not None and left_s < settings.min_polling_s:
            code = Code.BAD_REQUEST if caller.version < "5.0.3" else Code.ILLEGAL_POLLING_TIME
            raise Refused(
                code, f"the deadline is in {left_s:.1f} s; a receive needs at least {settings.min_polling_s} s"
            )
        if request.HasField("long_polling_timeout"):
            poll_s = duration_ms(request.long_polling_timeout) / 1000
        elif left_s is not None:
            request_s = duration_ms(session.settings.request_timeout) / 1000 if session.settings else settings.call_s
            poll_s = left_s - request_s / 2
        else:
            poll_s = settings.max_polling_s
        poll_s = max(settings.min_polling_s, min(poll_s, settings.max_polling_s))
        return poll_s if left_s is None else min(poll_s, left_s - _DEADLINE_MARGIN_S)


def _subscription(topic: str, request: ReceiveMessageRequest) -> Subscription:
    wanted = request.filter_expression
    try:
        return Subscription.parse(topic, wanted.expression or "*", filter_type(wanted.type))
    except InvalidExpression as error:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


async def _broker_name(session: Session, topic: str, request: ReceiveMessageRequest) -> str:
    """The requested broker, or any with the topic."""
    wanted = request.message_queue.broker.name
    masters = [
        one.broker_name for one in (await session.route(topic)).data.broker_datas if MASTER_ID in one.broker_addrs
    ]
    if wanted in masters:
        return wanted
    for name in masters:
        if name:
            return name
    raise Refused(Code.FORBIDDEN, f"no master of topic {topic} is available")


def _deliveries(answer: Command, group: str, topic: str, broker_name: str) -> list[Delivery]:
    if answer.code != ResponseCode.SUCCESS:
        return []
    reply = PopReply.decode(answer.ext)
    queues = PoppedQueues.parse(reply.start_offset_info, reply.msg_offset_info)
    counts = _order_counts(reply.order_count_info)
    found: list[Delivery] = []
    for message in popped(answer.body):
        try:
            handle = _handle(broker_name, reply, queues, message)
        except PocketMQError as error:
            log.error("A message of topic %s on broker %s is left out: %s", topic, broker_name, error)
            continue
        leased = Leased(group, topic, HandleText(handle, message.log_offset))
        of_queue = counts.get((handle.queue_id, -1), 0)
        attempts = max(message.reconsume_times, counts.get((handle.queue_id, handle.offset), of_queue))
        found.append(Delivery(message, leased, attempts + 1))
    return found


def _handle(broker_name: str, reply: PopReply, queues: PoppedQueues, message: StoredMessage) -> Handle:
    """The receipt handle of a message. Brokers add it to retried messages; others get theirs from the answer."""
    offset, queue_id = message.queue_offset, message.queue_id
    text = raw_property(message.raw_properties, _POP_CK)
    if text is not None:
        return Handle.parse(text.decode("utf-8", "replace"))._replace(queue_id=queue_id, offset=offset)
    flag = flag_of(message.topic)
    start = queues.start(flag, queue_id, offset)
    return Handle(start, reply.pop_time, reply.invisible_time, reply.revive_qid, flag, broker_name, queue_id, offset)


def _order_counts(text: str | None) -> dict[tuple[int, int], int]:
    """How often messages of an orderly pop were delivered before, by queue and offset; offset -1 stands for all of a queue."""
    counts: dict[tuple[int, int], int] = {}
    for entry in (text or "").split(";"):
        words = entry.split(" ")
        if len(words) != 3 or not words[2].isdecimal():
            continue
        queue_id, _, offset = words[1].removeprefix("qo").partition("%")
        if queue_id.isdecimal() and (offset.isdecimal() or not offset):
            counts[int(queue_id), int(offset or -1)] = int(words[2])
    return counts
