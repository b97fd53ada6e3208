"""Trace batches: limits of number, size and keys."""

import pytest
from tests.golden import captured, needs_golden

from pocketmq.client.telemetry.tracing import (
    FLUSH_SECONDS,
    MAX_BODY_BYTES,
    MAX_CONTEXTS,
    MAX_KEYS_BYTES,
    MAX_WAITING,
    TraceBatches,
    TraceContext,
    trace_messages,
)
from pocketmq.codes import RequestCode
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.trace_text import Pub, SubBefore, Trace, TracedType, decode_trace, encode_trace

NOW = 1000.0


def pub(message_id: str = "ID", *, topic: str = "Orders", keys: str | None = None, tags: str | None = None) -> Pub:
    return Pub(1, "r", "g", topic, message_id, tags, keys, "h", 5, 2, TracedType.NORMAL, "OFF", True)


def sent(number: int, topic: str = "Orders") -> TraceContext:
    return TraceContext(topic, [pub(f"ID{number}", topic=topic)])


def told(batches: TraceBatches, now: float = NOW) -> list[list[Trace]]:
    return [decode_trace(message.body) for message in batches.take(now)]


@pytest.mark.parametrize(("count", "is_due"), [(0, False), (19, False), (20, True), (21, True)])
def test_twenty_contexts_are_due_at_once(count: int, is_due: bool) -> None:
    batches = TraceBatches(NOW)
    for number in range(count):
        batches.add(sent(number))

    assert batches.is_due(NOW) is is_due


@pytest.mark.parametrize(("passed", "is_due"), [(-0.001, False), (0.0, True), (0.001, True)])
def test_fewer_contexts_wait_five_seconds(passed: float, is_due: bool) -> None:
    batches = TraceBatches(NOW)
    assert not batches.is_due(NOW + 100)

    batches.take(NOW + 100)
    batches.add(sent(1))

    assert batches.is_due(NOW + 100 + FLUSH_SECONDS + passed) is is_due


def test_more_than_twenty_contexts_are_sent_in_parts() -> None:
    batches = TraceBatches(NOW)
    for number in range(45):
        batches.add(sent(number))

    sizes = [[len(records) for records in told(batches)] for _ in range(4)]

    assert sizes == [[MAX_CONTEXTS], [MAX_CONTEXTS], [5], []]
    assert len(batches) == 0


def test_a_context_above_the_limit_is_dropped_and_counted() -> None:
    batches = TraceBatches(NOW, max_waiting=2)

    assert [batches.add(sent(number)) for number in range(4)] == [True, True, False, False]
    assert (len(batches), batches.dropped) == (2, 2)

    batches.take(NOW)
    assert batches.add(sent(5))
    assert MAX_WAITING == 2048


def test_a_context_without_records_does_not_count() -> None:
    batches = TraceBatches(NOW)

    assert batches.add(TraceContext("Orders", []))
    assert len(batches) == 0
    assert list(trace_messages([TraceContext("Orders", [])])) == []


def test_records_of_one_topic_share_a_message_in_order() -> None:
    contexts = [sent(1), sent(2, "Bills"), sent(3), TraceContext("Orders", [pub("ID4")], "rmq_sys_TRACE_DATA_sh")]

    messages = list(trace_messages(contexts))

    assert [(message.topic, message.keys) for message in messages] == [
        ("RMQ_SYS_TRACE_TOPIC", "ID1 ID3"),
        ("RMQ_SYS_TRACE_TOPIC", "ID2"),
        ("rmq_sys_TRACE_DATA_sh", "ID4"),
    ]


def test_a_trace_message_is_found_by_ids_and_keys_each_once() -> None:
    before = SubBefore(1, "r", "g", "REQ", "ID1", 0, "k1 k2")

    (message,) = trace_messages([TraceContext("Orders", [pub("ID1", keys="k1")]), TraceContext("Orders", [before])])

    assert message.keys == "ID1 k1 k2"


@pytest.mark.parametrize(("longer", "messages"), [(-1, 1), (0, 1), (1, 2)])
def test_a_body_never_exceeds_its_limit(longer: int, messages: int) -> None:
    empty = len(encode_trace([pub("A", tags=""), pub("B", tags="")]))
    half = (MAX_BODY_BYTES - empty) // 2
    rest = MAX_BODY_BYTES - empty - half
    contexts = [TraceContext("Orders", [pub("A", tags="x" * half), pub("B", tags="x" * (rest + longer))])]

    found = list(trace_messages(contexts))

    assert len(found) == messages
    assert all(len(message.body) <= MAX_BODY_BYTES for message in found)
    assert [record for message in found for record in decode_trace(message.body)] == list(contexts[0].records)


def test_a_record_above_the_size_limit_gets_its_own_message() -> None:
    large = pub("B", tags="x" * MAX_BODY_BYTES)

    found = [decode_trace(message.body) for message in trace_messages([TraceContext("T", [pub("A"), large, pub("C")])])]

    assert found == [[pub("A")], [large], [pub("C")]]


@pytest.mark.parametrize(("longer", "messages"), [(-1, 1), (0, 1), (1, 2)])
def test_keys_never_exceed_their_limit(longer: int, messages: int) -> None:
    first = pub("A", keys="k" * (MAX_KEYS_BYTES // 2 - 3))
    second = pub("B", keys="l" * (MAX_KEYS_BYTES // 2 - 3 + longer))

    found = list(trace_messages([TraceContext("T", [first, second])]))

    assert len(found) == messages
    assert all(len(message.keys.encode()) < MAX_KEYS_BYTES for message in found)


def test_keys_of_a_record_above_the_limit_are_dropped() -> None:
    record = pub("A", keys=f"{'k' * MAX_KEYS_BYTES} short")

    (message,) = trace_messages([TraceContext("T", [record])])

    assert message.keys == "A short"
    assert decode_trace(message.body) == [record]


@needs_golden
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_records_of_a_real_client_become_the_same_messages(version: str) -> None:
    sends = [
        frame.command
        for frame in captured(f"wire/{version}/json/trace.jsonl")
        if frame.link == "broker" and frame.forward and frame.command.code == RequestCode.SEND_MESSAGE_V2
        if (frame.command.ext or {}).get("b") == "RMQ_SYS_TRACE_TOPIC"
    ]
    assert sends

    for command in sends:
        records = decode_trace(command.body)
        (message,) = trace_messages([TraceContext("TraceTopic", [record]) for record in records])
        assert message.body == command.body
        theirs = parse_properties((command.ext or {})["i"])["KEYS"]
        assert set(message.keys.split()) == set(theirs.split())
