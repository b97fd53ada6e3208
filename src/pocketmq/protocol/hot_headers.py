"""Frequent requests and responses, decoded and encoded without intermediate objects.

Requests: header and ext fields are decoded in one step.

    Frame ── decode_head ──► SendHead(opaque=7, version=479, ext=SendMessageV2(topic="T", queue_id=3, …))
        └─ None ──► decode_command, then Fields.decode: the general path, with the exact error

`decode_head` returns None for other codes, for responses, for binary headers, and for malformed input. It skips ext fields that the header
does not declare, such as signatures; servers that check signatures use the general path.

Responses: frames are built from prepared texts.

    | prefix 8 | {"code":0,"extFields":{"msgId":" … ","queueId":" … ",…},"flag":1,…,"opaque": … ,…} |

They are byte-identical to the output of `encode_command`. They are always JSON, which every peer accepts. Responses with other fields use
the general path.

Send responses, for clients: decoded in one step.

    header ── read_stored ──► StoredAnswer(opaque=7, ext=StoredAt(msgId="7F…", queueId="3", queueOffset="12", …))
        └─ raises NOT_STORED ──► decode_command: the general path, with the exact error
"""

import re
import struct
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import field

from pocketmq.codes import VERSION, HeaderEncoding, Language, RequestCode, ResponseCode
from pocketmq.protocol.api.messages import (
    AckMessage,
    ChangeInvisibleTime,
    HeartbeatReply,
    PopMessage,
    PopReply,
    PullMessage,
    QueryConsumerOffset,
    SendMessage,
    SendMessageV2,
    SendReply,
    UpdateConsumerOffset,
)
from pocketmq.protocol.command import RESPONSE, Command, decode_command, encode_command, header_template
from pocketmq.protocol.fields import Int32, NoFields, language_of, number_fields
from pocketmq.protocol.frames import Frame, join_frame, split_frames
from pocketmq.protocol.header_encodings import DECODE_ERRORS

_RequestFlag = Annotated[int, msgspec.Meta(multiple_of=RESPONSE << 1, ge=-(2**31), le=2**31 - 1)]
"""A flag without the response bit, so that the decoder refuses responses."""


class _Head(msgspec.Struct, tag_field="code", kw_only=True, gc=False):
    opaque: Int32 = 0
    flag: _RequestFlag = 0
    version: Int32 = 0


class SendHead(_Head, tag=int(RequestCode.SEND_MESSAGE), gc=False):
    code: ClassVar = RequestCode.SEND_MESSAGE
    ext: SendMessage = field(name="extFields")


class SendV2Head(_Head, tag=int(RequestCode.SEND_MESSAGE_V2), gc=False):
    code: ClassVar = RequestCode.SEND_MESSAGE_V2
    ext: SendMessageV2 = field(name="extFields")


class SendBatchHead(_Head, tag=int(RequestCode.SEND_BATCH_MESSAGE), gc=False):
    code: ClassVar = RequestCode.SEND_BATCH_MESSAGE
    ext: SendMessageV2 = field(name="extFields")


class PullHead(_Head, tag=int(RequestCode.PULL_MESSAGE), gc=False):
    code: ClassVar = RequestCode.PULL_MESSAGE
    ext: PullMessage = field(name="extFields")


class LitePullHead(_Head, tag=int(RequestCode.LITE_PULL_MESSAGE), gc=False):
    code: ClassVar = RequestCode.LITE_PULL_MESSAGE
    ext: PullMessage = field(name="extFields")


class QueryOffsetHead(_Head, tag=int(RequestCode.QUERY_CONSUMER_OFFSET), gc=False):
    code: ClassVar = RequestCode.QUERY_CONSUMER_OFFSET
    ext: QueryConsumerOffset = field(name="extFields")


class UpdateOffsetHead(_Head, tag=int(RequestCode.UPDATE_CONSUMER_OFFSET), gc=False):
    code: ClassVar = RequestCode.UPDATE_CONSUMER_OFFSET
    ext: UpdateConsumerOffset = field(name="extFields")


class PopHead(_Head, tag=int(RequestCode.POP_MESSAGE), gc=False):
    code: ClassVar = RequestCode.POP_MESSAGE
    ext: PopMessage = field(name="extFields")


class AckHead(_Head, tag=int(RequestCode.ACK_MESSAGE), gc=False):
    code: ClassVar = RequestCode.ACK_MESSAGE
    ext: AckMessage = field(name="extFields")


class BatchAckHead(_Head, tag=int(RequestCode.BATCH_ACK_MESSAGE), gc=False):
    """A batch ack has a body, and no ext fields of its own."""

    code: ClassVar = RequestCode.BATCH_ACK_MESSAGE
    ext: NoFields | None = field(name="extFields", default=None)


