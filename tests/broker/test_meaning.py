"""The comparison of conversations finds all differences, and only differences."""

from typing import Any

import pytest
from tests.broker.meaning import Agreement, LogOffset, Moment, OwnOffset, Rate, UniqueId, meaning

from pocketmq.codes import RequestCode
from pocketmq.model.message_id import Host
from pocketmq.protocol.command import RESPONSE, Command
from pocketmq.protocol.record import encode_record

BROKER = "7F00000100004A42"
HOST = Host.parse("127.0.0.1:19010").packed()


def differences(theirs: Any, ours: Any) -> list[str]:
    return [path for path, _, _ in Agreement().differences(theirs, ours)]


def answer(ext: dict[str, str] | None = None, body: bytes = b"", remark: str | None = None) -> Command:
    return Command(0, ext, body, remark, RESPONSE)


def send(properties: str = "UNIQ_KEY\x01one\x02", queue: str = "0") -> Command:
    return Command(RequestCode.SEND_MESSAGE_V2, {"b": "T", "e": queue, "i": properties}, b"body")


def test_every_differing_field_is_found() -> None:
    one = {"code": 0, "ext": {"a": "1", "b": "2"}, "body": [{"c": 3}, {"c": 4}]}
    other = {"code": 1, "ext": {"a": "1", "d": "2"}, "body": [{"c": 3}, {"c": 5}]}

    assert differences(one, one) == []
    assert differences(one, other) == ["body[1].c", "code", "ext.b", "ext.d"]
    assert differences([1], [1, 2]) == [""]
    assert differences(1, "1") == [""]


def test_log_offsets_may_differ_if_each_run_is_consistent() -> None:
    agreement = Agreement()

    assert list(agreement.differences(LogOffset(500), LogOffset(0))) == []
    assert list(agreement.differences(LogOffset(500), LogOffset(0))) == []
    assert list(agreement.differences(LogOffset(500), LogOffset(7))) != []
    assert list(agreement.differences(LogOffset(600), LogOffset(0))) != []
    assert agreement.log.ours(503) == 3
    assert agreement.log.ours(999_999) == 999_999


def test_offsets_of_system_queues_are_compared_by_queue() -> None:
    agreement = Agreement()

    assert list(agreement.differences(OwnOffset("level 1", 3), OwnOffset("level 1", 0))) == []
    assert list(agreement.differences(OwnOffset("level 2", 3), OwnOffset("level 2", 5))) == []
    assert list(agreement.differences(OwnOffset("level 1", 3), OwnOffset("level 2", 0))) != []


def test_times_may_differ_by_seconds_and_rates_by_any_amount() -> None:
    assert differences(Moment(100_000), Moment(109_000)) == []
    assert differences(Moment(100_000), Moment(111_000)) == [""]
    assert differences(Rate(1.0), Rate(0.0)) == []
    assert differences(Rate(1.0), None) == [""]


def test_a_generated_unique_id_is_the_same_in_every_answer() -> None:
    agreement = Agreement()

    assert list(agreement.differences(UniqueId("theirs"), UniqueId("ours"))) != []
    assert list(agreement.differences(UniqueId("theirs", made_up=True), UniqueId("ours", made_up=True))) == []
    assert list(agreement.differences(UniqueId("theirs"), UniqueId("ours"))) == []
    assert list(agreement.differences(UniqueId("theirs"), UniqueId("else"))) != []


def test_the_order_of_json_and_an_empty_remark_are_ignored() -> None:
    request = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    one = meaning(answer(body=b'{"consumerIdList":["b","a"]}', remark=""), request)
    other = meaning(answer(body=b'{"consumerIdList":["a","b"]}'), request)

    assert differences(one, other) == []


def test_data_versions_are_ignored_and_all_else_is_compared() -> None:
    request = Command(RequestCode.GET_ALL_TOPIC_CONFIG)
    one = meaning(answer(body=b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"perm":6}'), request)
    other = meaning(answer(body=b'{"dataVersion":{"counter":9,"stateVersion":0,"timestamp":7},"perm":4}'), request)

    assert differences(one, other) == ["body.perm"]


@pytest.mark.parametrize(
    ("request_of_it", "differs"),
    [
        (send(), ["ext.queueId", "ext.queueOffset"]),
        (send("UNIQ_KEY\x01one\x02DELAY\x013\x02"), ["ext.queueId"]),
        (send(queue="-1"), []),
    ],
)
def test_the_chosen_queue_is_compared_only_if_it_was_requested(request_of_it: Command, differs: list[str]) -> None:
    one = {"msgId": f"{BROKER}0000000000000100", "queueId": "0", "queueOffset": "5", "transactionId": "one"}
    other = {"msgId": f"{BROKER}0000000000000000", "queueId": "1", "queueOffset": "0", "transactionId": "one"}

    theirs, ours = meaning(answer(one), request_of_it), meaning(answer(other), request_of_it)

    assert differences(theirs, ours) == differs


def test_records_are_compared_field_by_field() -> None:
    def pulled(body: bytes, queue_offset: int, log_offset: int) -> dict[str, Any]:
        record = encode_record(b"T", 0, queue_offset, log_offset, body, b"", 0, 0, 1, HOST, 2, HOST)
        return meaning(answer(body=record), Command(RequestCode.PULL_MESSAGE))

    assert differences(pulled(b"x", 1, 900), pulled(b"x", 1, 0)) == []
    assert differences(pulled(b"x", 1, 900), pulled(b"y", 2, 0)) == ["body[0].body", "body[0].queue_offset"]
