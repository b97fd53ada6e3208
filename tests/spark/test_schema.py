"""The columns, and what a user may ask for of them."""

from typing import NamedTuple

import pytest

from pocketmq.errors import InvalidSetting
from pocketmq.spark.schema import COLUMNS, Name, ddl, names_of


class FakeType(NamedTuple):
    text: str

    def simpleString(self) -> str:
        return self.text


class FakeField(NamedTuple):
    """As Spark's StructField, of which only the shape matters."""

    name: str
    dataType: FakeType  # noqa: N815
    nullable: bool = True


def field(name: str, kind: str, nullable: bool = True) -> FakeField:
    return FakeField(name, FakeType(kind), nullable)


def test_the_columns_are_the_documented_ones() -> None:
    assert ddl() == (
        "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, tags string, "
        "value binary, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
    )


def test_the_map_can_be_left_out() -> None:
    assert "properties" not in ddl(with_properties=False)
    assert ddl(with_properties=False).count(",") == len(COLUMNS) - 2


def test_any_subset_keeps_the_order_of_the_user() -> None:
    wanted = [field("value", "binary"), field("queueOffset", "bigint")]

    assert names_of(wanted) == (Name.VALUE, Name.QUEUE_OFFSET)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([], "has no column; choose from topic"),
        ([field("values", "binary")], "no column 'values'; did you mean value?"),
        ([field("queueoffset", "bigint")], "no column 'queueoffset'; did you mean queueOffset?"),
        ([field("zzzzz", "binary")], "no column 'zzzzz'; there are: topic, "),
        ([field("value", "string")], "the column value is binary, not string; cast it after reading"),
        ([field("queueOffset", "int")], "the column queueOffset is bigint, not int"),
        ([field("tags", "string"), field("tags", "string")], "has the column tags twice"),
        ([field("topic", "string", nullable=False)], "topic cannot be NOT NULL"),
    ],
)
def test_what_cannot_be_read_so_is_refused(fields: list[FakeField], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        names_of(fields)

    assert told in str(caught.value)
