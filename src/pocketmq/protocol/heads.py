"""The requests that come by the thousand, decoded in one go: header and ext fields typed at once.

    Frame ── decode_head ──► SendHead(opaque=7, version=479, ext=SendMessageV2(topic="T", queue_id=3, …))
        └─ None ──► decode_command, then read_fields: the road for everything else, with the exact error

None is given for other codes, for responses, for binary headers, and for whatever is not well formed. Ext fields that the
header does not declare are skipped unread, signatures included: where requests must be signed, take the other road.
"""

import re
from collections.abc import Callable
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import field

from pocketmq.codes import HeaderEncoding, Language, RequestCode
from pocketmq.protocol.api.offsets import QueryConsumerOffset, UpdateConsumerOffset
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.api.sending import SendMessage, SendMessageV2
from pocketmq.protocol.command import RESPONSE
from pocketmq.protocol.fields import number_fields
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.header import Int32, language_of
from pocketmq.protocol.header_json import DECODE_ERRORS

_RequestFlag = Annotated[int, msgspec.Meta(multiple_of=RESPONSE << 1, ge=-(2**31), le=2**31 - 1)]
"""A flag without its lowest bit, which marks responses: they fall through the decoder."""


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


class HeartbeatHead(_Head, tag=int(RequestCode.HEART_BEAT), gc=False):
    """No ext fields of its own; but a broker remembers which language its clients speak."""

    code: ClassVar = RequestCode.HEART_BEAT
    sent_language: str | int | None = field(default=None, name="language")

    @property
    def language(self) -> Language:
        return language_of(self.sent_language)


Head = (
    SendHead | SendV2Head | SendBatchHead | PullHead | LitePullHead | QueryOffsetHead | UpdateOffsetHead | HeartbeatHead
)
"""Any hot request; `code`, `opaque`, `flag` and `version` are in all of them, `ext` in all but the heartbeat."""

_JSON: Final = int(HeaderEncoding.JSON)
_NUMBERS: Final = frozenset(
    name.encode()
    for header in (SendMessage, SendMessageV2, PullMessage, QueryConsumerOffset, UpdateConsumerOffset)
    for name in number_fields(header)
)
_PADDED: Final = re.compile(rb'":"0+(?=[0-9])')
"""Zeros before a number, which Java reads as well; or before digits that are a name."""
_decode: Final[Callable[[bytes], Head]] = msgspec.json.Decoder(Head, strict=False).decode


def decode_head(frame: Frame) -> Head | None:
    """The head of a hot request, None for every other frame. Never raises."""
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
