"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue, and the renewal of leases.

    receive with auto_renew ──► Renewals ──┬─ 10 s before its end ──► another 1, 3, 5, 10, 30, 60, 60 … minutes, for 3 hours in all
                                           ├─ ack, change, forward ──► with the current handle
                                           └─ the client is gone ───► the message returns after 1 s

Clients keep the receipt handle with which they received a message. While its lease is renewed, that handle stands for the current one.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from pocketmq.access.accounts import Action, Resource
from pocketmq.clock import Clock
from pocketmq.errors import ImpossibleRequest, NetworkError, PocketMQError, TooManyCalls
from pocketmq.model import DELAY_LEVELS
from pocketmq.model.retries import DEAD_LETTER_LEVEL
from pocketmq.protocol.api.messages import AckMessage, ChangeInvisibleTime, SendMessageBack
from pocketmq.protocol.pop import NORMAL, RETRY_V2, pop_retry_topic
from pocketmq.proxy.callers import Caller
from pocketmq.proxy.conversion import HandleText, duration_ms, group_of, topic_of
from pocketmq.proxy.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    Status,
)
from pocketmq.proxy.sessions import Session, Sessions
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import OK, Refused, status_of, summary

log = logging.getLogger("pocketmq.grpc")

RENEWAL_MINUTES: Final = (1, 3, 5, 10, 30, 60)
RENEW_EARLY_S: Final = 10.0
SCAN_S: Final = 5.0
MAX_FAILURES: Final = 3
RETURN_MS: Final = 1_000
"""After this time, messages return that were leased to a client that is gone."""
_AT_A_TIME: Final = 256

Key = tuple[str, str, str]
"""Group, message id, and the handle with which the client received the message."""


class Leased:
    """A message with its current receipt handle."""

    def __init__(self, group: str, topic: str, handle: HandleText) -> None:
        self.group = group
        self.topic = topic
        self.handle = handle

    @property
    def real_topic(self) -> str:
        """The topic that the message is in."""
        flag = self.handle.handle.flag
        return self.topic if flag == NORMAL else pop_retry_topic(self.group, self.topic, v2=flag == RETRY_V2)

    async def ack(self, session: Session) -> None:
        handle = self.handle.handle
        header = AckMessage(self.group, self.real_topic, handle.queue_id, handle.text(), handle.offset)
        await session.brokers.leases.ack(handle.broker, header)

    async def change(self, session: Session, invisible_ms: int) -> None:
        handle = self.handle.handle
        answer = await session.brokers.leases.change(
            handle.broker,
            ChangeInvisibleTime(
                self.group, self.real_topic, handle.queue_id, handle.text(), handle.offset, invisible_ms
            ),
        )
        changed = handle._replace(
            start=handle.offset,
            pop_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue=answer.revive_qid,
        )
        self.handle = self.handle._replace(handle=changed)

    async def forward(self, session: Session, message_id: str) -> None:
        """Move the message to the dead letters of its group."""
        handle, log_offset = self.handle
        if log_offset < 0:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "the receipt handle has no log offset")
        header = SendMessageBack(
            log_offset, self.group, DEAD_LETTER_LEVEL, message_id, self.real_topic, max_reconsume_times=0
        )
        await session.brokers.messages.send_back(handle.broker, header)
        await self.ack(session)


class _Renewed(Leased):
    """A lease that is renewed. Times are monotonic."""

    def __init__(self, group: str, topic: str, handle: HandleText, attempt: int, now: float, until: float) -> None:
        super().__init__(group, topic, handle)
        self.attempt = attempt
        self.since = now
        self.until = until
        self.renewals = 0
        self.failures = 0
        self.changing = asyncio.Lock()


