"""What a line is told when a turn of the store has ended."""

from typing import Any

import pytest

from pocketmq.broker.staged import Answers, tell_synced
from pocketmq.codes import ResponseCode
from pocketmq.protocol.command import decode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.replies import SendReplies


class Said:
    """A line that keeps what is written to it."""

    def __init__(self) -> None:
        self.words = b""

    def write(self, data: bytes) -> None:
        self.words += data


def reply(opaque: int) -> bytes:
    return SendReplies("R", True).encode(opaque, b"AB", 2, 3, "K")


@pytest.mark.parametrize(("is_safe", "code"), [(True, ResponseCode.SUCCESS), (False, ResponseCode.FLUSH_DISK_TIMEOUT)])
def test_after_a_sync_all_are_told_that_they_are_safe_or_that_it_took_too_long(is_safe: bool, code: int) -> None:
    line: Any = Said()

    tell_synced(line, reply(7) + reply(8), is_safe)

    answers = [decode_command(frame) for frame in split_frames(line.words)]
    assert [(answer.opaque, answer.code) for answer in answers] == [(7, code), (8, code)]


def test_answers_that_were_taken_are_not_given_twice() -> None:
    line: Any = Said()
    answers = Answers(line)
    answers.staged = True
    answers.at_once.append(b"now")
    answers.synced.append(b"later")

    assert answers.take() == (line, [b"now"], [b"later"])
    assert answers.take() == (line, [], [])
    assert not answers.staged
