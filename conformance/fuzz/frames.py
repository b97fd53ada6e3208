"""Frames to begin with, and what is done to them.

recorded   requests and answers of the real programs, where the recordings are
made       one request for each code of the protocol, its fields filled with plausible texts

mutate     a few of: bits turned, bytes cut, added, repeated; lengths that lie; fields lost, doubled, of another kind,
           huge; another code, flag, number or encoding
"""

import json
import random
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import msgspec
from tests.golden import captured

from conformance import apache
from pocketmq.codes import RequestCode
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import RESPONSE, Command, encode_command

Frame = bytes
LARGE: Final = 200_000
"""Recorded frames above this are left out: the volume is in their number."""

_NUMBERS: Final = (-1, 0, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 10**30)
_TEXTS: Final = (
    "",
    " ",
    "\0",
    "../../../etc/passwd",
    "%RETRY%",
    "x" * 300,
    "ü" * 90,
    "a\x01b\x02c",
    "TBW102",
    "*",
    "|| ||",
)
_VALUES: Final[tuple[Any, ...]] = (*_NUMBERS, *_TEXTS, None, True, 1.5, [], {}, [[[[]]]], {"a": {"b": {}}})


@cache
def requests() -> tuple[Frame, ...]:
    return (*_recorded(is_answer=False), *(_made(code) for code in RequestCode))


@cache
def answers() -> dict[int, list[Frame]]:
    """Recorded answers by the code of their request; with 0, some for any request."""
    found: dict[int, list[Frame]] = {
        0: [encode_command(Command(code, flag=RESPONSE)) for code in (0, 1, 2, 17, 19, 21)]
    }
    if apache.GOLDEN.is_dir():
        for one in captured("wire/**/*.jsonl"):
            if one.answers is not None and len(one.frame) < LARGE:
                found.setdefault(one.answers, []).append(one.frame)
    return found


def _recorded(*, is_answer: bool) -> list[Frame]:
    if not apache.GOLDEN.is_dir():
        return []
    frames = (one.frame for one in captured("wire/**/*.jsonl") if (one.answers is not None) is is_answer)
    return list(dict.fromkeys(frame for frame in frames if len(frame) < LARGE))


def _made(code: RequestCode) -> Frame:
    header = request_header(code)
    names = [field.encode_name for field in msgspec.structs.fields(header)] if header is not None else []
    return encode_command(Command(code, ext=dict.fromkeys(names, "1"), body=b"{}", opaque=int(code)))


def with_opaque(frame: Frame, opaque: int) -> Frame:
    """An answer for another request: only in the usual encoding, others stay as they are."""
    header, body = _parts(frame)
    if header is None:
        return frame
    header["opaque"] = opaque
    return _frame(json.dumps(header).encode(), body)


class Mutations:
    """Does something to frames, by the dice that it is given."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._ways: tuple[Callable[[Frame], Frame], ...] = (
            self._turn_bits,
            self._cut,
            self._insert,
            self._repeat,
            self._lie_about_length,
            self._lie_about_header,
            self._change_field,
            self._change_field,
            self._change_envelope,
            self._change_body,
        )

    def of(self, frame: Frame) -> Frame:
        for _ in range(self._dice.choice((0, 1, 1, 1, 2, 3))):
            frame = self._dice.choice(self._ways)(frame)
        return frame

    def noise(self) -> bytes:
        """Nothing of the protocol."""
        dice = self._dice
        return dice.choice(
            (
                dice.randbytes(dice.randrange(1, 4096)),
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(64),
                struct.pack(">I", dice.choice((0, 1, 3, 4, 2**24, 2**31 - 1, 2**32 - 1))) + dice.randbytes(16),
                bytes(dice.randrange(1, 100_000)),
            )
        )

    def _turn_bits(self, frame: Frame) -> Frame:
        data = bytearray(frame)
        for _ in range(self._dice.randrange(1, 8)):
            if data:
                data[self._dice.randrange(len(data))] ^= 1 << self._dice.randrange(8)
        return bytes(data)

    def _cut(self, frame: Frame) -> Frame:
        return frame[: self._dice.randrange(len(frame) + 1)]

    def _insert(self, frame: Frame) -> Frame:
        at = self._dice.randrange(len(frame) + 1)
        return frame[:at] + self._dice.randbytes(self._dice.randrange(1, 64)) + frame[at:]

    def _repeat(self, frame: Frame) -> Frame:
        return frame * self._dice.randrange(2, 20)

    def _lie_about_length(self, frame: Frame) -> Frame:
        length = self._dice.choice((0, 1, 4, len(frame), len(frame) - 5, 2**24, 2**24 + 1, 2**31, 2**32 - 1))
        return struct.pack(">I", max(0, length)) + frame[4:]

    def _lie_about_header(self, frame: Frame) -> Frame:
        word = self._dice.choice((0, 1, 2**24 - 1, len(frame), len(frame) - 8, 2**16)) & 0xFFFFFF
        return frame[:4] + struct.pack(">I", self._dice.choice((0, 1, 1, 2, 255)) << 24 | word) + frame[8:]

    def _change_field(self, frame: Frame) -> Frame:
        header, body = _parts(frame)
        if header is None:
            return frame
        ext = header.get("extFields")
        if not isinstance(ext, dict):
            header["extFields"] = self._dice.choice(_VALUES)
        elif ext and self._dice.random() < 0.3:
            del ext[self._dice.choice(list(ext))]
        else:
            ext[self._dice.choice([*ext, "topic", "queueId", "x" * 1000])] = self._value()
        return _frame(json.dumps(header).encode(), body)

    def _change_envelope(self, frame: Frame) -> Frame:
        header, body = _parts(frame)
        if header is None:
            return frame
        name = self._dice.choice(("code", "flag", "opaque", "language", "version", "remark", "serializeTypeCurrentRPC"))
        header[name] = self._dice.choice((int(self._dice.choice(list(RequestCode))), *_VALUES))
        return _frame(json.dumps(header).encode(), body)

    def _change_body(self, frame: Frame) -> Frame:
        header, body = _parts(frame)
        if header is None:
            return frame
        dice = self._dice
        changed = dice.choice(
            (
                b"",
                body[: dice.randrange(len(body) + 1)],
                self._turn_bits(body) if body else b"{",
                b"[" * 5_000,
                b'{"a":' * 500,
                json.dumps(dice.choice(_VALUES)).encode(),
                dice.randbytes(dice.randrange(2_000)),
            )
        )
        return _frame(json.dumps(header).encode(), changed)

    def _value(self) -> Any:
        value = self._dice.choice(_VALUES)
        return str(value) if isinstance(value, int) and self._dice.random() < 0.7 else value


def _parts(frame: Frame) -> tuple[dict[str, Any] | None, bytes]:
    """The header of a frame that is whole and in JSON, and its body; None for any other."""
    if len(frame) < 8:
        return None, b""
    total, word = struct.unpack(">II", frame[:8])
    size = word & 0xFFFFFF
    if word >> 24 or total + 4 > len(frame) or size + 4 > total:
        return None, b""
    try:
        header = json.loads(frame[8 : 8 + size])
    except ValueError:
        return None, b""
    return (header if isinstance(header, dict) else None), frame[8 + size : total + 4]


def _frame(header: bytes, body: bytes) -> Frame:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
