"""A message as its receiver wants it: the body as it was before it was compressed, the topic without the namespace."""

from msgspec.structs import replace

from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.protocol.compression import decompress

_COMPRESSION = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK


def readable(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """`message` itself when nothing is to be done; ProtocolError when its body is damaged."""
    if message.sys_flag & SysFlag.COMPRESSED:
        body = decompress(message.body, message.sys_flag)
        message = replace(message, body=body, sys_flag=message.sys_flag & ~_COMPRESSION)
    if namespace is not None:
        message = replace(message, topic=unwrap(namespace, message.topic))
    return message
