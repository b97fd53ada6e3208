"""The columns, and the columns that a user may select."""

from typing import NamedTuple

import pytest

from pocketmq.errors import InvalidSetting
from pocketmq.spark.schema import COLUMNS, Name, NeverNull, names_of, never_null_of


class FakeType(NamedTuple):
    text: str

    def simpleString(self) -> str:
        return self.text


class FakeMap(NamedTuple):
    valueContainsNull: bool  # noqa: N815

    def simpleString(self) -> str:
        return "map<string,string>"


class FakeField(NamedTuple):
    """As Spark's StructField, of which only the shape matters."""

    name: str
    dataType: FakeType | FakeMap  # noqa: N815
    nullable: bool = True


def field(name: str, kind: str, nullable: bool = True) -> FakeField:
    return FakeField(name, FakeType(kind), nullable)


def test_the_columns_are_the_documented_ones() -> None:
    assert ", ".join(f"{column.name} {column.type}" for column in COLUMNS) == (
        "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, tags string, "
        "value binary, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
    )
    assert [column.name for column in COLUMNS if column.may_be_null] == [Name.KEYS, Name.TAGS]


def test_any_subset_keeps_the_order_of_the_user() -> None:
    wanted = [field("value", "binary"), field("queueOffset", "bigint")]

    assert names_of(wanted) == (Name.VALUE, Name.QUEUE_OFFSET)


def test_the_nullability_of_a_schema_is_kept() -> None:
    mixed = [field("topic", "string", nullable=False), field("value", "binary"), field("tags", "string")]

    assert names_of(mixed) == (Name.TOPIC, Name.VALUE, Name.TAGS)
    assert never_null_of(mixed) == NeverNull(frozenset({Name.TOPIC}))


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("has_null_values", [False, True])
def test_a_map_or_its_values_may_be_null(nullable: bool, has_null_values: bool) -> None:
    fields = [FakeField("properties", FakeMap(has_null_values), nullable)]

    assert names_of(fields) == (Name.PROPERTIES,)
    assert never_null_of(fields) == NeverNull(
        frozenset() if nullable else frozenset({Name.PROPERTIES}), not has_null_values
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([], "has no columns; choose from topic"),
        ([field("values", "binary")], "no column 'values'; did you mean value?"),
        ([field("queueoffset", "bigint")], "no column 'queueoffset'; did you mean queueOffset?"),
        ([field("zzzzz", "binary")], "no column 'zzzzz'; the columns are topic, "),
        ([field("value", "string")], "the column value has type binary, not string; cast it after reading"),
        ([field("queueOffset", "int")], "the column queueOffset has type bigint, not int"),
        ([field("tags", "string"), field("tags", "string")], "has the column tags twice"),
        ([field("keys", "string", nullable=False)], "keys cannot be NOT NULL: not every message has a value"),
        ([field("tags", "string", nullable=False)], "tags cannot be NOT NULL: not every message has a value"),
    ],
)
def test_impossible_types_are_refused(fields: list[FakeField], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        names_of(fields)

    assert told in str(caught.value)
