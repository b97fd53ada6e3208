"""Message ids of both kinds, in uppercase hex: 32 characters with an IPv4 address, 56 with IPv6.

    offset id   | ip 4/16 | port 4 | commit log offset 8 |                                created by the broker: the log position
    unique id   | ip 4/16 | pid 2 | salt 4 | ms since start of month 4 | counter 2 |    created by the producer: UNIQ_KEY

Clients read the log offset from the offset id to send a message back and to end a transaction.

A recall handle names a timed message until it is due. The broker returns it in the response to a send, and receives it in
RECALL_MESSAGE:

    base64url( v1 ␣ topic ␣ broker name ␣ deliver ms ␣ unique id )
"""

import base64
import re
import socket
import struct
from datetime import datetime
from itertools import count, islice
from typing import Final, NamedTuple

from pocketmq.errors import ProtocolError, UsageError

_UNIQUE_ID_TAIL = struct.Struct(">HIIH")
_HEX: Final = tuple(f"{byte:02X}" for byte in range(256))


class Host(NamedTuple):
    """An address as it is stored in records: packed ip (4 or 16 bytes) and port."""

    ip: bytes
    port: int

    @classmethod
    def parse(cls, text: str) -> "Host":
        """Parse `10.0.0.1:10911` or `[::1]:10911`. Host names are not resolved."""
        address, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
            raise ProtocolError(f"address {text!r} is not of the form ip:port")
        return cls(pack_ip(address.strip("[]")), int(port))

    @property
    def is_v6(self) -> bool:
        return len(self.ip) == 16

    def __str__(self) -> str:
        return f"[{self.ip_text}]:{self.port}" if self.is_v6 else f"{self.ip_text}:{self.port}"

    @property
    def ip_text(self) -> str:
        return socket.inet_ntop(socket.AF_INET6 if self.is_v6 else socket.AF_INET, self.ip)

    def packed(self) -> bytes:
        """The form in records."""
        return self.ip + self.port.to_bytes(4, "big")

    @classmethod
    def unpack(cls, packed: bytes) -> "Host":
        return cls(packed[:-4], int.from_bytes(packed[-4:], "big"))


def pack_ip(text: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        raise ProtocolError(f"{text!r} is not an ip address") from None


def _raw_id(kind: str, text: str) -> bytes:
    if len(text) not in (32, 56):
        raise ProtocolError(f"{kind} message id {text!r} has {len(text)} characters instead of 32 or 56")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if 2 * len(raw) != len(text):  # fromhex also accepts blanks between the bytes
        raise ProtocolError(f"{kind} message id {text!r} is not hexadecimal")
    return raw


class OffsetId(NamedTuple):
    """The position of a message: the broker's address and the commit log offset."""

    host: Host
    offset: int

    @classmethod
    def parse(cls, text: str) -> "OffsetId":
        raw = _raw_id("offset", text)
        return cls(Host.unpack(raw[:-8]), int.from_bytes(raw[-8:], "big"))

    def __str__(self) -> str:
        return offset_id(self.host.packed(), self.offset)


def offset_id(packed_host: bytes, offset: int) -> str:
    """The text of an offset id, from a packed host. Called once per send."""
    return (packed_host + offset.to_bytes(8, "big")).hex().upper()


class UniqueIds:
    """Creates unique ids. `salt` distinguishes processes with the same IP and pid, such as containers.

    Thread-safe: the counter advances atomically, and other state is replaced as a whole.
    """

    def __init__(self, ip: bytes, pid: int, salt: int) -> None:
        self._head = (ip + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)).hex().upper()
        self.id_chars = len(self._head) + 12
        self._counter = count(1)
        self._latest = (-1, "")
        """The last millisecond and the prefix of its ids, cached because many ids share a millisecond."""
        self._month = (0, 0)

    def next(self, now_ms: int) -> str:
        """A new id. One millisecond has 65,536 of them."""
        latest_ms, text = self._latest
        if latest_ms != now_ms:
            text = self._beginning(now_ms)
        counter = next(self._counter)
        return f"{text}{_HEX[counter >> 8 & 0xFF]}{_HEX[counter & 0xFF]}"

    def take(self, count: int, now_ms: int) -> list[str]:
        """`count` new ids."""
        text = self.beginning(now_ms)
        return [f"{text}{_HEX[each >> 8 & 0xFF]}{_HEX[each & 0xFF]}" for each in islice(self._counter, count)]

    def numbers(self, count: int) -> list[int]:
        """The numbers of `count` new ids. An id is `beginning` plus the last 16 bits of its number in hex."""
        return list(islice(self._counter, count))

    def beginning(self, now_ms: int) -> str:
        """The ids of this millisecond without their last four digits."""
        latest_ms, text = self._latest
        return text if latest_ms == now_ms else self._beginning(now_ms)

    def _beginning(self, now_ms: int) -> str:
        start_ms, end_ms = self._month
        if not start_ms <= now_ms < end_ms:
            start_ms, _ = self._month = month_of(now_ms)
        text = f"{self._head}{now_ms - start_ms:08X}"
        self._latest = now_ms, text
        return text


