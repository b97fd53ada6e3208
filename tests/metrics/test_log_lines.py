"""Lines of the log."""

import json
import logging

import pytest

from pocketmq.metrics.log_lines import log_formatter


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("pocketmq.broker", logging.WARNING, "broker.py", 1, message, args, info)
    made.created = 1_700_000_000.25
    return made


def test_a_json_line_has_time_level_and_logger() -> None:
    line = log_formatter("json", "broker-a").format(record("topic %s is full", "orders"))

    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "pocketmq.broker",
        "server": "broker-a",
        "message": "topic orders is full",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_text_of_a_peer_cannot_start_another_line(form: str) -> None:
    line = log_formatter(form).format(record("refused %s", "x\n2026-01-01 INFO all is well\r\nand more"))

    assert len(line.splitlines()) == 1
    assert "all is well" in line


def test_an_error_is_one_json_line_with_its_traceback() -> None:
    line = log_formatter("json").format(record("a step failed", error=ValueError("no room")))

    assert "ValueError: no room" in json.loads(line)["error"]
    assert "\n" not in line


def test_a_text_line_has_the_server_before_the_logger() -> None:
    line = log_formatter("text", "broker-b").format(record("hello"))

    assert line.endswith("WARNING broker-b pocketmq.broker: hello")
