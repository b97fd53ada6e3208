"""The handle with which a producer recalls a timed message before it is due.

    base64url( v1 ␣ topic ␣ broker name ␣ deliver ms ␣ unique id )

The broker returns it in the response to a send, and receives it in RECALL_MESSAGE.
"""

import base64
import re
from typing import NamedTuple

from pocketmq.errors import ProtocolError, UsageError

_VERSION = "v1"
_BASE64 = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class RecallHandle(NamedTuple):
    """The message to recall. `deliver_ms` is the due time of the broker (TIMER_OUT_MS) plus 1."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_id: str

    @classmethod
    def parse(cls, text: str) -> "RecallHandle":
        """Parse a handle, with or without padding. Additional parts are ignored, as in Java."""
        version, *parts = _plain(text).split(" ")
        if version != _VERSION or len(parts) < 4:
            raise ProtocolError(f"recall handle {text!r} is not of the form 'v1 topic broker deliverMs uniqueId'")
        topic, broker_name, deliver_ms, unique_id = parts[:4]
        if not (topic and broker_name and unique_id and _NUMBER.fullmatch(deliver_ms)):
            raise ProtocolError(f"recall handle {text!r} has an empty part, or a time that is not a number")
        return cls(topic, broker_name, int(deliver_ms), unique_id)

    def __str__(self) -> str:
        words = (_VERSION, self.topic, self.broker_name, str(self.deliver_ms), self.unique_id)
        if any(not word or " " in word for word in words):
            raise UsageError(f"a recall handle cannot have an empty part or one with a blank: {words[1:]}")
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


def _plain(text: str) -> str:
    # Checked here because b64decode accepts the other alphabet too.
    if not _BASE64.fullmatch(text):
        raise ProtocolError(f"recall handle {text!r} is not URL-safe base64")
    bare = text.rstrip("=")
    try:
        return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4)).decode()
    except ValueError:
        raise ProtocolError(f"recall handle {text!r} is not the text that a broker returned") from None
