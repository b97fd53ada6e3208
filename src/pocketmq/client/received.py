"""A message as its receiver wants it: alone, the body as it was before it was compressed, the topic without the namespace."""

from collections.abc import Sequence

from msgspec.structs import replace

from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.protocol.batch import decode_batch
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import with_flag

_COMPRESSION = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK
_PACKED = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP


def readable(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """`message` itself when nothing is to be done; ProtocolError when its body is damaged."""
    if message.sys_flag & SysFlag.COMPRESSED:
        body = decompress(message.body, message.sys_flag)
        message = replace(message, body=body, sys_flag=message.sys_flag & ~_COMPRESSION)
    if namespace is not None:
        message = replace(message, topic=unwrap(namespace, message.topic))
    return message


def one_by_one(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """The same messages; those that lie in the queue as one batch, as topics of RocketMQ 5 may keep them, each by itself."""
    flags = {message.sys_flag for message in messages}  # mostly all are 0
    if not any(flags) or not any(flag & _PACKED == _PACKED for flag in flags):
        return messages
    return [one for message in messages for one in _unpacked(message)]


def _unpacked(message: StoredMessage) -> list[StoredMessage]:
    if message.sys_flag & _PACKED != _PACKED:
        return [message]
    whole = readable(message, None)
    return [
        replace(
            whole,
            body=body,
            raw_properties=properties,
            head=with_flag(whole.head, flag),
            sys_flag=whole.sys_flag & ~_PACKED,
            queue_offset=whole.queue_offset + at,
            _properties=None,
        )
        for at, (flag, body, properties) in enumerate(decode_batch(whole.body))
    ]
