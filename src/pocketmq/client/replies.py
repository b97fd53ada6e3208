"""Replies to requests: who waits for which, and what a reply looks like when a broker brings it.

request ── CORRELATION_ID, REPLY_TO_CLIENT, TTL ──► a consumer somewhere ── reply with the same three ──► a broker
   ▲                                                                                                       │
   └──── the future that waits under this correlation id ◄──── code 326, on this client's own line ◄───────┘
"""

import asyncio
import struct

from pocketmq.errors import ProtocolError, TooManyCalls
from pocketmq.model import properties as names
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import Host
from pocketmq.protocol.api.sending import PushReplyMessage
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import HOSTS_V6, decode_record, encode_record, host_flags

_NO_HOST = Host(b"\0\0\0\0", 0)


class WaitingReplies:
    """The requests of one client that have no reply yet. `unmatched` counts replies that nobody waits for: late ones, mostly."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}
        self.unmatched = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str, limit: int) -> asyncio.Future[StoredMessage]:
        """Wait for the reply under this id; TooManyCalls when `limit` requests do already."""
        if len(self._waiting) >= limit:
            raise TooManyCalls(f"{len(self._waiting)} requests wait for their reply, the limit; try again later")
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        return future

    def arrived(self, header: PushReplyMessage, body: bytes) -> None:
        """A broker brought a reply."""
        message = reply_message(header, body)
        future = self._waiting.get(message.properties.get(names.CORRELATION_ID, ""))
        if future is None or future.done():
            self.unmatched += 1
        else:
            future.set_result(message)


def reply_message(header: PushReplyMessage, body: bytes) -> StoredMessage:
    """The message that a pushed reply is. It may lie in no log, so it has no place there."""
    plain = decompress(body, header.sys_flag)
    born_host, store_host = _host(header.born_host).packed(), _host(header.store_host).packed()
    sys_flag = header.sys_flag & ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | HOSTS_V6)
    try:
        record = encode_record(
            header.topic.encode(),
            header.queue_id,
            0,
            0,
            plain,
            (header.properties or "").encode(),
            header.flag,
            sys_flag | host_flags(born_host, store_host),
            header.born_timestamp,
            born_host,
            header.store_timestamp,
            store_host,
            header.reconsume_times or 0,
        )
    except struct.error as error:
        raise ProtocolError(f"a reply that no record can hold: {error}") from None
    return decode_record(record, check_crc=False)


def _host(text: str) -> Host:
    """Java may print a host by its name, which is no address."""
    try:
        return Host.parse(text.removeprefix("/"))
    except ProtocolError:
        return _NO_HOST
