"""The start and end of a read, by every option for them."""

import pytest
from tests.spark.metadata_kit import FakeMetadata

from pocketmq.errors import InvalidSetting, NoPermission, TopicNotFound, WrongState
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Metadata
from pocketmq.spark.options.read_options import ReadOptions, parse_read_options
from pocketmq.spark.read.bounds import check_checkpoint, ending_offsets, present_queues, queues_of, starting_offsets

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
P0 = MessageQueue("payments", "broker-a", 0)
METADATA: Metadata = FakeMetadata({A1: (10, 50), A0: (5, 20), P0: (0, 0)}, committed={A0: 7})


def options(**given: str) -> ReadOptions:
    return parse_read_options(_completed(given), streaming=False, environ={})


def stream_options(**given: str) -> ReadOptions:
    return parse_read_options(_completed(given), streaming=True, environ={})


def _completed(given: dict[str, str]) -> dict[str, str]:
    topics = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": "orders"}
    return {"rocketmq.namesrv.addr": "a:1", **topics, **given}


def json_of(first: int, second: int) -> str:
    return f'{{"orders":{{"broker-a":{{"0":{first},"1":{second}}}}}}}'


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, [A0, A1]),
        ({"subscribePattern": ".*"}, [A0, A1, P0]),
        ({"subscribePattern": "order"}, []),
        ({"subscribePattern": "pay.*|x"}, [P0]),
        ({"assign": '{"orders":{"broker-a":[1]}}'}, [A1]),
    ],
)
def test_queues_are_the_current_ones_of_the_topics(given: dict[str, str], found: list[MessageQueue]) -> None:
    assert queues_of(options(**given), METADATA) == found


def test_an_assigned_queue_that_does_not_exist_is_refused() -> None:
    wanted = options(assign='{"orders":{"broker-a":[1,2,3],"b":[0,1,2,3]}}')

    with pytest.raises(InvalidSetting, match=r"do not exist: orders@b:0, .*orders@broker-a:2 and 1 more"):
        queues_of(wanted, METADATA)


class Deleted(FakeMetadata):
    """The topic `refunds` is listed, and was deleted in between."""

    def topics(self) -> list[str]:
        return [*super().topics(), "refunds"]

    def queues(self, topic: str) -> list[MessageQueue]:
        if topic == "refunds":
            raise TopicNotFound("refunds is not there")
        return super().queues(topic)


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "orders,refunds"},
        {"subscribePattern": "orders|refunds"},
        {"assign": '{"orders":{"broker-a":[0,1,2]},"refunds":{"broker-a":[0]}}'},
    ],
)
def test_a_topic_of_earlier_batches_may_be_missing(given: dict[str, str]) -> None:
    metadata = Deleted({A0: (0, 1), A1: (0, 1)})
    read = [A0, MessageQueue("orders", "broker-a", 2), MessageQueue("refunds", "broker-a", 0)]

    assert queues_of(options(**given), metadata, read) == [A0, A1]
    assert present_queues(options(**given), metadata) == [A0, A1]


def test_a_topic_that_was_never_read_must_exist() -> None:
    with pytest.raises(TopicNotFound, match="refunds is not there"):
        queues_of(options(subscribe="orders,refunds"), Deleted({A0: (0, 1)}), [A0])
    with pytest.raises(InvalidSetting, match=r"do not exist: orders@broker-a:1"):
        queues_of(options(assign='{"orders":{"broker-a":[0,1]}}'), Deleted({A0: (0, 1)}), [A0])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {A0: 5, A1: 10}),
        ({"startingOffsets": json_of(-2, 12)}, {A0: 5, A1: 12}),
        ({"startingOffsets": "committed", "groupId": "g"}, {A0: 7, A1: 10}),
        ({"startingTimestamp": "12500"}, {A0: 13, A1: 13}),
        ({"startingTimestamp": "0"}, {A0: 5, A1: 10}),
        ({"startingTimestamp": "19000", "startingOffsets": json_of(6, 12)}, {A0: 19, A1: 19}),
        ({"startingOffsetsByTimestamp": json_of(15000, 40000)}, {A0: 15, A1: 40}),
        ({"startingTimestamp": "30000", "startingOffsetsByTimestampStrategy": "latest"}, {A0: 20, A1: 30}),
        ({"startingOffsets": json_of(3, 12)}, {A0: 3, A1: 12}),
    ],
)
def test_the_start_of_a_batch_follows_its_options(given: dict[str, str], found: dict[MessageQueue, int]) -> None:
    assert starting_offsets(options(**given), [A0, A1], METADATA) == found


