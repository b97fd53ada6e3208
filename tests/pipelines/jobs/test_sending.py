"""What backfill and replay share when they send."""

from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.core.settings import Time
from pocketmq.pipelines.jobs.resending import SendingSettings, range_options


def test_a_read_of_ranges_names_each_queue_with_start_and_end() -> None:
    ranges = [
        QueueRange(MessageQueue("orders", "broker-a", 0), 5, 9),
        QueueRange(MessageQueue("orders", "broker-a", 1), 0, 3),
    ]

    assert range_options(ranges, 2) == {
        "assign": '{"orders":{"broker-a":[0,1]}}',
        "startingOffsets": '{"orders":{"broker-a":{"0":5,"1":0}}}',
        "endingOffsets": '{"orders":{"broker-a":{"0":9,"1":3}}}',
        "maxPartitions": "2",
    }


def test_writes_of_pieces_share_a_name_and_have_numbers() -> None:
    told = SendingSettings(checkpoint="notes", namesrv="ns:9876", to="again", since=Time(5))

    assert told.writing("9f86", 3) == {
        "writeId": "9f86",
        "writeBatch": "3",
        "reservedProperties": "drop",
        "topic": "again",
        "rocketmq.namesrv.addr": "ns:9876",
    }
    assert told.times == {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}
