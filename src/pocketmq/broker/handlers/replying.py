"""Replies: the answer to a request message goes directly to the client that sent the request.

    requester ── message with REPLY_TO_CLIENT ──► topic ──► replier
        ▲                                                      │ 324, 325
        └── push (326), and its answer ◄───────────────── broker ──► stored in <cluster>_REPLY_TOPIC, if configured

The replier gets the requester's answer to the push. Storing the reply is for later inspection: a failure is logged and
counted, and does not affect the two. A replier whose connection is lost in the meantime must send again.
"""

import logging

from pocketmq.broker.groups.consumer_group import call_client
from pocketmq.broker.handlers.destinations import Destinations
from pocketmq.broker.messages import Draft, packed_host
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.errors import PocketMQError
from pocketmq.model import Host
from pocketmq.model import properties as names
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.net import Handler, Reply, Request
from pocketmq.protocol.api.messages import PushReplyMessage, SendMessage, SendReply

log = logging.getLogger("pocketmq.broker")

_NOT_STORED = "0"
"""The message id of a reply that is not stored; clients need some id."""


class ReplyHandlers:
    """Replies of both forms."""

    def __init__(self, state: BrokerState, destinations: Destinations) -> None:
        self._state = state
        self._destinations = destinations
        self._undelivered_logged = self._unstored_logged = False
        self.delivered = 0
        self.undelivered = 0
        self.unstored = 0
        """Replies that could not be stored."""

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, request: Request[SendMessage]) -> Reply:
        draft = self._draft(request)
        failure = await self._push(request, draft)
        settings = self._state.settings.now
        answer = SendReply(_NOT_STORED, draft.queue_id, 0, region=settings.region, trace_on=settings.trace_on)
        is_safe = not settings.store_reply_messages or await self._store_reply(draft, answer)
        if failure is not None:
            return Reply(answer, code=ResponseCode.SYSTEM_ERROR, remark=failure)
        return Reply(answer, code=ResponseCode.SUCCESS if is_safe else ResponseCode.FLUSH_DISK_TIMEOUT)

    # drafts

    def _draft(self, request: Request[SendMessage]) -> Draft:
        """The reply as a message of its own. Raises before anything is sent or stored."""
        header, settings = request.header, self._state.settings.now
        properties = parse_properties(header.properties or "")
        properties.pop(names.POP_CK, None)
        properties[names.REGION] = settings.region
        properties[names.TRACE_ON] = "true" if settings.trace_on else "false"
        format_properties(properties)  # rejects what cannot be pushed or stored, before a topic is created for it
        return Draft(
            topic=header.topic,
            queue_id=self._destinations.queue_id(request.peer, header),
            body=request.command.body,
            properties=properties,
            born_ms=header.born_timestamp,
            born_host=packed_host(request.peer.address),
            flag=header.flag,
            sys_flag=header.sys_flag & SysFlag.OF_CLIENTS,
            reconsume_times=header.reconsume_times or 0,
        )

    # push

    async def _push(self, request: Request[SendMessage], draft: Draft) -> str | None:
        """Push the reply to the client that sent the request. None, or the reason of the failure."""
        failure = await self._deliver(request, draft)
        if failure is None:
            self.delivered += 1
            self._undelivered_logged = False
            return None
        self.undelivered += 1
        if not self._undelivered_logged:
            self._undelivered_logged = True
            log.warning(
                "Cannot deliver a reply of %s: %s; further failures are not logged until one succeeds",
                request.peer.address,
                failure,
            )
        return failure

    async def _deliver(self, request: Request[SendMessage], draft: Draft) -> str | None:
        client_id = draft.properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        connection = self._state.members.producers.find_client(client_id)
        if connection is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        header, wait_ms = self._pushed(request, draft), self._state.settings.now.client_call_ms
        try:
            answer = await call_client(
                connection, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, draft.body, wait_ms
            )
        except PocketMQError as error:
            return f"push reply message to {client_id} fail: {error}"
        refusal = answer.error()
        return None if refusal is None else f"push reply message to {client_id} fail: {refusal}"

    def _pushed(self, request: Request[SendMessage], draft: Draft) -> PushReplyMessage:
        header, now_ms = request.header, self._state.clock.now_ms()
        return PushReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=draft.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=str(request.peer.address),
            store_host=str(Host.unpack(self._state.store.store_host)),
            store_timestamp=now_ms,
            properties=format_properties({**draft.properties, names.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )

    # store

    async def _store_reply(self, draft: Draft, answer: SendReply) -> bool:
        """Store the reply and set its position in the answer. False if it was not synced in time."""
        topic = draft.topic  # appending may change it
        try:
            position = self._state.appender.append(draft)
        except PocketMQError as error:
            self.unstored += 1
            if not self._unstored_logged:
                self._unstored_logged = True
                log.warning(
                    "Cannot store a reply in topic %s: %s; further failures are not logged until one succeeds",
                    topic,
                    error,
                )
            return True
        self._unstored_logged = False
        answer.msg_id = position.message_id(self._state.store.store_host)
        answer.queue_offset = position.queue_offset
        tally = self._state.stats.sent(topic)
        tally.count += 1
        tally.bytes += len(draft.body)
        return await self._state.appender.safe()