class ChangeHead(_Head, tag=int(RequestCode.CHANGE_MESSAGE_INVISIBLETIME), gc=False):
    code: ClassVar = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    ext: ChangeInvisibleTime = field(name="extFields")


class HeartbeatHead(_Head, tag=int(RequestCode.HEART_BEAT), gc=False):
    """A heartbeat has no ext fields, but the broker needs the language of the client."""

    code: ClassVar = RequestCode.HEART_BEAT
    sent_language: str | int | None = field(default=None, name="language")

    @property
    def language(self) -> Language:
        return language_of(self.sent_language)


_Send = SendHead | SendV2Head | SendBatchHead
_Lease = PopHead | AckHead | BatchAckHead | ChangeHead
Head = _Send | PullHead | LitePullHead | QueryOffsetHead | UpdateOffsetHead | _Lease | HeartbeatHead
"""Any frequent request; `code`, `opaque`, `flag` and `version` are in all of them, `ext` in all but the heartbeat."""
HEADS: Final[dict[int, Any]] = {
    head.code: head
    for head in (
        SendHead,
        SendV2Head,
        SendBatchHead,
        PullHead,
        LitePullHead,
        QueryOffsetHead,
        UpdateOffsetHead,
        PopHead,
        AckHead,
        BatchAckHead,
        ChangeHead,
    )
}
"""Those with ext fields, by request code."""
LEASE_CODES: Final = frozenset({PopHead.code, AckHead.code, BatchAckHead.code, ChangeHead.code})

_JSON: Final = int(HeaderEncoding.JSON)
_NUMBERS: Final = frozenset(
    name.encode()
    for header in (
        SendMessage,
        SendMessageV2,
        PullMessage,
        QueryConsumerOffset,
        UpdateConsumerOffset,
        PopMessage,
        AckMessage,
        ChangeInvisibleTime,
    )
    for name in number_fields(header)
)
_PADDED: Final = re.compile(rb'":"0+(?=[0-9])')
"""Leading zeros of a number, which Java accepts, or of a name of digits."""
_decode: Final[Callable[[bytes], Head]] = msgspec.json.Decoder(Head, strict=False).decode


def decode_head(frame: Frame) -> Head | None:
    """The head of a frequent request; None for other frames. Never raises."""
    encoding, header, _ = frame
    if encoding != _JSON:
        return None
    try:
        return _decode(header)
    except DECODE_ERRORS:
        pass
    plain = _PADDED.sub(_without_zeros, header)
    if plain == header:
        return None
    try:
        return _decode(plain)
    except DECODE_ERRORS:
        return None


def _without_zeros(found: re.Match[bytes]) -> bytes:
    end = found.start()
    name = found.string[found.string.rfind(b'"', 0, end) + 1 : end]
    return b'":"' if name in _NUMBERS else found[0]


_pack_prefix = struct.Struct(">II").pack
_PREFIXES: Final = tuple(_pack_prefix(4 + size, size) for size in range(1024))
"""Prefixes of frames without a body, by the size of their JSON header."""

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_BEFORE_OPAQUE: Final = f'"}},"flag":{RESPONSE},"language":"{Language.PYTHON.name}","opaque":'
_END: Final = f',"serializeTypeCurrentRPC":"JSON","version":{int(VERSION)}}}'

_as_json = msgspec.json.Encoder().encode


class SendReplies:
    """Responses to sends: the id and position of the message. One object per broker, for its region and trace setting."""

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
        """The texts around message id, queue id, queue offset, unique key and opaque."""
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
        """`msg_id` comes from the broker and needs no escaping; `transaction_id` comes from a client and may."""
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
            return encode_command(Command(_SUCCESS, reply.encode(), flag=RESPONSE, opaque=opaque))
        header = self._template % (msg_id, queue_id, queue_offset, _as_json(transaction_id), opaque)
        try:
            return _PREFIXES[len(header)] + header
        except IndexError:
            return join_frame(_JSON, header)


def with_code(replies: bytes, code: int) -> bytes:
    """Encoded success responses with another code for a stored message: 10, 11 or 12."""
    commands = [decode_command(frame) for frame in split_frames(replies)]
    for command in commands:
        command.code = code
    return b"".join(map(encode_command, commands))


