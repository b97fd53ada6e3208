"""Send requests as bytes, from texts that are composed once for each queue.

    | prefix 8 | {"code":310,"extFields":{"a":"group","b":"topic",…,"e":"3","f":" … ","g":" … ","h":" … ","i": … ,…},…} | body |
                   fixed texts, with this message's values in the gaps

They are what `encode_command` gives for the same request, at a fraction of its cost. What is unusual about a message (a signed
request, a retry with its count) goes the long way, as a `Command`.
"""

import struct
from typing import Final

import msgspec

from pocketmq.client.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import VERSION, Language, RequestCode
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.sending import SendMessageV2
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import write_fields

_pack_prefix = struct.Struct(">II").pack
_as_json = msgspec.json.Encoder().encode
_END: Final = f',"serializeTypeCurrentRPC":"JSON","version":{int(VERSION)}}}'

MAX_TEMPLATES: Final = 16_384
"""Texts that are kept, one for each queue and kind of send; beyond that all are composed anew."""

_Key = tuple[MessageQueue, bool, bool]


class SendFrames:
    """Writes the send requests of one producer."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._group = wrap(settings.namespace, settings.group)
        self._template_topic = settings.template_topic
        self._queues = settings.new_topic_queues
        self._unit_mode = settings.unit_mode
        self._templates: dict[_Key, bytes] = {}

    def encode(self, out: Outgoing, queue: MessageQueue, born_ms: int, number: int) -> bytes:
        """The whole frame."""
        template = self._templates.get((queue, out.members is not None, out.is_reply)) or self._compose(out, queue)
        header = template % (out.sys_flag, born_ms, out.message.flag, _as_json(out.properties), number)
        size = len(header)
        body = out.body
        return b"".join((_pack_prefix(4 + size + len(body), size), header, body))

    def command(self, out: Outgoing, queue: MessageQueue, born_ms: int) -> Command:
        """The same as a command, for requests that get further fields."""
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

    def _compose(self, out: Outgoing, queue: MessageQueue) -> bytes:
        def text(value: str) -> str:
            return _as_json(value).decode().replace("%", "%%")

        unit_mode = "true" if self._unit_mode else "false"
        batch = "true" if out.members is not None else "false"
        template = (
            f'{{"code":{int(code_of(out))},"extFields":{{"a":{text(self._group)},"b":{text(out.topic)},'
            f'"c":{text(self._template_topic)},"d":"{self._queues}","e":"{queue.queue_id}",'
            '"f":"%d","g":"%d","h":"%d","i":%b,'
            f'"j":"0","k":"{unit_mode}","m":"{batch}","n":{text(queue.broker_name)}}},"flag":0,'
            f'"language":"{Language.PYTHON.name}","opaque":%d{_END}'
        ).encode()
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[queue, out.members is not None, out.is_reply] = template
        return template


def code_of(out: Outgoing) -> RequestCode:
    """How such a message is sent."""
    if out.is_reply:
        return RequestCode.SEND_REPLY_MESSAGE_V2
    return RequestCode.SEND_MESSAGE_V2 if out.members is None else RequestCode.SEND_BATCH_MESSAGE
