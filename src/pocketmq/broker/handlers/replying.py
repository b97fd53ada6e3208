"""Replies: the answer to a request message goes straight to the client that asked.

    requester ── message with REPLY_TO_CLIENT ──► topic ──► replier
        ▲                                                      │ 324, 325
        └── push (326), and it says whether it took it ◄── broker ──► kept in <cluster>_REPLY_TOPIC, if that is wanted

The replier hears whether the requester took its reply. Keeping the reply is for those who look later: when it fails, that is
logged and counted, and changes nothing for the two. A replier whose line is lost meanwhile has to send again.
"""

import logging
from collections.abc import Callable

from pocketmq.broker.groups.members import Members
from pocketmq.broker.groups.notices import ask
from pocketmq.broker.handlers.sending import Tally
from pocketmq.broker.messages.appending import Appender, Draft, packed_host
from pocketmq.broker.messages.destinations import Destinations
from pocketmq.broker.settings import SettingsInUse
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message_id import Host
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api.sending import PushReplyMessage, SendMessage, SendReply

log = logging.getLogger("pocketmq.broker")

_NOT_KEPT = "0"
"""The message id of a reply that is kept nowhere; clients want some id."""


class ReplyHandlers:
    """Replies of both forms.

    `store_host` gives this broker as records name it; `tally_of` counts for a topic.
    """

    def __init__(
        self,
        *,
        members: Members,
        destinations: Destinations,
        appender: Appender,
        settings: SettingsInUse,
        clock: Clock,
        store_host: Callable[[], bytes],
        tally_of: Callable[[str], Tally],
    ) -> None:
        self._members = members
        self._destinations = destinations
        self._appender = appender
        self._settings = settings
        self._clock = clock
        self._store_host = store_host
        self._tally_of = tally_of
        self._told_undelivered = self._told_unkept = False
        self.delivered = 0
        self.undelivered = 0
        self.unkept = 0
        """Replies that should have been stored and could not be."""

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, request: Request[SendMessage]) -> Reply:
        draft = self._draft(request)
        failure = await self._push(request, draft)
        settings = self._settings.now
        answer = SendReply(_NOT_KEPT, draft.queue_id, 0, region=settings.region, trace_on=settings.trace_on)
        is_safe = not settings.store_reply_messages or await self._keep(draft, answer)
        if failure is not None:
            return Reply(answer, code=ResponseCode.SYSTEM_ERROR, remark=failure)
        return Reply(answer, code=ResponseCode.SUCCESS if is_safe else ResponseCode.FLUSH_DISK_TIMEOUT)

    # what is sent

    def _draft(self, request: Request[SendMessage]) -> Draft:
        """The reply as a message of its own; refused here, or not at all."""
        header, settings = request.header, self._settings.now
        properties = parse_properties(header.properties or "")
        properties.pop(names.POP_CK, None)
        properties[names.REGION] = settings.region
        properties[names.TRACE_ON] = "true" if settings.trace_on else "false"
        format_properties(properties)  # refuses what could not be pushed or kept, before a topic is made for it
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

    # delivering

    async def _push(self, request: Request[SendMessage], draft: Draft) -> str | None:
        """Give the reply to the client that asked; None, or why that failed."""
        failure = await self._deliver(request, draft)
        if failure is None:
            self.delivered += 1
            self._told_undelivered = False
            return None
        self.undelivered += 1
        if not self._told_undelivered:
            self._told_undelivered = True
            log.warning("a reply of %s is not delivered, and maybe more: %s", request.peer.address, failure)
        return failure

    async def _deliver(self, request: Request[SendMessage], draft: Draft) -> str | None:
        client_id = draft.properties.get(names.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        connection = self._members.producers.find_client(client_id)
        if connection is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        header, wait_ms = self._pushed(request, draft), self._settings.now.client_call_ms
        try:
            answer = await ask(connection, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, draft.body, wait_ms)
        except PocketMQError as error:
            return f"push reply message to {client_id} fail: {error}"
        refusal = answer.error()
        return None if refusal is None else f"push reply message to {client_id} fail: {refusal}"

    def _pushed(self, request: Request[SendMessage], draft: Draft) -> PushReplyMessage:
        header, now_ms = request.header, self._clock.now_ms()
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
            store_host=str(Host.unpack(self._store_host())),
            store_timestamp=now_ms,
            properties=format_properties({**draft.properties, names.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )

    # keeping

    async def _keep(self, draft: Draft, answer: SendReply) -> bool:
        """Store the reply and note its place in the answer; False when it was not synced in time."""
        topic = draft.topic  # appending may send it elsewhere first
        try:
            place = self._appender.append(draft)
        except PocketMQError as error:
            self.unkept += 1
            if not self._told_unkept:
                self._told_unkept = True
                log.warning("a reply in topic %s is not kept, and maybe more: %s", topic, error)
            return True
        self._told_unkept = False
        answer.msg_id = place.message_id(self._store_host())
        answer.queue_offset = place.queue_offset
        tally = self._tally_of(topic)
        tally.count += 1
        tally.bytes += len(draft.body)
        return await self._appender.safe()
