"""The table of options: names in any case, the nearest right one for a wrong one, uses kept apart."""

import pytest

from pocketmq.errors import InvalidSetting
from pocketmq.spark.options.options import (
    SWITCH,
    TEXT,
    Forbidden,
    Option,
    OptionTable,
    Use,
    at_most_one,
    exactly_one,
    whole,
)

TABLE = OptionTable(
    [
        Option("maxRows", "max_rows", whole(1), None, Use.STREAM, "rows", "5"),
        Option("include", "include", SWITCH, True, Use.READ, "or not", "false", ("includeAlso",)),
        Option("topic", "topic", TEXT, None, Use.WRITE, "where to", "orders"),
        Option("server", "server", TEXT, "", Use.ALL, "whom", "a:1"),
    ],
    [Forbidden("secret", "it would be seen")],
)


def test_keys_are_case_insensitive_and_values_are_not() -> None:
    assert TABLE.read({"MAXROWS": "7", "server": "Host"}, Use.STREAM) == {
        "max_rows": 7,
        "include": True,
        "server": "Host",
    }


def test_missing_options_have_defaults_and_those_of_other_uses_are_ignored() -> None:
    assert TABLE.read({}, Use.BATCH) == {"include": True, "server": ""}
    assert TABLE.read({}, Use.STREAM_WRITE) == {"topic": None, "server": ""}


def test_an_alias_has_the_same_meaning() -> None:
    assert TABLE.read({"includealso": "false"}, Use.BATCH)["include"] is False
    assert TABLE.set_fields({"includealso": "false"}) == {"include"}


@pytest.mark.parametrize(
    ("given", "use", "told"),
    [
        ({"maxRow": "1"}, Use.STREAM, "there is no option 'maxRow' for a streaming read; did you mean maxRows?"),
        ({"includeAlos": "1"}, Use.BATCH, "did you mean includeAlso?"),
        ({"zz": "1"}, Use.BATCH, "for a batch read; there are: include, server"),
        ({"maxRows": "1"}, Use.BATCH, "the option maxRows is for a streaming read, not for a batch read"),
        ({"topic": "1"}, Use.STREAM, "is for a batch write or a streaming write, not for a streaming read"),
        ({"SECRET": "hunter2"}, Use.BATCH, "the option secret cannot be set: it would be seen"),
        ({"maxRows": "x"}, Use.STREAM, "the option maxRows = 'x' is not a whole number of at least 1"),
        ({"maxRows": "x" * 999}, Use.STREAM, "x…' is not"),
        ({"include": "true", "includeAlso": "false"}, Use.BATCH, "include and includeAlso are the same option"),
    ],
)
def test_an_impossible_value_is_refused(given: dict[str, str], use: Use, told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        TABLE.read(given, use)

    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_exactly_one_of_several_options_is_required() -> None:
    pairs = [("a", "optionA"), ("b", "optionB")]

    exactly_one({"a": 1, "b": None}, pairs)
    with pytest.raises(InvalidSetting, match="optionA and optionB exclude one another"):
        exactly_one({"a": 1, "b": 2}, pairs)
    with pytest.raises(InvalidSetting, match="exactly one of the options optionA, optionB is required: none is set"):
        exactly_one({"a": None, "b": None}, pairs)


def test_at_most_one_of_two_options_is_accepted() -> None:
    pairs = [("a", "optionA"), ("b", "optionB")]

    at_most_one({"a": None, "b": None}, pairs)
    at_most_one({"a": None, "b": 2}, pairs)
    with pytest.raises(InvalidSetting, match="optionA and optionB exclude one another"):
        at_most_one({"a": 1, "b": 2}, pairs)


def test_the_documentation_has_a_row_for_each_option() -> None:
    assert TABLE.markdown_rows() == [
        "| `maxRows` | number | none | streaming read | rows | `5` |",
        "| `include`, alias `includeAlso` | true or false | true | read | or not | `false` |",
        "| `topic` | text | none | write | where to | `orders` |",
        "| `server` | text | none | all | whom | `a:1` |",
    ]
