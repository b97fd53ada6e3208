"""Many sends in flight on one real connection: shared by tests of running programs."""

import socket
import threading
from typing import NamedTuple

from conformance.broker_line import PRODUCER_GROUP

from pocketmq.clock import SystemClock
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.messages import SendMessageV2, SendReply
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import FrameSplitter

QUEUES = 4
IN_FLIGHT = 64
DEADLINE_S = 20.0


class Stored(NamedTuple):
    """A send that was acknowledged."""

    queue_id: int
    offset: int
    body: bytes


class Flood:
    """A producer that sends `count` messages, or until the broker stops, and records the acknowledged ones."""

    def __init__(self, port: int, name: str, count: int = 1 << 62) -> None:
        self._name = name
        self._count = count
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._room = threading.Semaphore(IN_FLIGHT)
        self._is_over = False
        """No more answers come."""
        self._bodies: list[bytes] = []
        self.acknowledged: list[Stored] = []
        self.refused = 0
        self.words: set[str] = set()
        """By which clients know why they were refused."""
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while (number := len(self._bodies)) < self._count:
            self._room.acquire()
            if self._is_over:
                return
            body = f"{self._name}/{number}".encode()
            self._bodies.append(body)
            try:
                self._socket.sendall(encode_command(_send_command(number, body)))
            except OSError:
                return

    def _receive(self) -> None:
        splitter = FrameSplitter()
        while len(self.acknowledged) + self.refused < self._count:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                data = b""
            for frame in splitter.feed(data) if data else ():
                self._take(decode_command(frame))
                self._room.release()
            if not data:
                self._is_over = True
                self._room.release()
                return

    def _take(self, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self.refused += 1
            self.words.add((answer.remark or "").partition("]")[0].lstrip("["))
            return
        reply = SendReply.decode(answer.ext)
        self.acknowledged.append(Stored(reply.queue_id, reply.queue_offset, self._bodies[answer.opaque]))

    def end(self) -> list[Stored]:
        """The acknowledged messages, when all are sent or the broker has stopped."""
        for thread in self._threads:
            thread.join(DEADLINE_S)
        self._socket.close()
        return self.acknowledged


def _send_command(number: int, body: bytes) -> Command:
    properties = format_properties({"UNIQ_KEY": body.decode(), "KEYS": body.decode()})
    header = SendMessageV2(
        PRODUCER_GROUP, "T", "TBW102", QUEUES, number % QUEUES, 0, SystemClock().now_ms(), 0, properties, 0, False
    )
    return Command(RequestCode.SEND_MESSAGE_V2, header.encode(), body, opaque=number)
