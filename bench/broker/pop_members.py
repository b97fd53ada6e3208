"""Members of a group that pop and acknowledge as fast as they can, on one thread, each with its own connection.

    member:  pop of N ──► messages ──► N acks and the next pop in one write ──► N answers, messages ──► …

A member waits for no ack, and pops again at once, as RocketMQ's push consumer does.
"""

import re
import socket
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, time
from typing import NamedTuple, Self

from bench.broker.machine import cpu_s
from bench.broker.servers import Target
from bench.broker.shots import NotMeasured
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.frames import join_frame

INVISIBLE_MS = 60_000
POLL_MS = 15_000
STALLED_S = 20.0
"""A run in which nothing came for so long has failed."""
_END = b'"},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'
_POP = (
    b'{"code":%d,"extFields":{"consumerGroup":"%%b","topic":"%%b","queueId":"-1","maxMsgNums":"%%d","invisibleTime":"%d",'
    b'"pollTime":"%d","bornTime":"%%d","initMode":"0","expType":"TAG","exp":"*","order":"false'
) % (RequestCode.POP_MESSAGE, INVISIBLE_MS, POLL_MS) + _END
_ACK = (
    b'{"code":%d,"extFields":{"consumerGroup":"%%b","topic":"%%b","queueId":"%%b","extraInfo":"%%b %%b","offset":"%%b'
    % RequestCode.ACK_MESSAGE
    + _END
)
_CODE = re.compile(rb'"code":(\d+)').search
_OPAQUE = re.compile(rb'"opaque":(\d+)').search
_FIELDS = {
    name: re.compile(rb'"%b":"([^"]*)"' % name).search
    for name in (b"popTime", b"invisibleTime", b"reviveQid", b"startOffsetInfo", b"msgOffsetInfo")
}


class Load(NamedTuple):
    """Which messages are popped, by how many members, how many at a time."""

    topic: str
    group: str
    broker: str
    members: int
    batch: int


class Rate(NamedTuple):
    """Acknowledged messages per second, and microseconds of the server's CPU for each."""

    per_s: float
    cpu_us: float


class _Member:
    def __init__(self, port: int, load: Load) -> None:
        self._topic, self._group, self._broker = load.topic.encode(), load.group.encode(), load.broker.encode()
        self._batch = load.batch
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()
        self._opaque = self._pop_opaque = 0

    def pop(self) -> None:
        self.socket.sendall(self._next_pop())

    def _next_pop(self) -> bytes:
        self._opaque += 1
        self._pop_opaque = self._opaque
        return join_frame(0, _POP % (self._group, self._topic, self._batch, int(time() * 1000), self._pop_opaque))

    def read(self) -> int:
        """Handle what came. Return how many messages were acknowledged."""
        received = self.socket.recv(1 << 18)
        if not received:
            raise NotMeasured("the broker closed the connection")
        self._data += received
        done = at = 0
        while len(self._data) - at >= 4:
            size = 4 + int.from_bytes(self._data[at : at + 4], "big")
            if len(self._data) - at < size:
                break
            header_bytes = int.from_bytes(self._data[at + 5 : at + 8], "big")
            header = bytes(self._data[at + 8 : at + 8 + header_bytes])
            opaque = _OPAQUE(header)
            if opaque is not None and int(opaque[1]) == self._pop_opaque:
                self._popped(header)
            elif not header.startswith(b'{"code":0,'):
                raise NotMeasured(f"an ack was answered with {header[:200]!r}")
            else:
                done += 1
            at += size
        del self._data[:at]
        return done

    def _popped(self, header: bytes) -> None:
        code = _CODE(header)
        if code is None or int(code[1]) != ResponseCode.SUCCESS:
            if code is None or int(code[1]) not in (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL):
                raise NotMeasured(f"a pop was answered with {header[:200]!r}")
            self.pop()
            return
        found = {name: search(header) for name, search in _FIELDS.items()}
        values = {name: match[1] if match else b"" for name, match in found.items()}
        starts = {
            tuple(entry.split(b" ")[:2]): entry.split(b" ")[2] for entry in values[b"startOffsetInfo"].split(b";")
        }
        times = b"%b %b %b" % (values[b"popTime"], values[b"invisibleTime"], values[b"reviveQid"])
        frames: list[bytes] = []
        for entry in values[b"msgOffsetInfo"].split(b";"):
            flag, queue_id, offsets = entry.split(b" ")
            handle = b"%b %b %b %b %b" % (starts[flag, queue_id], times, flag, self._broker, queue_id)
            for offset in offsets.split(b","):
                self._opaque += 1
                frames.append(
                    join_frame(0, _ACK % (self._group, self._topic, queue_id, handle, offset, offset, self._opaque))
                )
        frames.append(self._next_pop())
        self.socket.sendall(b"".join(frames))


class Members:
    """All members of a load, until the end of a `with`."""

    def __init__(self, target: Target, load: Load) -> None:
        self._target = target
        self._members = [_Member(target.port, load) for _ in range(load.members)]
        self._selector = DefaultSelector()
        for member in self._members:
            self._selector.register(member.socket, EVENT_READ, member)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._selector.close()
        for member in self._members:
            member.socket.close()

    def run(self, messages: int, seconds: float) -> Rate:
        """Until so many messages are acknowledged, or so many seconds have passed."""
        used_s, began = cpu_s(self._target.pids), monotonic()
        done, last = 0, began
        for member in self._members:
            member.pop()
        while done < messages and monotonic() - began < seconds:
            for key, _ in self._selector.select(STALLED_S):
                if more := key.data.read():
                    done, last = done + more, monotonic()
            if monotonic() - last > STALLED_S:
                raise NotMeasured(f"nothing came for {STALLED_S:.0f} s, after {done} messages")
        took_s = last - began
        if not done:
            raise NotMeasured("no message was acknowledged")
        return Rate(done / took_s, (cpu_s(self._target.pids) - used_s) / done * 1e6)
