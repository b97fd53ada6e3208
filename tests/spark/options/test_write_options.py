"""Options of writing: the guarantee depends on the kind of the write."""

import pickle

import pytest

from pocketmq.errors import InvalidSetting
from pocketmq.spark.options.options import Use
from pocketmq.spark.options.write_options import WRITE_OPTIONS, WriteOptions, parse_write_options

BASE = {"rocketmq.namesrv.addr": "a:9876"}


def write(*, streaming: bool, **given: str) -> WriteOptions:
    return parse_write_options({**BASE, **given}, streaming=streaming, environ={})


@pytest.mark.parametrize(
    ("streaming", "given", "effectively_once"),
    [
        (True, {}, True),
        (True, {"deliveryGuarantee": "at-least-once"}, False),
        (False, {}, False),
        (False, {"writeId": "day-1"}, True),
        (False, {"writeId": "day-1", "deliveryGuarantee": "effectively-once"}, True),
    ],
)
def test_the_delivery_guarantee_has_a_default_for_each_use(
    streaming: bool, given: dict[str, str], effectively_once: bool
) -> None:
    assert write(streaming=streaming, **given).is_effectively_once is effectively_once


@pytest.mark.parametrize(
    ("streaming", "given", "told"),
    [
        (False, {"deliveryGuarantee": "effectively-once"}, "needs the option writeId"),
        (False, {"deliveryGuarantee": "at-least-once", "writeId": "x"}, "writeId has no effect"),
        (False, {"writeBatch": "3"}, "writeBatch needs the option writeId"),
        (True, {"writeId": "x"}, "is for a batch write, not for a streaming write"),
        (True, {"deliveryGuarantee": "exactly-once"}, "one of at-least-once, effectively-once"),
        (True, {"topics": "a"}, "did you mean topic?"),
        (True, {"subscribe": "a"}, "name the topic by the option topic"),
        (True, {"topic": "a b"}, "is not a topic"),
        (False, {"checkpointLocation": "/x"}, "there is no option 'checkpointLocation'"),
    ],
)
def test_an_impossible_value_is_refused(streaming: bool, given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        write(streaming=streaming, **given)

    assert told in str(caught.value)


def test_options_of_spark_itself_are_ignored() -> None:
    assert write(streaming=True, checkpointlocation="/x", queryName="q").topic is None


def test_every_option_has_its_field_and_examples_are_good() -> None:
    own = {option.field for option in WRITE_OPTIONS.options if not option.name.startswith("rocketmq.")}

    assert set(WriteOptions.__struct_fields__) - own == {"connection"}
    assert own <= set(WriteOptions.__struct_fields__)
    for option in WRITE_OPTIONS.options:
        assert option.use & Use.WRITE
        option.kind.read(option.example)


def test_options_can_be_pickled() -> None:
    options = write(streaming=True, topic="orders")

    assert pickle.loads(pickle.dumps(options)) == options
