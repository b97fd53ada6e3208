"""Relays: requests of administrators that the broker forwards to a client over the client's own connection.

administrator ── 307, 309, 223 ──► broker ── 307, 309, 221 ──► client
              ◄─────────────────────────── its answer ◄───────────┘     or 207 after a time limit
"""

import asyncio
import logging

from pocketmq.broker.groups.consumer_group import ClientInfo, call_client, require_version
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode, Version
from pocketmq.errors import CallTimedOut, ConsumeTimedOut, ImpossibleRequest, NetworkError, PocketMQError, ServerFailed
from pocketmq.model import MessageQueue, OffsetId
from pocketmq.net import Handler, Reply, Request
from pocketmq.protocol.api.messages import ConsumeMessageDirectly, GetConsumerRunningInfo, GetConsumerStatus
from pocketmq.protocol.bodies.topics import ConsumerStatus
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields

log = logging.getLogger("pocketmq.broker")


class RelayHandlers:
    """Requests that clients answer."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    async def running_info(self, request: Request[GetConsumerRunningInfo]) -> Reply:
        header = request.header
        client = self._client(header.consumer_group, header.client_id)
        return await self._relay(header.consumer_group, client, RequestCode.GET_CONSUMER_RUNNING_INFO, header)

    async def consume_directly(self, request: Request[ConsumeMessageDirectly]) -> Reply:
        wanted = request.header
        client = self._client(wanted.consumer_group, wanted.client_id)
        record = self._message(wanted.msg_id)
        topic = self._state.topics.get(wanted.topic or "")
        group = self._state.groups.get(wanted.consumer_group)
        header = ConsumeMessageDirectly(
            wanted.consumer_group,
            wanted.client_id,
            wanted.msg_id,
            self._state.settings.now.broker_name,
            wanted.topic,
            topic.topic_sys_flag if topic else None,
            group.group_sys_flag if group else None,
        )
        return await self._relay(
            wanted.consumer_group, client, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, body=record
        )

    async def consumer_status(self, request: Request[GetConsumerStatus]) -> Reply:
        """The offsets of a group's members, as they report them. The remark lists members without an answer."""
        header = request.header
        clients = self._status_clients(header)
        answers = await asyncio.gather(*(self._status_of(client, header) for client in clients))
        table = {
            client.client_id: answer for client, answer in zip(clients, answers, strict=True) if answer is not None
        }
        missing = [client.client_id for client in clients if client.client_id not in table]
        remark = f"no answer from {', '.join(missing)}" if missing else None
        if not table:
            raise ConsumeTimedOut(remark)
        return Reply(body=ConsumerStatus(consumer_table={**table}).encode(), remark=remark)

    def _status_clients(self, header: GetConsumerStatus) -> list[ClientInfo]:
        group = self._state.members.group(header.group)
        if group is None:
            raise ImpossibleRequest(f"No Any Consumer online in the consumer group: [{header.group}]")
        clients = [client for client_id in group.client_ids() if (client := group.find(client_id))]
        if header.client_addr:
            clients = [client for client in clients if client.client_id == header.client_addr]
            if not clients:
                raise _offline(header.group, header.client_addr)
        for client in clients:
            require_version(client, Version.V3_0_7_SNAPSHOT)
        return clients

    async def _status_of(self, client: ClientInfo, header: GetConsumerStatus) -> dict[MessageQueue, int] | None:
        query = GetConsumerStatus(header.topic, header.group)
        try:
            answer = await self._ask(client, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, query)
            if (failure := answer.error()) is not None:
                raise failure
            return ConsumerStatus.decode(answer.body).message_queue_table
        except PocketMQError as error:
            log.warning(
                "Client %s of group %s did not report its offsets: %s; the answer names it",
                client.client_id,
                header.group,
                error,
            )
            return None

    # calls to clients

    def _client(self, group: str, client_id: str | None) -> ClientInfo:
        client = self._state.members.find_consumer(group, client_id) if client_id else None
        if client is None:
            raise _offline(group, client_id)
        require_version(client, Version.V3_1_8_SNAPSHOT)
        return client

    def _message(self, msg_id: str | None) -> bytes:
        if not msg_id:
            raise ImpossibleRequest("msgId is missing: it names the message that the client consumes")
        record = self._state.store.record(OffsetId.parse(msg_id).offset)
        if record is None:
            raise ImpossibleRequest(f"no message {msg_id} is stored on this broker; it may have been deleted")
        return record

    async def _relay(
        self, group: str, client: ClientInfo, code: RequestCode, header: Fields, body: bytes = b""
    ) -> Reply:
        """The client's own answer, whatever its code."""
        who = f"consumer <{group}> <{client.client_id}>"
        try:
            answer = await self._ask(client, code, header, body)
        except CallTimedOut as error:
            raise ConsumeTimedOut(f"{who} Timeout: {error}") from None
        except NetworkError as error:
            raise ServerFailed(f"invoke {who} Exception: {error}") from None
        return Reply(None, answer.body, answer.code, answer.remark)

    async def _ask(self, client: ClientInfo, code: RequestCode, header: Fields, body: bytes = b"") -> Command:
        return await call_client(client.connection, code, header, body, self._state.settings.now.client_call_ms)


def _offline(group: str, client_id: str | None) -> ImpossibleRequest:
    return ImpossibleRequest(f"The Consumer <{group}> <{client_id}> not online")
