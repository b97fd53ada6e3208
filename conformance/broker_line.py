"""A connection to a broker: one question at a time, each waits for its answer. Made of `pocketmq.protocol` alone."""

import socket
from collections.abc import Collection
from typing import Final, Self, TypeVar

from pocketmq.clock import SystemClock
from pocketmq.codes import BoundaryType, PullFlag, RequestCode, ResponseCode
from pocketmq.errors import ConnectionLost
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.messages import (
    ForQueue,
    GetMaxOffset,
    OffsetReply,
    PullMessage,
    PullReply,
    QueryConsumerOffset,
    QueryMessage,
    SearchOffset,
    SendMessageV2,
    SendReply,
    UpdateConsumerOffset,
    ViewMessage,
)
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.fields import Fields, NoFields
from pocketmq.protocol.frames import FrameSplitter
from pocketmq.protocol.record import decode_records

H = TypeVar("H", bound=Fields)

GROUP: Final = "CG_conformance"
PRODUCER_GROUP: Final = "PG_conformance"
_TIMEOUT_S: Final = 60.0


class BrokerLine:
    """A line to the broker on this port of loopback."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._splitter = FrameSplitter()
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def call(
        self,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        accepted: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Ask, and wait for the answer; RemoteError when its code is not one of the accepted."""
        self._number += 1
        request = Command(code, (header or NoFields()).encode(), body, opaque=self._number)
        self._socket.sendall(encode_command(request))
        while True:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionLost(f"the broker closed the line before it answered {code.name}")
            for frame in self._splitter.feed(data):
                answer = decode_command(frame)
                if answer.is_response and answer.opaque == self._number:
                    return _accepted(answer, accepted)

    def _ask(self, code: RequestCode, header: Fields, reply: type[H]) -> H:
        return reply.decode(self.call(code, header).ext)

    # queues

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self._ask(RequestCode.GET_MIN_OFFSET, ForQueue(topic, queue_id), OffsetReply).offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self._ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, queue_id), OffsetReply).offset

    def offset_at_time(
        self, topic: str, queue_id: int, when_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        header = SearchOffset(topic, queue_id, when_ms, boundary)
        return self._ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, OffsetReply).offset

    def pull(self, topic: str, queue_id: int, offset: int, tags: str = "*") -> tuple[list[StoredMessage], int, int]:
        """Messages from `offset`, the offset of the next pull, and the code of the answer."""
        header = PullMessage(GROUP, topic, queue_id, offset, 32, PullFlag.SUBSCRIPTION, 0, 0, 0, tags, "TAG")
        accepted = (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        )
        answer = self.call(RequestCode.PULL_MESSAGE, header, accepted=accepted)
        return decode_records(answer.body), PullReply.decode(answer.ext).next_begin_offset, answer.code

    def read_queue(self, topic: str, queue_id: int, tags: str = "*") -> list[StoredMessage]:
        """Everything in a queue, from its first message to its last."""
        found: list[StoredMessage] = []
        offset, end = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        while offset < end:
            messages, following, code = self.pull(topic, queue_id, offset, tags)
            if following <= offset:
                raise ConnectionLost(f"{topic}:{queue_id} stands still at {offset} of {end}: code {code}")
            found += messages
            offset = following
        return found

    # single messages

    def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, *, unique: bool = False
    ) -> list[StoredMessage]:
        """Messages of `topic` with this key, stored between these times.

        A broker finds them by the key's hash and by whole seconds, so keys are compared here, as clients do.
        """
        header = QueryMessage(topic, key, 64, begin_ms, end_ms, unique)
        answer = self.call(RequestCode.QUERY_MESSAGE, header, accepted=(0, ResponseCode.QUERY_NOT_FOUND))
        found = decode_records(answer.body)
        return [
            message
            for message in found
            if message.topic == topic and (message.properties.get("UNIQ_KEY") == key if unique else key in message.keys)
        ]

    def view(self, log_offset: int) -> StoredMessage:
        (message,) = decode_records(self.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(log_offset)).body)
        return message

    # sending

    def send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        *,
        sys_flag: int = 0,
        flag: int = 0,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    ) -> SendReply:
        """Have a message stored, or a batch of them."""
        header = SendMessageV2(
            PRODUCER_GROUP,
            topic,
            AUTO_CREATE_TOPIC,
            4,
            queue_id,
            sys_flag,
            SystemClock().now_ms(),
            flag,
            format_properties(properties),
            0,
            False,
            batch=code is RequestCode.SEND_BATCH_MESSAGE,
        )
        return SendReply.decode(self.call(code, header, body).ext)

    # groups

    def committed(self, topic: str, queue_id: int, group: str = GROUP) -> int:
        header = QueryConsumerOffset(group, topic, queue_id)
        return self._ask(RequestCode.QUERY_CONSUMER_OFFSET, header, OffsetReply).offset

    def commit(self, topic: str, queue_id: int, offset: int, group: str = GROUP) -> None:
        self.call(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(group, topic, queue_id, offset))


def _accepted(answer: Command, accepted: Collection[int]) -> Command:
    if answer.code not in accepted and (error := answer.error()) is not None:
        raise error
    return answer
