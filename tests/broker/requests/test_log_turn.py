"""The answers to a connection when a turn of the store has ended."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pocketmq.broker.requests.log_turn import LogTurn, answer_synced
from pocketmq.codes import ResponseCode
from pocketmq.model.durations import Durations
from pocketmq.protocol.command import decode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.hot_headers import SendReplies
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock


class Said:
    """A connection that records the bytes written to it."""

    def __init__(self) -> None:
        self.words = b""

    def write(self, data: bytes) -> None:
        self.words += data

    write_now = write


class Stored:
    """A store whose turns are written at once, and synced on request."""

    settings = StoreSettings(folder=Path("/s"))
    last_staged = end = 0

    def end_turn(self, *_: object) -> bool:
        return True

    def when_synced(self, _: int, callback: Callable[[bool], None]) -> None:
        callback(True)


def reply(opaque: int) -> bytes:
    return SendReplies("R", True).encode(opaque, b"AB", 2, 3, "K")


@pytest.mark.parametrize(("is_safe", "code"), [(True, ResponseCode.SUCCESS), (False, ResponseCode.FLUSH_DISK_TIMEOUT)])
def test_after_a_sync_all_sends_get_success_or_a_timeout(is_safe: bool, code: int) -> None:
    line: Any = Said()

    answer_synced(line, reply(7) + reply(8), is_safe)

    answers = [decode_command(frame) for frame in split_frames(line.words)]
    assert [(answer.opaque, answer.code) for answer in answers] == [(7, code), (8, code)]


def test_answered_sends_are_not_answered_again() -> None:
    line, sends, stats = Said(), None, SimpleNamespace(put_times=Durations())
    appender = SimpleNamespace(effects=[])
    state = SimpleNamespace(
        store=Stored(), clock=FakeClock(), stats=stats, appender=appender, replicas=SimpleNamespace(promised=False)
    )
    turn = LogTurn(cast("Any", state), cast("Any", sends))
    turn.answer_later(cast("Any", line), b"now ", waits=False)
    turn.answer_later(cast("Any", line), b"later ", waits=True)

    turn.end()
    turn.end()
    assert line.words == b"now later "

    turn.answer_later(cast("Any", line), b"next", waits=False)
    turn.end()
    assert line.words == b"now later next"
