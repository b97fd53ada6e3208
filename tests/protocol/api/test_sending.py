"""Both headers of a send are one to those who handle them."""

from pocketmq.protocol.api.sending import SendMessage, SendMessageV2
from pocketmq.protocol.fields import read_fields, write_fields

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

    long = read_fields(SendMessage, LONG)
    short = read_fields(SendMessageV2, by_letter)

    assert isinstance(short, SendMessage)
    assert long.__struct_fields__ == short.__struct_fields__
    for name in long.__struct_fields__:
        assert getattr(long, name) == getattr(short, name), name
    assert write_fields(long) == LONG
    assert write_fields(short) == by_letter
    assert (short.queue_id, short.max_reconsume_times, short.batch, short.broker_name) == (1, 16, True, "broker-a")
