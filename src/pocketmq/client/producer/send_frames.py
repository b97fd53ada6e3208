"""Send requests as bytes, from a template for each queue.

    | prefix 8 | {"code":310,"extFields":{"a":"group","b":"topic",…,"e":"3","f":" … ","g":" … ","h":" … ","i": … ,…},…} | body |
                   fixed text, with the values of this message in the gaps

The bytes are those of `encode_command` for the same request, at a fraction of its cost. For plain messages, which have no flags, only id,
own properties and request number differ between messages of the same millisecond. Irregular requests (signed, or retries with a count) are
encoded as a `Command`.
"""

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import RequestCode
from pocketmq.model import MessageQueue
from pocketmq.model import properties as names
from pocketmq.model.names import wrap
from pocketmq.protocol.api.messages import SendMessageV2
from pocketmq.protocol.command import Command, encode_command, header_template

_pack_prefix = struct.Struct(">II").pack
_as_json = msgspec.json.Encoder().encode
_GAPS: Final = {"f": "%d", "g": "%d", "h": "%d", "i": "%b"}
"""System flag, born time, flag and properties."""
_PLAIN_GAPS: Final = {"g": "%d", "i": "%b"}

MAX_TEMPLATES: Final = 16_384
"""Cached templates, one for each queue and kind of send; when the limit is reached, the cache is cleared."""

Sign = Callable[[Command], Command]
"""Adds the fields of all requests of a client."""

_Key = tuple[MessageQueue, bool, bool]


class SendFrames:
    """Encodes the send requests of one producer."""

    def __init__(self, settings: ProducerSettings, sign: Sign | None = None) -> None:
        self._sign = sign
        self._group = wrap(settings.namespace, settings.group)
        self._template_topic = settings.template_topic
        self._queues = settings.new_topic_queues
        self._unit_mode = settings.unit_mode
        self._templates: dict[_Key, bytes] = {}

    def encode(self, out: Outgoing, queue: MessageQueue, born_ms: int, number: int) -> bytes:
        """The complete frame. Thread-safe."""
        if out.attempts is not None or self._sign is not None:
            command = self.command(out, queue, born_ms)
            if self._sign is not None:
                command = self._sign(command)
            command.opaque = number
            return encode_command(command)
        template = self._templates.get((queue, out.members is not None, out.is_reply)) or self._compose(out, queue)
        header = template % (out.sys_flag, born_ms, out.message.flag, _as_json(out.properties), number)
        size = len(header)
        body = out.body
        return b"".join((_pack_prefix(4 + size + len(body), size), header, body))

    def command(self, out: Outgoing, queue: MessageQueue, born_ms: int) -> Command:
        """The request as a command without number and signature."""
        header = self._header(queue, is_batch=out.members is not None)
        header.sys_flag, header.born_timestamp, header.flag = out.sys_flag, born_ms, out.message.flag
        header.properties = out.properties
        if out.attempts is not None:
            header.reconsume_times, header.max_reconsume_times = out.attempts
        return Command(int(code_of(out)), header.encode(), out.body)

    def plain(self, queue: MessageQueue, after_id: str) -> "PlainFrames":
        """Frames for plain messages to `queue`; their properties are an id, `after_id` and their own."""
        command = Command(int(RequestCode.SEND_MESSAGE_V2), self._header(queue).encode())
        return PlainFrames(header_template(command, _PLAIN_GAPS), after_id)

    def _header(self, queue: MessageQueue, *, is_batch: bool = False) -> SendMessageV2:
        return SendMessageV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=self._template_topic,
            default_topic_queue_nums=self._queues,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=self._unit_mode,
            batch=is_batch,
            broker_name=queue.broker_name,
        )

    def _compose(self, out: Outgoing, queue: MessageQueue) -> bytes:
        is_batch = out.members is not None
        command = Command(int(code_of(out)), self._header(queue, is_batch=is_batch).encode())
        template = header_template(command, _GAPS).replace(b'"%b"', b"%b")  # properties are encoded with quotes
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[queue, is_batch, out.is_reply] = template
        return template


class PlainFrames:
    """Frames of plain messages to one queue, from a template with all but id, own properties and number.

    `stamp` sets the born time, which all messages of one turn share.
    """

    __slots__ = ("_after_time", "_before_time", "header", "stamped_ms")

    def __init__(self, template: bytes, after_id: str) -> None:
        properties = json_inside(f"{names.UNIQ_KEY}\x01") + b"%b" + json_inside(after_id).replace(b"%", b"%%") + b"%b"
        before, key, after = template.partition(b'"g":"')
        self._before_time = before + key
        self._after_time = after.removeprefix(b"%d").replace(b'"%b"', b'"%b"' % properties)
        self.stamped_ms = -1
        self.header = b""
        """A format for id, own properties (`json_inside`) and number."""

    def stamp(self, born_ms: int) -> None:
        self.stamped_ms = born_ms
        self.header = b"%b%d%b" % (self._before_time, born_ms, self._after_time)


def json_inside(text: str) -> bytes:
    """`text` encoded for JSON, without quotes."""
    return _as_json(text)[1:-1]


def code_of(out: Outgoing | None) -> RequestCode:
    """The request code for a message; None is a plain one."""
    if out is None:
        return RequestCode.SEND_MESSAGE_V2
    if out.is_reply:
        return RequestCode.SEND_REPLY_MESSAGE_V2
    return RequestCode.SEND_MESSAGE_V2 if out.members is None else RequestCode.SEND_BATCH_MESSAGE
