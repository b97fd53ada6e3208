import pytest

from pocketmq.cli.output import Column, show_facts, show_rows
from pocketmq.model.human import duration, number

COLUMNS = (Column("name"), Column("lag", shown_as=number), Column("lag_ms", "behind", shown_as=duration))


def test_missing_values_of_a_table_are_shown_as_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"name": "a", "lag": 12_000, "lag_ms": 0}, {"name": None}], COLUMNS, as_json=False, empty="nothing")

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["name", "lag", "behind"], ["a", "12,000", "0", "s"], ["unknown", "unknown", "unknown"]]


def test_rows_are_json_lines_with_all_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"name": "a", "more": [1]}, {"name": None}], COLUMNS, as_json=True, empty="nothing")

    assert capsys.readouterr().out == '{"name":"a","more":[1]}\n{"name":null}\n'


@pytest.mark.parametrize("as_json", [False, True])
def test_no_rows_leave_the_output_empty(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    show_rows([], COLUMNS, as_json=as_json, empty="nothing")

    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "" if as_json else "nothing\n")


def test_a_name_cannot_send_control_codes_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"name": "[red]\x1b[2J"}], COLUMNS[:1], as_json=False, empty="")
    show_facts({"[b]": "\x1b[2J"})

    assert capsys.readouterr().out.split() == ["name", r"[red]\x1b[2J", "[b]", r"\x1b[2J"]
