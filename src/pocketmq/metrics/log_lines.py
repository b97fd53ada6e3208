"""Formats of log records: text for people, or JSON for programs, one line per record.

2026-05-01 12:00:00,123 WARNING broker-a pocketmq.broker: …
{"time":"2026-05-01T10:00:00.123Z","level":"warning","logger":"pocketmq.broker","server":"broker-a","message":"…"}
"""

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

FORMS: Final = ("text", "json")


class JsonLines(logging.Formatter):
    """One JSON object per line. `server` is left out if it is empty."""

    def __init__(self, who: str = "") -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "server": self._who,
            "message": record.getMessage(),
            "error": self.formatException(record.exc_info) if record.exc_info else "",
        }
        return msgspec.json.encode({name: text for name, text in line.items() if text}).decode()


class TextLines(logging.Formatter):
    """One line of text. Line breaks in a message are escaped; only the traceback of an error has more lines."""

    def __init__(self, who: str = "") -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {who and who + ' '}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 logging calls it so
        return "\\n".join(super().formatMessage(record).splitlines())


def log_formatter(form: str, who: str = "") -> logging.Formatter:
    return JsonLines(who) if form == "json" else TextLines(who)