class UniqueId(NamedTuple):
    """The parts of a unique id."""

    ip: bytes
    pid: int
    salt: int
    ms_of_month: int
    counter: int

    @classmethod
    def parse(cls, text: str) -> "UniqueId":
        raw = _raw_id("unique", text)
        return cls(raw[:-12], *_UNIQUE_ID_TAIL.unpack(raw[-12:]))

    def born_ms(self, now_ms: int) -> int:
        """Its creation time, if that is less than a month before `now_ms`: the id does not contain the month."""
        start, _ = month_of(now_ms)
        if start + self.ms_of_month > now_ms:
            start, _ = month_of(start - 1)
        return start + self.ms_of_month


def month_of(now_ms: int) -> tuple[int, int]:
    """The first milliseconds of the month of `now_ms` and of the next one, in local time, as in Java."""
    day = datetime.fromtimestamp(now_ms / 1000)
    start = datetime(day.year, day.month, 1)
    end = datetime(day.year + day.month // 12, day.month % 12 + 1, 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)


_RECALL_VERSION = "v1"
_BASE64 = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class RecallHandle(NamedTuple):
    """The message to recall. `deliver_ms` is the due time of the broker (TIMER_OUT_MS) plus 1."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_id: str

    @classmethod
    def parse(cls, text: str) -> "RecallHandle":
        """Parse a handle, with or without padding. Additional parts are ignored, as in Java."""
        version, *parts = _decoded(text).split(" ")
        if version != _RECALL_VERSION or len(parts) < 4:
            raise ProtocolError(f"recall handle {text!r} is not of the form 'v1 topic broker deliverMs uniqueId'")
        topic, broker_name, deliver_ms, unique_id = parts[:4]
        if not (topic and broker_name and unique_id and _NUMBER.fullmatch(deliver_ms)):
            raise ProtocolError(f"recall handle {text!r} has an empty part, or a time that is not a number")
        return cls(topic, broker_name, int(deliver_ms), unique_id)

    def __str__(self) -> str:
        words = (_RECALL_VERSION, self.topic, self.broker_name, str(self.deliver_ms), self.unique_id)
        if any(not word or " " in word for word in words):
            raise UsageError(f"a recall handle cannot have an empty part or one with a blank: {words[1:]}")
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def _decoded(text: str) -> str:
    # Checked here because b64decode accepts the other alphabet too.
    if not _BASE64.fullmatch(text):
        raise ProtocolError(f"recall handle {text!r} is not URL-safe base64")
    bare = text.rstrip("=")
    try:
        return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4)).decode()
    except ValueError:
        raise ProtocolError(f"recall handle {text!r} is not the text that a broker returned") from None
