"""Forwarding: plans, undeliverable messages, and progress that may be saved."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.life import Life, life_with

from pocketmq.broker.delivery.forwarding import (
    Delivery,
    Forwarder,
    ForwardLimits,
    Plan,
    SafeProgress,
    Skip,
    real_destination,
)
from pocketmq.broker.messages import Forward
from pocketmq.errors import InvalidMessage, StoreBusy
from pocketmq.model.names import TIMER_TOPIC, TopicName
from pocketmq.testing import run


def move_to(life: Life, topic: str, size: int = 10) -> Forward:
    message = life.store.message(life.send(bytes(size), "Waiting").log_offset)
    assert message is not None
    return Forward(message, TopicName(topic), 0, b"")


def test_a_message_names_its_destination() -> None:
    assert real_destination(b"REAL_TOPIC\x01%RETRY%g\x02REAL_QID\x0117\x02") == ("%RETRY%g", 17)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"REAL_TOPIC\x01T\x02",
        b"REAL_QID\x010\x02",
        b"REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02",
        b"REAL_TOPIC\x01T\x02REAL_QID\x0112345678901\x02",
        b"REAL_TOPIC\x01a/b\x02REAL_QID\x010\x02",
        b"REAL_TOPIC\x01\xff\x02REAL_QID\x010\x02",
        b"REAL_TOPIC\x01" + TIMER_TOPIC.encode() + b"\x02REAL_QID\x010\x02",
    ],
)
def test_a_message_without_destination_is_refused(properties: bytes) -> None:
    with pytest.raises(InvalidMessage):
        real_destination(properties)


def test_a_plan_has_a_byte_limit_and_always_accepts_one_message() -> None:
    life = Life()
    large, small = move_to(life, "T", 2000), move_to(life, "T")
    plan = Plan(ForwardLimits(batch_bytes=1000))

    assert plan.add(large)
    assert plan.add(small) is False
    assert plan.items == [large]


def test_finished_items_are_counted_from_the_start_of_the_plan() -> None:
    life = Life()
    forwarder = Forwarder(life.store, life.appender, life.topics, "things")

    done = forwarder.execute([Skip(0), move_to(life, "T"), Skip(9, "it is broken"), move_to(life, "T")])

    assert done == 4
    assert (forwarder.forwarded, forwarder.undeliverable) == (2, 1)
    assert len(life.bodies()) == 2


def test_a_plan_without_messages_writes_nothing() -> None:
    life = Life()
    forwarder = Forwarder(life.store, life.appender, life.topics, "things")

    assert forwarder.execute([Skip(0), Skip(1)]) == 2
    assert life.store.end == 0


def test_a_store_failure_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    forwarder = Forwarder(life.store, life.appender, life.topics, "things")

    with caplog.at_level(logging.INFO):
        forwarder.refused(StoreBusy("no file"))
        forwarder.refused(StoreBusy("no file"))
        forwarder.execute([move_to(life, "T")])
        forwarder.execute([move_to(life, "T")])

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_lost_messages_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    forwarder = Forwarder(life.store, life.appender, life.topics, "things")

    forwarder.lost(3, "the log is gone")

    assert forwarder.undeliverable == 3
    assert "3 things are lost" in caplog.text


def test_delivering_everything_continues_until_nothing_is_due() -> None:
    left = [True, True, False, True]
    life = Life()

    class Counted(Delivery[int]):
        def run(self) -> bool:
            return left.pop(0)

    run(Counted(life.store, life.appender, life.topics, "things", 0).run_all())

    assert left == [True]


# progress


def test_progress_may_be_saved_when_the_log_it_refers_to_is_synced() -> None:
    progress = SafeProgress(0)
    progress.record(1, 100)
    progress.record(2, 200)
    progress.record(3, 300)

    assert progress.safe_at(99) == 0
    assert progress.safe_at(100) == 1
    assert not progress.is_settled(299)
    assert progress.safe_at(300) == 3
    assert progress.is_settled(0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_saved_progress_refers_only_to_synced_log_and_finally_is_the_newest(
    steps: list[tuple[int, int]],
) -> None:
    progress, end, synced = SafeProgress((0, 0)), 0, 0
    last = (0, 0)
    for number, (written, syncs) in enumerate(steps, 1):
        end += written
        last = (number, end)
        progress.record(last, end)
        synced = min(end, synced + syncs)
        before = progress.safe_at(synced)
        assert before[1] <= synced
        assert progress.safe_at(synced) >= before

    assert progress.safe_at(end) == last


def test_accepted_messages_reach_their_topic_although_the_limit_was_lowered() -> None:
    life = life_with(prepared_files=60, log_file_bytes=16_384, max_message_bytes=8_000)
    life.send(b"d" * 6_000, DELAY=1)
    life.send(b"t" * 6_000, TIMER_DELAY_SEC=2)
    life.sync()
    life.save()

    lower = Life(life.opened.reopen(max_message_bytes=4_000), life.saved)
    lower.pass_ms(5_000)

    assert lower.bodies() == [b"d" * 6_000, b"t" * 6_000]
    with pytest.raises(InvalidMessage, match="max_message_bytes = 4000"):
        lower.send(b"n" * 6_000)


def test_a_zero_byte_in_the_properties_does_not_prevent_delivery() -> None:
    life = life_with(prepared_files=60, log_file_bytes=1 << 20, queue_file_entries=2_000)
    for number in range(600):
        life.send(b"%d" % number, DELAY=1, own="a\0b")

    life.pass_ms(1_000)

    assert life.bodies() == [b"%d" % number for number in range(600)]
    assert {message.properties["own"] for message in life.got()} == {"a\0b"}
    assert life.delays.undeliverable == 0
