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


def test_a_line_of_json_has_its_time_level_and_who_says_it() -> None:
    line = log_formatter("json", "broker-a").format(record("topic %s is full", "orders"))

    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "pocketmq.broker",
        "server": "broker-a",
        "message": "topic orders is full",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_somebody_else_sent_cannot_begin_another_line(form: str) -> None:
    line = log_formatter(form).format(record("refused %s", "x\n2026-01-01 INFO all is well\r\nand more"))

    assert len(line.splitlines()) == 1
    assert "all is well" in line


def test_an_error_is_told_with_its_trace_in_one_line_of_json() -> None:
    line = log_formatter("json").format(record("a step failed", error=ValueError("no room")))

    assert "ValueError: no room" in json.loads(line)["error"]
    assert "\n" not in line


def test_for_people_the_name_of_the_server_stands_before_the_part() -> None:
    line = log_formatter("text", "broker-b").format(record("hello"))

    assert line.endswith("WARNING broker-b pocketmq.broker: hello")
