"""Counts the calls that one consumed message costs: from the answer to its pull up to the offset that is recorded for it."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pocketmq.client.consumer.offsets import Offsets

_COUNTED = ("pocketmq.client.", "pocketmq.model.", "pocketmq.protocol.")
"""What lies between the network and the listener."""


class PathCall(NamedTuple):
    """A call of a Python function of this package."""

    module: str
    name: str


class PathTracer:
    """Records calls of the client's loop thread, and of listener threads that start while it records.

    The next pull leaves in the same turn of the loop as a message arrives. It is a path of its own, so calls below `aside` do not
    count; nor do comprehensions, which are calls up to Python 3.11 only. A path ends when an offset is recorded, so each message is
    to be waited for before the next one is sent. Pulls that brought no message to a listener are left out.
    """

    def __init__(self, begins: Callable[..., Any], aside: Callable[..., Any]) -> None:
        self._begins = begins.__code__
        self._aside = aside.__code__
        self._ends: CodeType = Offsets.advance.__code__
        self._loop_thread = threading.current_thread()
        self._now: list[PathCall] | None = None
        self._was_listened_to = False
        self._aside_frame: FrameType | None = None
        self.paths: list[list[PathCall]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame is self._aside_frame:
            self._aside_frame = None
        if event != "call" or not self._is_counted(frame):
            return
        code = frame.f_code
        if code is self._begins:
            self._now, self._was_listened_to = [], False
        if self._now is None:
            return
        self._was_listened_to |= threading.current_thread() is not self._loop_thread
        if code is self._aside:
            self._aside_frame = frame
            return
        self._now.append(PathCall(frame.f_globals["__name__"], code.co_qualname))
        if code is self._ends:
            if self._was_listened_to:
                self.paths.append(self._now)
            self._now = None

    def _is_counted(self, frame: FrameType) -> bool:
        thread = threading.current_thread()
        if thread is self._loop_thread:
            if self._aside_frame is not None:
                return False
        elif not thread.name.startswith("pocketmq listener"):
            return False
        module = frame.f_globals.get("__name__", "")
        return module.startswith(_COUNTED) and not frame.f_code.co_name.startswith("<")
