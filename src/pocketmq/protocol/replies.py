"""Answers to the requests that come by the thousand: whole frames from texts that are composed once.

    | prefix 8 | {"code":0,"extFields":{"msgId":" … ","queueId":" … ",…},"flag":1,…,"opaque": … ,…} |
                 fixed texts, with this answer's values in the gaps

They are byte for byte what `encode_command` gives for the same answer, at a fraction of its cost. All are JSON, which every
peer reads whatever the encoding of its request. An answer with something unusual in it goes the long way by itself.
"""

import struct
from typing import Final

import msgspec

from pocketmq.codes import VERSION, HeaderEncoding, Language, ResponseCode
from pocketmq.protocol.api.clients import HeartbeatReply
from pocketmq.protocol.api.sending import SendReply
from pocketmq.protocol.command import RESPONSE, Command, decode_command, encode_command
from pocketmq.protocol.fields import write_fields
from pocketmq.protocol.frames import PREFIX_SIZE, join_frame, split_frames

_pack_prefix = struct.Struct(">II").pack
_PREFIXES: Final = tuple(_pack_prefix(4 + size, size) for size in range(1024))
"""Prefixes of frames without a body, by the size of their JSON header."""

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_JSON: Final = int(HeaderEncoding.JSON)
_BEFORE_OPAQUE: Final = f'"}},"flag":{RESPONSE},"language":"{Language.PYTHON.name}","opaque":'
_END: Final = f',"serializeTypeCurrentRPC":"JSON","version":{int(VERSION)}}}'

_as_json = msgspec.json.Encoder().encode


class SendReplies:
    """Answers to sends: the message is stored, here is where. One per broker, for its region and trace switch."""

    __slots__ = ("_region", "_template", "_trace_on", "parts")

    def __init__(self, region: str, trace_on: bool) -> None:
        self._region = region
        self._trace_on = trace_on
        rest = (
            f',"MSG_REGION":{_as_json(region).decode()},"TRACE_ON":"{"true" if trace_on else "false"}{_BEFORE_OPAQUE}'
        )
        self.parts = (
            b'{"code":0,"extFields":{"msgId":"',
            b'","queueId":"',
            b'","queueOffset":"',
            b'","transactionId":"',
            b'"' + rest.encode(),
            _END.encode(),
        )
        """What stands around message id, queue id, queue offset, unique key and opaque."""
        before, queue_id, queue_offset, unique_key, opaque, end = (part.replace(b"%", b"%%") for part in self.parts)
        self._template = b"".join(
            (before, b"%b", queue_id, b"%d", queue_offset, b"%d", unique_key[:-1], b"%b", opaque[1:], b"%d", end)
        )

    def encode(
        self,
        opaque: int,
        msg_id: bytes,
        queue_id: int,
        queue_offset: int,
        transaction_id: str | None = None,
        recall_handle: str | None = None,
    ) -> bytes:
        """`msg_id` is made by the broker and plain; `transaction_id` comes from a client and may be anything."""
        if transaction_id is None or recall_handle is not None:
            reply = SendReply(
                msg_id.decode(),
                queue_id,
                queue_offset,
                transaction_id,
                recall_handle=recall_handle,
                region=self._region,
                trace_on=self._trace_on,
            )
            return encode_command(Command(_SUCCESS, write_fields(reply), flag=RESPONSE, opaque=opaque))
        header = self._template % (msg_id, queue_id, queue_offset, _as_json(transaction_id), opaque)
        try:
            return _PREFIXES[len(header)] + header
        except IndexError:
            return join_frame(_JSON, header)


def with_code(replies: bytes, code: int) -> bytes:
    """Answers that were made for success, with another code that means stored as well: 10, 11 or 12."""
    commands = [decode_command(frame) for frame in split_frames(replies)]
    for command in commands:
        command.code = code
    return b"".join(map(encode_command, commands))


def opaques_of(replies: bytes) -> list[int]:
    """Which requests these answers belong to."""
    return [decode_command(frame).opaque for frame in split_frames(replies)]


class PullReplies:
    """Answers to pulls with one outcome: a code and its remark, such as 0 `FOUND` or 19 `OFFSET_OVERFLOW_ONE`.

    Only the head is composed; the body follows it on the wire as it lies in the log, and is not copied here.
    """

    __slots__ = ("_after_opaque", "_start", "parts")

    def __init__(self, code: int, remark: str, broker_id: int = 0) -> None:
        self._start = f'{{"code":{int(code)},"extFields":{{"suggestWhichBrokerId":"{broker_id}","nextBeginOffset":"'
        self._after_opaque = f',"remark":{_as_json(remark).decode()}{_END}'
        texts = self._start, '","minOffset":"', '","maxOffset":"', _BEFORE_OPAQUE, self._after_opaque
        self.parts = tuple(text.encode() for text in texts)
        """What stands around next, smallest and largest offset and opaque."""

    def head(self, opaque: int, next_offset: int, min_offset: int, max_offset: int, body_size: int = 0) -> bytes:
        """Prefix and header of a frame whose body has `body_size` bytes."""
        header = (
            f'{self._start}{next_offset}","minOffset":"{min_offset}","maxOffset":"{max_offset}'
            f"{_BEFORE_OPAQUE}{opaque}{self._after_opaque}"
        ).encode()
        size = len(header)
        return _pack_prefix(4 + size + body_size, size) + header


class FixedReplies:
    """Answers that differ in nothing but their opaque."""

    __slots__ = ("_after_opaque", "_before_opaque")

    def __init__(self, ext: dict[str, str] | None = None) -> None:
        whole = encode_command(Command(_SUCCESS, ext, flag=RESPONSE, opaque=0))[PREFIX_SIZE:].decode()
        # Inside a JSON string every quote has a backslash before it, so this text is found at one place only.
        before, mark, after = whole.partition(',"opaque":0,')
        self._before_opaque = before + mark[:-2]
        self._after_opaque = mark[-1:] + after

    def encode(self, opaque: int) -> bytes:
        header = f"{self._before_opaque}{opaque}{self._after_opaque}".encode()
        size = len(header)
        return _pack_prefix(4 + size, size) + header


OFFSET_UPDATED: Final = FixedReplies({})
HEARD: Final = FixedReplies(write_fields(HeartbeatReply(support_heartbeat_v2=True, sub_change=True)))
"""Answers to heartbeats: RocketMQ says that the subscription changed to every client that sends all of it each time."""
HEARD_UNCHANGED: Final = FixedReplies(write_fields(HeartbeatReply(support_heartbeat_v2=True, sub_change=False)))


def offset_reply(opaque: int, offset: int) -> bytes:
    """The answer to every question about one offset: of a group, largest, smallest, by time."""
    header = f'{{"code":0,"extFields":{{"offset":"{offset}{_BEFORE_OPAQUE}{opaque}{_END}'.encode()
    return _PREFIXES[len(header)] + header