class PullReplies:
    """Responses to pulls with one code and remark, such as 0 `FOUND` or 19 `OFFSET_OVERFLOW_ONE`.

    Only the header is built here; the body follows as stored in the log, without a copy.
    """

    __slots__ = ("_after_opaque", "_start", "parts")

    def __init__(self, code: int, remark: str, broker_id: int = 0) -> None:
        self._start = f'{{"code":{int(code)},"extFields":{{"suggestWhichBrokerId":"{broker_id}","nextBeginOffset":"'
        self._after_opaque = f',"remark":{_as_json(remark).decode()}{_END}'
        texts = self._start, '","minOffset":"', '","maxOffset":"', _BEFORE_OPAQUE, self._after_opaque
        self.parts = tuple(text.encode() for text in texts)
        """The texts around next, minimum and maximum offset and opaque."""

    def head(self, opaque: int, next_offset: int, min_offset: int, max_offset: int, body_size: int = 0) -> bytes:
        """Prefix and header of a frame whose body has `body_size` bytes."""
        header = (
            f'{self._start}{next_offset}","minOffset":"{min_offset}","maxOffset":"{max_offset}'
            f"{_BEFORE_OPAQUE}{opaque}{self._after_opaque}"
        ).encode()
        size = len(header)
        return _pack_prefix(4 + size + body_size, size) + header


class FixedReplies:
    """Responses that differ only in opaque."""

    __slots__ = ("_template", "parts")

    def __init__(self, ext: dict[str, str] | None = None) -> None:
        self._template = header_template(Command(_SUCCESS, ext, flag=RESPONSE))
        before, _, behind = self._template.partition(b"%d")
        self.parts = before.replace(b"%%", b"%"), behind.replace(b"%%", b"%")
        """The texts before and after the opaque."""

    def encode(self, opaque: int) -> bytes:
        header = self._template % opaque
        size = len(header)
        return _pack_prefix(4 + size, size) + header


POP_PARTS: Final = tuple(
    text.encode()
    for text in (
        '{"code":0,"extFields":{"popTime":"',
        '","invisibleTime":"',
        '","reviveQid":"',
        '","restNum":"',
        '","startOffsetInfo":"',
        '","msgOffsetInfo":"',
        _BEFORE_OPAQUE,
        f',"remark":"FOUND"{_END}',
    )
)
"""The texts around the values of a response with popped messages: its numbers, both offset texts, and opaque."""
_POP_REPLY: Final = "%d".join(part.decode().replace("%", "%%") for part in POP_PARTS).replace('Info":"%d', 'Info":"%s')


def pop_reply(opaque: int, reply: PopReply, body_size: int) -> bytes:
    """Prefix and header of the response with popped messages. No field needs an escape."""
    offsets = reply.msg_offset_info
    if reply.order_count_info is not None:
        offsets = f'{offsets}","orderCountInfo":"{reply.order_count_info}'
    numbers = reply.pop_time, reply.invisible_time, reply.revive_qid, reply.rest_num
    header = (_POP_REPLY % (*numbers, reply.start_offset_info, offsets, opaque)).encode()
    size = len(header)
    return _pack_prefix(4 + size + body_size, size) + header


ACKED: Final = FixedReplies()
OFFSET_UPDATED: Final = FixedReplies({})
HEARTBEAT_REPLIES: Final = FixedReplies(HeartbeatReply(support_heartbeat_v2=True, sub_change=True).encode())
"""Responses to heartbeats. RocketMQ sets `subChange` for every client that sends its whole subscription each time."""
HEARTBEAT_REPLIES_UNCHANGED: Final = FixedReplies(HeartbeatReply(support_heartbeat_v2=True, sub_change=False).encode())


def offset_reply(opaque: int, offset: int) -> bytes:
    """The response to a query for one offset: of a group, minimum, maximum, or by time."""
    header = f'{{"code":0,"extFields":{{"offset":"{offset}{_BEFORE_OPAQUE}{opaque}{_END}'.encode()
    return _PREFIXES[len(header)] + header


NOT_STORED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that `read_stored` raises for other headers."""

assert (ResponseCode.SUCCESS, RESPONSE) == (0, 1), "the literals below"


class StoredAt(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The ext fields by wire names. Numbers stay texts until they are needed."""

    msgId: str  # noqa: N815
    queueId: str  # noqa: N815
    queueOffset: str  # noqa: N815
    transactionId: str | None = None  # noqa: N815
    recallHandle: str | None = None  # noqa: N815
    MSG_REGION: str | None = None
    TRACE_ON: str | None = None


class StoredAnswer(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A success response to a send. All fields are declared, so that a malformed one is refused."""

    code: Literal[0]
    flag: Literal[1]
    opaque: Int32
    extFields: StoredAt  # noqa: N815
    version: Int32 = 0
    language: str | None = None
    serializeTypeCurrentRPC: str | None = None  # noqa: N815
    remark: None = None


read_stored: Final = msgspec.json.Decoder(StoredAnswer).decode
"""Decode the JSON header of a frame without a body. It is the decoder itself, because it is called once per message."""
