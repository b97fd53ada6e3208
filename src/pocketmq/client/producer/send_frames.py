"""Send requests as bytes, from texts that are composed once for each queue.

    | prefix 8 | {"code":310,"extFields":{"a":"group","b":"topic",…,"e":"3","f":" … ","g":" … ","h":" … ","i": … ,…},…} | body |
                   fixed texts, with this message's values in the gaps

They are what `encode_command` gives for the same request, at a fraction of its cost. Of a plain message, which has no flags, all but
its id, its own properties and its number is the same for all that leave in the same millisecond. What is unusual about a message (a signed
request, a retry with its count) goes the long way, as a `Command`.
"""

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import VERSION, Language, RequestCode
from pocketmq.model import properties as names
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.sending import SendMessageV2
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.fields import write_fields

_pack_prefix = struct.Struct(">II").pack
_as_json = msgspec.json.Encoder().encode
_END: Final = f',"serializeTypeCurrentRPC":"JSON","version":{int(VERSION)}}}'

MAX_TEMPLATES: Final = 16_384
"""Texts that are kept, one for each queue and kind of send; beyond that all are composed anew."""

Sign = Callable[[Command], Command]
"""Adds the fields that a client puts on all of its requests."""

_Key = tuple[MessageQueue, bool, bool]
_Parts = tuple[bytes, bytes, bytes, bytes, bytes, bytes]


class SendFrames:
    """Writes the send requests of one producer."""

    def __init__(self, settings: ProducerSettings, sign: Sign | None = None) -> None:
        self._sign = sign
        self._group = wrap(settings.namespace, settings.group)
        self._template_topic = settings.template_topic
        self._queues = settings.new_topic_queues
        self._unit_mode = settings.unit_mode
        self._templates: dict[_Key, bytes] = {}

    def encode(self, out: Outgoing, queue: MessageQueue, born_ms: int, number: int) -> bytes:
        """The whole frame. It only reads, apart from the templates that it keeps, so any thread may call it."""
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
        """The same as a command, neither numbered nor signed."""
        return Command(int(code_of(out)), write_fields(self._header(out, queue, born_ms)), out.body)

    def _header(self, out: Outgoing, queue: MessageQueue, born_ms: int) -> SendMessageV2:
        tried, limit = out.attempts or (0, None)
        return SendMessageV2(
            producer_group=self._group,
            topic=out.topic,
            default_topic=self._template_topic,
            default_topic_queue_nums=self._queues,
            queue_id=queue.queue_id,
            sys_flag=out.sys_flag,
            born_timestamp=born_ms,
            flag=out.message.flag,
            properties=out.properties,
            reconsume_times=tried,
            unit_mode=self._unit_mode,
            max_reconsume_times=limit,
            batch=out.members is not None,
            broker_name=queue.broker_name,
        )

    def plain(self, queue: MessageQueue, after_id: str) -> "PlainFrames":
        """For single messages to `queue` without flags, whose properties are an id, `after_id` and some of their own."""
        return PlainFrames(self._parts(RequestCode.SEND_MESSAGE_V2, queue, is_batch=False), after_id)

    def _compose(self, out: Outgoing, queue: MessageQueue) -> bytes:
        parts = self._parts(code_of(out), queue, is_batch=out.members is not None)
        sys_flag, born_ms, flag, properties, number, end = (part.replace(b"%", b"%%") for part in parts)
        template = b"".join((sys_flag, b"%d", born_ms, b"%d", flag, b"%d", properties, b"%b", number, b"%d", end))
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[queue, out.members is not None, out.is_reply] = template
        return template

    def _parts(self, code: RequestCode, queue: MessageQueue, *, is_batch: bool) -> _Parts:
        """What stands before system flag, time of birth, flag, properties and number, and what follows the last."""

        def text(value: str) -> str:
            return _as_json(value).decode()

        unit_mode = "true" if self._unit_mode else "false"
        batch = "true" if is_batch else "false"
        start = (
            f'{{"code":{int(code)},"extFields":{{"a":{text(self._group)},"b":{text(queue.topic)},'
            f'"c":{text(self._template_topic)},"d":"{self._queues}","e":"{queue.queue_id}","f":"'
        )
        rest = (
            f',"j":"0","k":"{unit_mode}","m":"{batch}","n":{text(queue.broker_name)}}},"flag":0,'
            f'"language":"{Language.PYTHON.name}","opaque":'
        )
        return start.encode(), b'","g":"', b'","h":"', b'","i":', rest.encode(), _END.encode()


class PlainFrames:
    """Frames of plain messages to one queue, from a text that holds all but id, own properties and number.

    `stamp` writes the time into it; all messages that leave together were born together.
    """

    __slots__ = ("_after_time", "_before_time", "_end", "header", "stamped_ms")

    def __init__(self, parts: _Parts, after_id: str) -> None:
        sys_flag, born_ms, flag, properties, number, end = (part.replace(b"%", b"%%") for part in parts)
        self._before_time = b"".join((sys_flag, b"0", born_ms))
        self._after_time = b"".join(
            (
                flag,
                b"0",
                properties,
                b'"',
                json_inside(f"{names.UNIQ_KEY}\x01"),
                b"%b",
                json_inside(after_id).replace(b"%", b"%%"),
            )
        )
        self._end = b"".join((b'%b"', number, b"%d", end))
        self.stamped_ms = -1
        self.header = b""
        """To be filled with id, own properties by `json_inside`, and number."""

    def stamp(self, born_ms: int) -> None:
        self.stamped_ms = born_ms
        self.header = b"%b%d%b%b" % (self._before_time, born_ms, self._after_time, self._end)


def json_inside(text: str) -> bytes:
    """`text` as it stands between the quotes of a JSON string."""
    return _as_json(text)[1:-1]


def code_of(out: Outgoing) -> RequestCode:
    """How such a message is sent."""
    if out.is_reply:
        return RequestCode.SEND_REPLY_MESSAGE_V2
    return RequestCode.SEND_MESSAGE_V2 if out.members is None else RequestCode.SEND_BATCH_MESSAGE
