import json
from collections.abc import Iterator

import pytest
from tests.store.made_store import MadeStore

from pocketmq.cli.commands import ExitCode
from pocketmq.cli.output import FIELD_NAMES, MAX_CELL_CHARS, choose_fields, show_messages
from pocketmq.codes import Compression
from pocketmq.errors import InvalidSetting
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.compression import with_compression
from pocketmq.protocol.record import decode_record
from pocketmq.store.tools.dump import Skipped
from pocketmq.store.tools.message_fields import BodyForm, fields_of


def messages(*bodies: bytes, sys_flag: int = 0) -> Iterator[StoredMessage | Skipped]:
    for body in bodies:
        store = MadeStore()
        yield decode_record(store.records[store.append(body=body, sys_flag=sys_flag)])


def test_all_field_names_are_those_of_a_message() -> None:
    [message] = messages(b"x")

    assert isinstance(message, StoredMessage)
    assert tuple(fields_of(message, BodyForm.TEXT)) == FIELD_NAMES


@pytest.mark.parametrize(
    ("text", "words"), [("size,boddy", "did you mean body"), ("?", "the fields are"), (" , ", "is empty")]
)
def test_unknown_fields_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        choose_fields(text, as_json=True)


def test_fields_have_the_requested_order(capsys: pytest.CaptureFixture[str]) -> None:
    show_messages(
        messages(b"hello"), choose_fields("body, topic", as_json=False), BodyForm.TEXT, limit=None, as_json=False
    )

    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["body", "topic"]
    assert row.split() == ["hello", "Orders"]


def test_a_long_body_is_shortened_in_a_table_only(capsys: pytest.CaptureFixture[str]) -> None:
    body = b"x" * 5000

    show_messages(messages(body), ("body",), BodyForm.TEXT, limit=None, as_json=False)
    table = capsys.readouterr().out
    show_messages(messages(body), ("body",), BodyForm.TEXT, limit=None, as_json=True)
    line = capsys.readouterr().out

    assert table.count("x") == MAX_CELL_CHARS
    assert "(5,000 bytes)" in table
    assert json.loads(line)["body"] == body.decode()


def test_a_body_cannot_send_control_codes_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_messages(messages(b"\x1b[2Ja\r\nb[bold]"), ("body",), BodyForm.TEXT, limit=None, as_json=False)

    assert "\\x1b[2Ja\\r\\nb[bold]" in capsys.readouterr().out


def test_a_body_that_cannot_be_shown_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    broken = with_compression(0, Compression.ZLIB)

    show_messages(messages(b"x", sys_flag=broken), ("body",), BodyForm.TEXT, limit=None, as_json=False)
    table = capsys.readouterr().out
    show_messages(messages(b"x", sys_flag=broken), ("body",), BodyForm.TEXT, limit=None, as_json=True)
    line = json.loads(capsys.readouterr().out)

    assert "(" in table
    assert line["body"] is None
    assert line["body_error"]


def test_the_body_format_none_shows_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    show_messages(messages(b"secret"), ("topic", "body"), BodyForm.NONE, limit=None, as_json=False)

    assert capsys.readouterr().out.split() == ["topic", "Orders"]


def test_a_long_dump_has_several_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.cli.output._ROWS", 2)

    show_messages(messages(b"1", b"2", b"3"), ("body",), BodyForm.TEXT, limit=None, as_json=False)

    assert capsys.readouterr().out.split() == ["body", "1", "2", "body", "3"]


def test_a_limit_ends_a_dump_and_skipped_messages_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def found() -> Iterator[StoredMessage | Skipped]:
        yield Skipped("a hole")
        yield from messages(b"1", b"2")

    code = show_messages(found(), ("body",), BodyForm.TEXT, limit=1, as_json=True)

    shown = capsys.readouterr()
    assert code is ExitCode.DAMAGE
    assert shown.err == "skipped: a hole\n"
    assert len(shown.out.splitlines()) == 1
