"""Telemetry, Heartbeat and NotifyClientTermination, and the requests that brokers send to a client.

    client ── settings ──► what this server decides is filled in ──► client            brokers get a heartbeat with its groups
    broker ── 39  check a transaction ──► recover_orphaned_transaction_command ──► client ── EndTransaction, sometime
           ── 307 running info ─────────► print_thread_stack_trace_command ──────► client ── thread_stack_trace
           ── 309 consume a message ────► verify_message_command ────────────────► client ── verify_message_result

The answer to settings has the status OK, without which a client ignores it. A stream ends when the client ends it.
A client that stood still for too long is forgotten. If its stream is open, its next heartbeat makes it a member again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, Final

from pocketmq.access.accounts import Action, Resource
from pocketmq.codes import RequestCode
from pocketmq.errors import InvalidExpression, PocketMQError, RequestNotSupported, TopicNotFound
from pocketmq.model import DELAY_LEVELS, MessageQueue
from pocketmq.model import properties as names
from pocketmq.net import Peer
from pocketmq.protocol.api.messages import CheckTransactionState, GetConsumerRunningInfo
from pocketmq.protocol.bodies.clients import (
    CLIENT_VERSION,
    CONSUME_TYPE,
    ConsumeOutcome,
    ConsumerRunningInfo,
    ConsumeType,
    DirectConsumption,
    ExponentialRetryPolicy,
    PopProcessQueueInfo,
    RetryPolicyType,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_record
from pocketmq.proxy.callers import Caller, require_topics
from pocketmq.proxy.conversion import duration_of, group_of, proto_of, topic_of
from pocketmq.proxy.leases import Renewals
from pocketmq.proxy.messages import (
    ClientType,
    Code,
    CustomizedBackoff,
    ExponentialBackoff,
    HeartbeatRequest,
    HeartbeatResponse,
    Metric,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    PrintThreadStackTraceCommand,
    RecoverOrphanedTransactionCommand,
    RetryPolicy,
    Settings,
    TelemetryCommand,
    VerifyMessageCommand,
)
from pocketmq.proxy.routes import ALL_QUEUES, Facts
from pocketmq.proxy.sending import Half, HalfMessages
from pocketmq.proxy.sessions import Session, Sessions, Stream, Write
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import OK, Refused

log = logging.getLogger("pocketmq.grpc")

_CONSUMERS: Final = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)
_OUTCOMES: Final = {Code.OK: ConsumeOutcome.CR_SUCCESS, Code.FAILED_TO_CONSUME_MESSAGE: ConsumeOutcome.CR_LATER}

Read = Callable[[], Awaitable[TelemetryCommand | None]]
"""The next command of the client; None at the end of its stream."""


class BrokerRequests:
    """Serves the requests of brokers to a client, by commands on its telemetry stream."""

    def __init__(self, halves: HalfMessages, settings: ProxySettings) -> None:
        self._halves = halves
        self._command_s = settings.command_s
        self._nonces = count(1)
        self.unsent_checks = 0
        """Check-backs for clients that had no telemetry stream. Brokers repeat them."""

    def serve(
        self, session: Session, peer: Peer, command: Command
    ) -> Command | Coroutine[Any, Any, Command | None] | None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check(session, command)
        elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self._running_info(session, command)
        elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return self._verify(session, command)
        elif command.code not in (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET):
            raise RequestNotSupported(f" request type {command.code} not supported")
        return None

    def _check(self, session: Session, command: Command) -> None:
        header, message = CheckTransactionState.decode(command.ext), decode_record(command.body)
        topic = message.properties.get(names.REAL_TOPIC) or message.topic
        transaction_id = header.transaction_id or message.message_id
        half = Half((command.ext or {}).get("bname", ""), header.tran_state_table_offset, header.commit_log_offset)
        if not half.broker_name:
            half = half._replace(broker_name=_broker_at(session, str(message.store_host)))
        self._halves.remember(topic, transaction_id, half)
        recover = RecoverOrphanedTransactionCommand(message=proto_of(message, topic), transaction_id=transaction_id)
        if not session.send(TelemetryCommand(recover_orphaned_transaction_command=recover)):
            self.unsent_checks += 1

    async def _running_info(self, session: Session, command: Command) -> Command:
        header = GetConsumerRunningInfo.decode(command.ext)
        stacks: str | None = None
        if header.jstack_enable:
            nonce = self._nonce()
            print_stack = PrintThreadStackTraceCommand(nonce=nonce)
            answer = await self._ask(session, nonce, TelemetryCommand(print_thread_stack_trace_command=print_stack))
            stacks = answer.thread_stack_trace.thread_stack_trace
        properties = {CONSUME_TYPE: ConsumeType.CONSUME_POP.value, CLIENT_VERSION: session.caller.version}
        popped = {
            MessageQueue(topic, broker_name, ALL_QUEUES): PopProcessQueueInfo(
                last_pop_timestamp=session.popped_ms.get((topic, broker_name), 0)
            )
            for topic, broker_name in session.sources()
        }
        info = ConsumerRunningInfo(properties, session.subscriptions, mq_pop_table=popped, jstack=stacks)
        return command.reply(body=info.encode())

    async def _verify(self, session: Session, command: Command) -> Command:
        message, nonce = decode_record(command.body), self._nonce()
        proto = proto_of(message, message.properties.get(names.RETRY_TOPIC) or message.topic)
        verify = VerifyMessageCommand(nonce=nonce, message=proto)
        answer = await self._ask(session, nonce, TelemetryCommand(verify_message_command=verify))
        code = Code(answer.status.code) if answer.status.code in set(Code) else Code.INTERNAL_ERROR
        outcome = _OUTCOMES.get(code, ConsumeOutcome.CR_RETURN_NULL)
        return command.reply(body=DirectConsumption(consume_result=outcome, remark=answer.status.message).encode())

    async def _ask(self, session: Session, nonce: str, command: TelemetryCommand) -> TelemetryCommand:
        """The answer of the client. PocketMQError if it does not come in time."""
        future: asyncio.Future[TelemetryCommand] = asyncio.get_running_loop().create_future()
        session.answers[nonce] = future
        try:
            if not session.send(command):
                raise RequestNotSupported(f"client {session.caller.client_id} has no telemetry stream")
            async with asyncio.timeout(self._command_s):
                return await future
        except TimeoutError:
            raise RequestNotSupported(
                f"client {session.caller.client_id} did not answer within {self._command_s} s"
            ) from None
        finally:
            del session.answers[nonce]

    def _nonce(self) -> str:
        return str(next(self._nonces))


def _broker_at(session: Session, address: str) -> str:
    """The name of the broker at an address, for brokers that do not send their name."""
    for name in session.brokers.names:
        if str(session.brokers.master(name)) == address:
            return name
    return next(iter(session.brokers.names), "")


class TelemetryCalls:
    """Calls about the client itself."""

    def __init__(self, sessions: Sessions, facts: Facts, renewals: Renewals, settings: ProxySettings) -> None:
        self._sessions = sessions
        self._facts = facts
        self._renewals = renewals
        self._settings = settings

    async def telemetry(self, caller: Caller, read: Read, write: Write) -> None:
        """Serve one stream, until the client ends it. Refused for settings that are not allowed."""
        session, stream = self._sessions.of(caller), Stream(write)
        session.streams.append(stream)
        writing = asyncio.ensure_future(stream.write_all())
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())  # a lost stream ends by `read`
        try:
            while (command := await read()) is not None:
                current = self._sessions.current(caller)
                if current.streams is not session.streams:  # the client was forgotten meanwhile
                    session.streams.remove(stream)
                    current.streams.append(stream)
                session = current
                session.touch()
                kind = command.WhichOneof("command")
                if kind == "settings":
                    settings = await self._negotiate(caller, session, command.settings)
                    await stream.write(TelemetryCommand(status=OK, settings=settings))
                elif kind in ("thread_stack_trace", "verify_message_result"):
                    _answered(session, getattr(command, kind).nonce, command)
        finally:
            writing.cancel()
            session.streams.remove(stream)
            self._sessions.stream_ended(caller)
            session.touch()

    async def _negotiate(self, caller: Caller, session: Session, wanted: Settings) -> Settings:
        """The settings of the client, with those that this server decides. Brokers get to know its groups."""
        settings = Settings()
        settings.CopyFrom(wanted)
        kind = wanted.WhichOneof("pub_sub")
        if kind == "publishing":
            require_topics(caller, map(topic_of, (topic for topic in wanted.publishing.topics)), Action.PUB)
            settings.backoff_policy.CopyFrom(_PRODUCER_BACKOFF)
            settings.publishing.max_body_size = self._settings.max_body_bytes
            settings.publishing.validate_message_type = True
            await self._adopt(session, wanted)
        elif kind == "subscription":
            group = group_of(wanted.subscription.group)
            caller.require(Resource.GROUP, group, Action.SUB)
            topics = [topic_of(one.topic) for one in wanted.subscription.subscriptions]
            require_topics(caller, topics, Action.SUB)
            await self._adopt(session, wanted)
            config = await self._group(session, group, topics)
            settings.backoff_policy.CopyFrom(_backoff(config))
            settings.subscription.fifo = config.consume_message_orderly
            settings.subscription.receive_batch_size = self._settings.receive_batch
            settings.subscription.long_polling_timeout.CopyFrom(duration_of(self._settings.max_polling_s * 1000))
        else:
            raise Refused(Code.BAD_REQUEST, "the settings have neither publishing nor subscription")
        settings.metric.CopyFrom(Metric(on=False))
        return settings

    async def _adopt(self, session: Session, wanted: Settings) -> None:
        try:
            await session.adopt(wanted)
        except InvalidExpression as error:
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
        except PocketMQError as error:
            log.warning("Brokers do not know client %s yet: %s", session.caller.client_id, error)

    async def _group(self, session: Session, group: str, topics: list[str]) -> SubscriptionGroupConfig:
        for topic in topics:
            try:
                return await self._facts.group(session, group, topic)
            except (PocketMQError, Refused) as error:
                if not isinstance(error, TopicNotFound):
                    log.warning("The settings of group %s are not known: %s", group, error)
        return SubscriptionGroupConfig(group)

    async def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> HeartbeatResponse:
        if (forgotten := self._sessions.forgotten(caller)) is not None and forgotten.settings is not None:
            session = self._sessions.of(caller)
            session.streams = forgotten.streams
            await self._adopt(session, forgotten.settings)
        session = self._sessions.known(caller)
        if request.client_type != ClientType.PRODUCER and request.client_type not in _CONSUMERS:
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, f"client type {request.client_type} is not supported")
        session.send_heartbeats_if_due()
        return HeartbeatResponse(status=OK)

    async def terminate(
        self, caller: Caller, request: NotifyClientTerminationRequest
    ) -> NotifyClientTerminationResponse:
        session = self._sessions.known(caller)
        await self.end(session)
        return NotifyClientTerminationResponse(status=OK)

    async def end(self, session: Session) -> None:
        """Forget a client; its messages return."""
        await self._renewals.release(session)
        await self._sessions.end(session)

    async def end_silent(self) -> None:
        """Forget the clients that are gone without a word."""
        silent = self._sessions.silent()
        for session in silent:
            log.info("Client %s is gone: it has been silent for too long", session.caller.client_id)
            self._sessions.expire(session)
        await asyncio.gather(*map(self.end, silent))


def _answered(session: Session, nonce: str, command: TelemetryCommand) -> None:
    future = session.answers.get(nonce)
    if future is not None and not future.done():
        future.set_result(command)


_PRODUCER_BACKOFF: Final = RetryPolicy(
    max_attempts=3,
    exponential_backoff=ExponentialBackoff(initial=duration_of(10), max=duration_of(1_000), multiplier=2),
)


def _backoff(config: SubscriptionGroupConfig) -> RetryPolicy:
    """How often a message is delivered, and the delays between."""
    attempts, policy = config.retry_max_times + 1, config.group_retry_policy
    if policy.type is RetryPolicyType.EXPONENTIAL:
        given = policy.exponential_retry_policy or ExponentialRetryPolicy()
        backoff = ExponentialBackoff(
            initial=duration_of(given.initial), max=duration_of(given.max), multiplier=given.multiplier
        )
        return RetryPolicy(max_attempts=attempts, exponential_backoff=backoff)
    delays = policy.customized_retry_policy.next if policy.customized_retry_policy else ()
    delays = delays or tuple(DELAY_LEVELS.ms(level) for level in range(1, len(DELAY_LEVELS) + 1))
    return RetryPolicy(max_attempts=attempts, customized_backoff=CustomizedBackoff(next=map(duration_of, delays)))