class Renewals:
    """The leases that are renewed, by client."""

    def __init__(self, settings: ProxySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._leases: dict[Session, dict[Key, _Renewed]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, session: Session, leased: Leased, message_id: str, attempt: int) -> None:
        """Renew the lease of a message that `session` has just received."""
        if self._count >= self._settings.max_renewed:
            return
        now = self._clock.monotonic()
        until = now + leased.handle.handle.invisible_ms / 1000
        renewed = _Renewed(leased.group, leased.topic, leased.handle, attempt, now, until)
        self._leases.setdefault(session, {})[leased.group, message_id, leased.handle.text()] = renewed
        self._count += 1

    def find(self, session: Session, key: Key) -> _Renewed | None:
        return self._leases.get(session, {}).get(key)

    def forget(self, session: Session, key: Key) -> None:
        of_session = self._leases.get(session, {})
        if of_session.pop(key, None) is not None:
            self._count -= 1
            if not of_session:
                del self._leases[session]

    async def renew_due(self) -> None:
        """Renew the leases that end soon. Called every `SCAN_S`."""
        soon = self._clock.monotonic() + RENEW_EARLY_S
        due = [
            (session, key, lease)
            for session, leases in self._leases.items()
            for key, lease in leases.items()
            if lease.until <= soon
        ]
        for at in range(0, len(due), _AT_A_TIME):
            await asyncio.gather(*(self._renew(*one) for one in due[at : at + _AT_A_TIME]))

    async def _renew(self, session: Session, key: Key, lease: _Renewed) -> None:
        async with lease.changing:
            if self.find(session, key) is not lease:
                return  # acknowledged meanwhile
            now = self._clock.monotonic()
            is_last = now - lease.since >= self._settings.renew_for_s
            minutes = RENEWAL_MINUTES[min(lease.renewals, len(RENEWAL_MINUTES) - 1)]
            invisible_ms = DELAY_LEVELS.ms(min(lease.attempt, len(DELAY_LEVELS))) if is_last else minutes * 60_000
            try:
                await lease.change(session, invisible_ms)
            except PocketMQError as error:
                lease.failures += 1
                log.warning("Cannot renew the lease of message %s of group %s: %s", key[1], lease.group, error)
            else:
                lease.renewals, lease.failures = lease.renewals + 1, 0
                lease.until = now + invisible_ms / 1000
            if is_last or lease.failures >= MAX_FAILURES:
                self.forget(session, key)

    async def release(self, session: Session) -> None:
        """Let the messages of a client return that is gone."""
        leases = self._leases.pop(session, {})
        self._count -= len(leases)
        of_brokers: dict[str, list[Leased]] = {}
        for lease in leases.values():
            of_brokers.setdefault(lease.handle.handle.broker, []).append(lease)
        await asyncio.gather(*(_give_back_to_one(session, of_broker) for of_broker in of_brokers.values()))


async def _give_back_to_one(session: Session, leases: Sequence[Leased]) -> None:
    """Give back messages of one broker. If it does not answer, the others return at the end of their leases."""
    for at in range(0, len(leases), _AT_A_TIME):
        if not all(await asyncio.gather(*(give_back(session, one) for one in leases[at : at + _AT_A_TIME]))):
            return


async def give_back(session: Session, leased: Leased) -> bool:
    """Let a message return soon. If that fails, it returns at the end of its lease. Whether its broker could be reached."""
    try:
        await leased.change(session, RETURN_MS)
    except PocketMQError as error:
        log.info("A message of group %s returns at the end of its lease only: %s", leased.group, error)
        return isinstance(error, TooManyCalls) or not isinstance(error, NetworkError)
    return True


class LeaseCalls:
    """Calls about received messages."""

    def __init__(self, sessions: Sessions, renewals: Renewals, settings: ProxySettings, clock: Clock) -> None:
        self._sessions = sessions
        self._renewals = renewals
        self._settings = settings
        self._clock = clock

    async def ack(self, caller: Caller, request: AckMessageRequest) -> AckMessageResponse:
        group, topic = group_of(request.group), topic_of(request.topic)
        session = await self._session(caller, group, topic)
        statuses = await asyncio.gather(*(self._ack(session, group, topic, entry) for entry in request.entries))
        entries = [
            AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            for entry, status in zip(request.entries, statuses, strict=True)
        ]
        if not entries:
            raise Refused(Code.BAD_REQUEST, "the request names no message")
        return AckMessageResponse(status=summary(statuses), entries=entries)

    async def _ack(self, session: Session, group: str, topic: str, entry: AckMessageEntry) -> Status:
        key = group, entry.message_id, entry.receipt_handle
        try:
            renewed = self._renewals.find(session, key)
            if renewed is None:
                await self._leased(session, group, topic, entry.receipt_handle, must_be_open=True).ack(session)
            else:
                async with renewed.changing:
                    await renewed.ack(session)
                    self._renewals.forget(session, key)
        except (Refused, PocketMQError) as error:
            return status_of(error)
        return OK

    async def change(self, caller: Caller, request: ChangeInvisibleDurationRequest) -> ChangeInvisibleDurationResponse:
        group, topic = group_of(request.group), topic_of(request.topic)
        invisible_ms, limit_s = duration_ms(request.invisible_duration), self._settings.max_invisible_s
        if not 0 <= invisible_ms <= limit_s * 1000:
            raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"{invisible_ms / 1000} s is not from 0 to {limit_s} s")
        session = await self._session(caller, group, topic)
        key = group, request.message_id, request.receipt_handle
        renewed = self._renewals.find(session, key)
        if renewed is None:
            leased = self._leased(session, group, topic, request.receipt_handle, must_be_open=False)
            await leased.change(session, invisible_ms)
        else:
            async with renewed.changing:
                await renewed.change(session, invisible_ms)
                self._renewals.forget(session, key)
            leased = renewed
        return ChangeInvisibleDurationResponse(status=OK, receipt_handle=leased.handle.text())

    async def forward(
        self, caller: Caller, request: ForwardMessageToDeadLetterQueueRequest
    ) -> ForwardMessageToDeadLetterQueueResponse:
        group, topic = group_of(request.group), topic_of(request.topic)
        session = await self._session(caller, group, topic)
        key = group, request.message_id, request.receipt_handle
        renewed = self._renewals.find(session, key)
        if renewed is None:
            leased = self._leased(session, group, topic, request.receipt_handle, must_be_open=False)
            await leased.forward(session, request.message_id)
        else:
            async with renewed.changing:
                await renewed.forward(session, request.message_id)
                self._renewals.forget(session, key)
        return ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _session(self, caller: Caller, group: str, topic: str) -> Session:
        caller.require(Resource.TOPIC, topic, Action.SUB)
        caller.require(Resource.GROUP, group, Action.SUB)
        session = self._sessions.of(caller)
        await session.route(topic)
        return session

    def _leased(self, session: Session, group: str, topic: str, text: str, *, must_be_open: bool) -> Leased:
        """A message by its handle alone. Refused if its broker is unknown, or its lease is over."""
        try:
            handle = HandleText.parse(text)
        except ImpossibleRequest as error:
            raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from None
        if not session.brokers.knows(handle.handle.broker):
            raise Refused(Code.INVALID_RECEIPT_HANDLE, f"broker {handle.handle.broker!r} is not known")
        if must_be_open and handle.handle.pop_ms + handle.handle.invisible_ms <= self._clock.now_ms():
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "the lease of this message is over")
        return Leased(group, topic, handle)


async def give_all_back(session: Session, leases: Iterable[Leased]) -> None:
    await asyncio.gather(*(give_back(session, leased) for leased in leases))
