"""Both headers of a send have the same attributes, and an offset search asks for one end of equal times."""

import pytest

from pocketmq.codes import BoundaryType
from pocketmq.protocol.api.messages import SearchOffset, SendMessage, SendMessageV2

LONG = {
    "producerGroup": "PG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "8",
    "bornTimestamp": "1700000000123",
    "flag": "7",
    "properties": "TAGS\x01A\x02",
    "reconsumeTimes": "2",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "batch": "true",
    "bname": "broker-a",
}


def test_letters_and_long_names_give_the_same_values() -> None:
    by_letter = dict(zip("abcdefghijklmn", LONG.values(), strict=True))

    long = SendMessage.decode(LONG)
    short = SendMessageV2.decode(by_letter)

    assert isinstance(short, SendMessage)
    assert long.__struct_fields__ == short.__struct_fields__
    for name in long.__struct_fields__:
        assert getattr(long, name) == getattr(short, name), name
    assert long.encode() == LONG
    assert short.encode() == by_letter
    assert (short.queue_id, short.max_reconsume_times, short.batch, short.broker_name) == (1, 16, True, "broker-a")


ASKED = {"topic": "T", "queueId": "0", "timestamp": "5"}


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("LOWER", BoundaryType.LOWER),
        ("UPPER", BoundaryType.UPPER),
        ("upper", BoundaryType.UPPER),
        ("lower", BoundaryType.LOWER),
        ("sideways", BoundaryType.LOWER),
    ],
)
def test_a_boundary_is_read_in_any_case_and_lower_when_unknown(text: str, boundary: BoundaryType) -> None:
    assert SearchOffset.decode(ASKED | {"boundaryType": text}).boundary_type is boundary


def test_a_missing_boundary_is_none() -> None:
    assert SearchOffset.decode(ASKED).boundary_type is None
