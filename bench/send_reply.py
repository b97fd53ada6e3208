"""Encoding the answer to a send: what a broker does last with every message."""

import json
import struct
from collections.abc import Callable
from typing import Any

import orjson

from bench.method import Candidate, Subject
from bench.samples import COUNT, SAMPLES
from pocketmq.codes import VERSION
from pocketmq.protocol.api.messages import SendReply
from pocketmq.protocol.command import RESPONSE, Command, decode_command, encode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.hot_headers import SendReplies

MESSAGE_ID = "7F00000100004A420000000000003788"
REPLIES = SendReplies("DefaultRegion", trace_on=True)
ANSWERS = [(1000 + sample.number, sample.number % 4, sample.number, sample.unique_id) for sample in SAMPLES]
"""Opaque, queue id, queue offset, unique id."""
_PREFIX = struct.Struct(">II")


def with_send_replies() -> None:
    encode, message_id = REPLIES.encode, MESSAGE_ID.encode()
    for opaque, queue_id, queue_offset, unique_id in ANSWERS:
        encode(opaque, message_id, queue_id, queue_offset, unique_id)


def with_encode_command() -> None:
    for answer in ANSWERS:
        command_of(*answer)


def command_of(opaque: int, queue_id: int, queue_offset: int, unique_id: str) -> bytes:
    reply = SendReply(MESSAGE_ID, queue_id, queue_offset, unique_id, region="DefaultRegion", trace_on=True)
    return encode_command(Command(0, reply.encode(), flag=RESPONSE, opaque=opaque))


def with_dicts(dumps: Callable[[Any], bytes]) -> Callable[[], None]:
    def run() -> None:
        for opaque, queue_id, queue_offset, unique_id in ANSWERS:
            framed(dumps, opaque, queue_id, queue_offset, unique_id)

    return run


def framed(dumps: Callable[[Any], bytes], opaque: int, queue_id: int, queue_offset: int, unique_id: str) -> bytes:
    header = dumps(
        {
            "code": 0,
            "extFields": {
                "msgId": MESSAGE_ID,
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
                "transactionId": unique_id,
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            },
            "flag": 1,
            "language": "PYTHON",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": int(VERSION),
        }
    )
    return _PREFIX.pack(4 + len(header), len(header)) + header


def json_dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _check() -> None:
    """Everybody wrote the same."""
    opaque, queue_id, queue_offset, unique_id = answer = ANSWERS[5]
    ours = REPLIES.encode(opaque, MESSAGE_ID.encode(), queue_id, queue_offset, unique_id)
    for other in (command_of(*answer), framed(json_dumps, *answer), framed(orjson.dumps, *answer)):
        assert decode_command(split_frames(other)[0]) == decode_command(split_frames(ours)[0])


def subjects() -> list[Subject]:
    _check()
    candidates = [
        Candidate("SendReplies", with_send_replies, ours=True),
        Candidate("encode_command", with_encode_command, ours=True),
        Candidate("orjson + frame", with_dicts(orjson.dumps)),
        Candidate("json + frame", with_dicts(json_dumps)),
    ]
    return [Subject("send reply encode", COUNT, candidates, aim_us=0.4)]
