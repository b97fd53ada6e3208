"""A program that appends numbered messages with sync flush until it is killed, and prints which ones are safe.

python -m conformance.store.killed_writer FOLDER FIRST_NUMBER PAUSE_MS

A line on the standard output is an acknowledgement: number, queue offset, log offset. It is written when the disk has the message.
"""

import logging
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final

from conformance.store.file_sizes import CRASHING
from conformance.store.numbered import Placed, numbered
from conformance.store.our_store import OurStore
from pocketmq.store.settings import FlushMode

TURNS_AHEAD: Final = 8
"""Turns that may wait for the disk at once."""
QUEUE_THOROUGH_MS: Final = 700
"""Queues are brought to the disk more often than usual, so that a crash finds a checkpoint that speaks of them."""


class Writer:
    """Writes a turn after the other; `waiting` counts those that the disk does not have yet."""

    def __init__(self, folder: Path) -> None:
        self._ours = OurStore(folder, CRASHING, flush=FlushMode.SYNC, queue_thorough_ms=QUEUE_THOROUGH_MS)
        self._ours.store.open()
        self._waiting = 0

    def write_turn(self, numbers: Iterator[int]) -> None:
        store = self._ours.store
        placed = [Placed(number, *self._ours.stage(numbered(number))) for number in numbers]
        store.end_turn()
        self._waiting += 1
        store.when_synced(store.end, partial(self._acknowledge, placed))
        self._ours.wait_until(lambda: self._waiting < TURNS_AHEAD)

    def _acknowledge(self, placed: list[Placed], is_safe: bool) -> None:
        self._waiting -= 1
        if is_safe:
            sys.stdout.write("".join(one.line() for one in placed))
            sys.stdout.flush()

    def pause(self, pause_ms: int) -> None:
        resume_at = time.monotonic() + pause_ms / 1000
        self._ours.wait_until(lambda: time.monotonic() >= resume_at)


def main(folder: Path, first: int, pause_ms: int) -> None:
    writer = Writer(folder)
    numbers = count(first)
    for turn in count():
        writer.write_turn(islice(numbers, turn % 5 + 1))
        writer.pause(pause_ms)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