def test_a_stream_starts_at_the_latest_offset() -> None:
    assert starting_offsets(stream_options(), [A0, A1], METADATA) == {A0: 20, A1: 50}
    assert starting_offsets(stream_options(startingOffsets=json_of(-1, -2)), [A0, A1], METADATA) == {
        A0: 20,
        A1: 10,
    }


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {A0: 20, A1: 50}),
        ({"endingOffsets": json_of(-1, 12)}, {A0: 20, A1: 12}),
        ({"endingTimestamp": "30000"}, {A0: 20, A1: 30}),
        ({"endingOffsetsByTimestamp": json_of(15000, 40000)}, {A0: 15, A1: 40}),
    ],
)
def test_the_end_of_a_batch_follows_its_options(given: dict[str, str], found: dict[MessageQueue, int]) -> None:
    assert ending_offsets(options(**given), [A0, A1], METADATA) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingTimestamp": "30000"}, "startingTimestamp: orders@broker-a:0 has no message at or after that time;"),
        ({"startingOffsetsByTimestamp": json_of(0, 99000)}, "orders@broker-a:1 has no message at or after that time;"),
        ({"startingOffsets": json_of(21, 12)}, "orders@broker-a:0 ends at 20, before 21"),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":5}}}'}, "has no value for orders@broker-a:1"),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":5,"1":5,"9":5}}}'}, "not read: orders@broker-a:9"),
    ],
)
def test_an_impossible_start_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        starting_offsets(options(**given), [A0, A1], METADATA)

    assert told in str(caught.value)


def test_an_end_beyond_the_queue_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="endingOffsets: orders@broker-a:1 ends at 50, before 51"):
        ending_offsets(options(endingOffsets=json_of(20, 51)), [A0, A1], METADATA)


class Misnamed(FakeMetadata):
    """Has no topic `ordes`."""

    def queues(self, topic: str) -> list[MessageQueue]:
        raise TopicNotFound("No topic route info in name server for the topic: ordes")


class Secretive(Misnamed):
    """And refuses to list its topics."""

    def topics(self) -> list[str]:
        raise NoPermission("no right to list topics")


def test_a_topic_that_does_not_exist_is_named_with_the_nearest_that_does() -> None:
    with pytest.raises(
        TopicNotFound, match=r"topic 'ordes' does not exist; did you mean 'orders'\? `pocketmq topic ls`"
    ):
        queues_of(options(subscribe="ordes"), Misnamed({A0: (0, 1)}))
    with pytest.raises(TopicNotFound, match=r"topic 'ordes' does not exist\. `pocketmq topic ls`"):
        queues_of(options(subscribe="ordes"), Misnamed({P0: (0, 1)}))
    with pytest.raises(TopicNotFound, match=r"No topic route info"):
        queues_of(options(subscribe="ordes"), Secretive({A0: (0, 1)}))


@pytest.mark.parametrize(
    "given", [{"subscribe": "orders,new"}, {"subscribePattern": "ord.*"}, {"assign": '{"orders":{"broker-a":[5]}}'}]
)
def test_a_checkpoint_is_accepted_while_one_of_its_topics_is_read(given: dict[str, str]) -> None:
    check_checkpoint(stream_options(**given), [A0, P0])
    check_checkpoint(stream_options(**given), [])


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"subscribe": "refunds"}, "reads refunds"),
        ({"subscribePattern": "re.*"}, r"reads the pattern re\.\*"),
        ({"assign": '{"refunds":{"broker-a":[5]}}'}, "reads refunds"),
    ],
)
def test_a_checkpoint_of_other_topics_is_refused_and_both_are_named(given: dict[str, str], what: str) -> None:
    with pytest.raises(WrongState, match=f"a query that reads orders, payments, and this query {what}: set another"):
        check_checkpoint(stream_options(**given), [A0, A1, P0])
