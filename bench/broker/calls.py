"""A line to a broker for what happens beside the load: making topics, asking for offsets, being a member of groups."""

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from bench.broker.frames import FIRST_OPAQUE
from bench.broker.shots import NotMeasured
from pocketmq.codes import Language, RequestCode, ResponseCode
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import FrameSplitter

TIMEOUT_S = 10.0


class Line:
    """One connection; one request at a time."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameSplitter()
        self._opaque = FIRST_OPAQUE

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def answer(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """Whatever the broker answers."""
        self._opaque += 1
        self.socket.sendall(encode_command(Command(code, ext, body, opaque=self._opaque, language=Language.JAVA)))
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for frame in self._frames.feed(data):
                command = decode_command(frame)
                if command.is_response and command.opaque == self._opaque:
                    return command

    def call(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """An answer that is a success."""
        answer = self.answer(code, ext, body)
        if answer.code != ResponseCode.SUCCESS:
            raise NotMeasured(f"request {code} was answered with {answer.code}: {answer.remark}")
        return answer

    def create_topic(self, topic: str, queues: int) -> None:
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)

    def offset(self, code: int, topic: str, queue_id: int) -> int:
        """What GET_MIN_OFFSET or GET_MAX_OFFSET says."""
        ext = self.call(code, {"topic": topic, "queueId": str(queue_id)}).ext or {}
        return int(ext["offset"])

    def stored(self, topic: str, queues: int) -> int:
        """Messages that all queues of a topic ever had."""
        return sum(self.offset(RequestCode.GET_MAX_OFFSET, topic, queue_id) for queue_id in range(queues))

    def heartbeat(self, client_id: str, topic: str = "", groups: Sequence[str] = ()) -> None:
        """Be a producer, and a consumer of `topic` in these groups."""
        body = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": "bench_group"}],
            "consumerDataSet": [_consumer(group, topic) for group in groups],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
        self.call(RequestCode.HEART_BEAT, None, msgspec.json.encode(body))


def _consumer(group: str, topic: str) -> dict[str, object]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "messageModel": "CLUSTERING",
        "unitMode": False,
        "subscriptionDataSet": [
            {
                "topic": topic,
                "subString": "*",
                "expressionType": "TAG",
                "classFilterMode": False,
                "codeSet": [],
                "tagsSet": [],
                "subVersion": 1,
            }
        ],
    }
