"""Decoding the header of a send request: what a broker does first with every message."""

import json
from collections.abc import Callable
from typing import Any

import orjson

from bench.method import Candidate, Subject
from bench.samples import COUNT, SAMPLES, TOPIC, send_frame
from pocketmq.protocol.command import decode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.hot_headers import SendV2Head, decode_head

FRAMES = [frame for sample in SAMPLES for frame in split_frames(send_frame(sample))]
NUMBERS = ("d", "e", "f", "g", "h", "j")
"""Ext fields that a broker needs as numbers."""


def with_decode_head() -> None:
    for frame in FRAMES:
        decode_head(frame)


def with_decode_command() -> None:
    for frame in FRAMES:
        decode_command(frame)


def with_dicts(loads: Callable[[bytes], Any]) -> Callable[[], None]:
    def run() -> None:
        for _, header, _ in FRAMES:
            as_dict(header, loads)

    return run


def as_dict(header: bytes, loads: Callable[[bytes], Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = loads(header)
    ext = decoded["extFields"]
    for name in NUMBERS:
        ext[name] = int(ext[name])
    return decoded


def _check() -> None:
    """Everybody found the same."""
    head = decode_head(FRAMES[5])
    assert isinstance(head, SendV2Head)
    for loads in (json.loads, orjson.loads):
        decoded = as_dict(FRAMES[5][1], loads)
        ext = decoded["extFields"]
        assert (
            (decoded["opaque"], ext["b"], ext["e"])
            == (head.opaque, head.ext.topic, head.ext.queue_id)
            == (1005, TOPIC, 1)
        )


def subjects() -> list[Subject]:
    _check()
    candidates = [
        Candidate("decode_head", with_decode_head, ours=True),
        Candidate("decode_command", with_decode_command, ours=True),
        Candidate("orjson + int()", with_dicts(orjson.loads)),
        Candidate("json + int()", with_dicts(json.loads)),
    ]
    return [Subject("send header decode", COUNT, candidates, aim_us=0.8)]
