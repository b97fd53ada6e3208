"""Timed messages: never early, lost or duplicated, with clock steps, recalls and failures."""

import errno

import pytest
from tests.broker.life import MOVES, Life, TickingClock, life_with
from tests.golden import captured, needs_golden
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore

from pocketmq.broker.delivery.forwarding import ForwardLimits
from pocketmq.broker.settings import TimerSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import SystemBusy
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.protocol.record import decode_records
from pocketmq.testing import FakeClock, FaultyFiles, run
from pocketmq.testing.fake_clock import START_MS

HOUR_MS = 3_600_000


# when


@pytest.mark.parametrize(
    ("sent_at_ms", "wait_ms", "delivered_at_ms"),
    [
        (0, 1, 1000),
        (0, 999, 1000),
        (0, 1000, 1000),
        (0, 1001, 2000),
        (526, 2000, 3000),
        (500, 500, 1000),
        (999, 1, 1000),
    ],
)
def test_a_message_is_delivered_after_the_second_in_which_it_is_due(
    sent_at_ms: int, wait_ms: int, delivered_at_ms: int
) -> None:
    life = Life()
    life.clock.advance_ms(sent_at_ms)
    life.send(TIMER_DELAY_MS=wait_ms)

    life.pass_ms(delivered_at_ms - sent_at_ms - 1)
    assert life.bodies() == []

    life.pass_ms(1)
    assert life.bodies() == [b"body"]
    life.pass_ms(HOUR_MS)
    assert life.bodies() == [b"body"]


@needs_golden
def test_delivered_messages_have_the_same_properties_as_with_apache() -> None:
    answers = [
        frame.command for frame in captured("wire/5.3.3/json/timer.jsonl") if frame.answers == RequestCode.PULL_MESSAGE
    ]
    theirs = [message for answer in answers if answer.body for message in decode_records(answer.body)]
    timed = [message for message in theirs if "TIMER_OUT_MS" in message.properties]
    assert len(timed) == 3
    added = {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_TOPIC", "REAL_QID"}

    for message in timed:
        clock = FakeClock(start_ms=message.born_ms)
        life = life_with(FaultyFiles(clock=clock), clock)
        sent = {name: value for name, value in message.properties.items() if name not in added}
        life.send(message.body, message.topic, message.queue_id, **sent)
        life.pass_ms(int(message.properties["TIMER_DEQUEUE_MS"]) - message.born_ms)

        (ours,) = life.got(message.topic, message.queue_id)
        assert ours.properties == message.properties
        assert (ours.body, ours.sys_flag, ours.reconsume_times) == (message.body, message.sys_flag, 0)


def test_messages_due_in_the_same_second_keep_their_order() -> None:
    life = Life()
    for number in range(10):
        life.send(b"%d" % number, TIMER_DELAY_SEC=1 + (number % 2))
    life.pass_ms(3000)

    assert life.bodies() == [b"0", b"2", b"4", b"6", b"8", b"1", b"3", b"5", b"7", b"9"]


def test_a_broker_that_was_stopped_delivers_what_became_due() -> None:
    life = Life()
    life.send(b"late", TIMER_DELAY_SEC=10)
    life.send(b"later", TIMER_DELAY_SEC=100)
    life = life.restart()

    life.clock.advance_ms(50_000)
    life.run()

    assert life.bodies() == [b"late"]


def test_another_precision_applies_from_the_next_message_on() -> None:
    life = Life(timer=TimerSettings(precision_ms=100))
    life.send(TIMER_DELAY_MS=250)

    life.pass_ms(299)
    assert life.bodies() == []
    life.pass_ms(1)
    assert life.bodies() == [b"body"]


# the clock is set


def test_a_clock_that_is_set_forward_makes_waiting_messages_due() -> None:
    life = Life()
    life.send(TIMER_DELAY_SEC=3600)

    life.clock.step_ms(HOUR_MS)
    life.run()

    assert life.bodies() == [b"body"]


def test_a_clock_that_is_set_back_delays_messages_and_loses_none_over_a_restart() -> None:
    life = Life()
    life.send(b"first", TIMER_DELAY_SEC=1)
    life.pass_ms(1000)
    life.clock.step_ms(-HOUR_MS)
    life.send(b"second", TIMER_DELAY_SEC=5)
    life.pass_ms(4999)
    assert life.bodies() == [b"first"]

    life = life.restart()
    life.pass_ms(0)
    assert life.bodies() == [b"first"]
    life.pass_ms(1)
    assert life.bodies() == [b"first", b"second"]

    life = life.restart()
    life.pass_ms(2 * HOUR_MS)
    assert life.bodies() == [b"first", b"second"]


# recalls


def test_only_the_recalled_message_is_not_delivered() -> None:
    life = Life()
    life.send(b"kept", TIMER_DELAY_SEC=4, UNIQ_KEY="A")
    life.send(b"recalled", TIMER_DELAY_SEC=4, UNIQ_KEY="B")
    life.send(b"of another topic", "U", TIMER_DELAY_SEC=4, UNIQ_KEY="B")

    life.send(b"0", TIMER_DELIVER_MS=START_MS + 3001, UNIQ_KEY="B", TIMER_DEL_UNIQKEY="T+B")
    life.pass_ms(4000)

    assert life.bodies() == [b"kept"]
    assert life.bodies("U") == [b"of another topic"]
    assert (life.timers.recalled, life.timers.delivered, len(life.timers)) == (1, 2, 0)


def test_a_recall_survives_a_restart() -> None:
    life = Life()
    life.send(b"recalled", TIMER_DELAY_SEC=4, UNIQ_KEY="B")
    life.send(b"0", TIMER_DELIVER_MS=START_MS + 3001, UNIQ_KEY="B", TIMER_DEL_UNIQKEY="T+B")
    life.run()

    life = life.restart()
    life.pass_ms(5000)

    assert life.bodies() == []
    assert life.timers.recalled == 1


def test_a_recall_of_a_delivered_message_changes_nothing() -> None:
    life = Life()
    life.send(b"delivered", TIMER_DELAY_SEC=1, UNIQ_KEY="B")
    life.pass_ms(1000)

    life.send(b"0", TIMER_DELAY_SEC=1, UNIQ_KEY="B", TIMER_DEL_UNIQKEY="T+B")
    life.send(b"another", TIMER_DELAY_SEC=2, UNIQ_KEY="B")
    life.pass_ms(2000)

    assert life.bodies() == [b"delivered", b"another"]


# limits


def test_a_batch_is_one_write() -> None:
    life = life_with(log_file_bytes=64 * 1024)
    for _ in range(12):
        life.send(TIMER_DELAY_SEC=1)
    life.clock.advance_ms(1000)
    before = life.opened.disk.position

    assert not life.timers.run()

    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"] * 3
    assert MOVES.batch_messages == 4


def test_a_batch_has_a_byte_limit_and_a_larger_message_is_a_batch_of_its_own() -> None:
    life = Life(OpenStore.small(log_file_bytes=64 * 1024), forwards=ForwardLimits(batch_bytes=1200))
    for size in (300, 300, 300, 2000, 300):
        life.send(bytes(size), TIMER_DELAY_SEC=1)
    life.clock.advance_ms(1000)
    before = life.opened.disk.position

    life.run()

    assert [len(body) for body in life.bodies()] == [300, 300, 300, 2000, 300]
    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"] * 4


def test_a_run_ends_at_its_time_limit() -> None:
    clock = TickingClock(look_ms=5)
    life = Life(OpenStore.small(clock=clock, log_file_bytes=256 * 1024))
    for _ in range(60):
        life.send(TIMER_DELAY_SEC=1)
    clock.advance_ms(2000)

    counts = []
    while life.timers.run():
        counts.append(len(life.bodies()))

    assert len(counts) > 5
    assert len(life.bodies()) == 60


def test_delivering_everything_leaves_no_due_message() -> None:
    clock = TickingClock(look_ms=20)
    life = Life(OpenStore.small(clock=clock, log_file_bytes=256 * 1024))
    for _ in range(20):
        life.send(TIMER_DELAY_SEC=1)
    clock.advance_ms(2000)

    run(life.timers.run_all())

    assert len(life.bodies()) == 20


def test_messages_above_the_limit_are_refused_and_recalls_are_not() -> None:
    life = Life(max_waiting=3)
    for _ in range(3):
        life.send(TIMER_DELAY_SEC=1, UNIQ_KEY="A")
    life.run()

    with pytest.raises(SystemBusy, match="flow control"):
        life.send(TIMER_DELAY_SEC=1)
    life.send(b"0", TIMER_DELAY_SEC=1, TIMER_DEL_UNIQKEY="T+A")
    life.send(b"at once")
    life.send(b"delayed", DELAY=1)
    life.pass_ms(1000)
    life.send(b"again", TIMER_DELAY_SEC=1)
    life.pass_ms(1000)

    assert life.bodies() == [b"at once", b"delayed", b"again"]


# what stands in the way


def test_a_disk_that_rejects_writes_leaves_everything_for_the_next_run(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.send(b"1", TIMER_DELAY_SEC=1)
    life.send(b"2", TIMER_DELAY_SEC=1, UNIQ_KEY="B")
    life.send(b"0", TIMER_DELAY_SEC=1, TIMER_DEL_UNIQKEY="T+B")
    life.clock.advance_ms(1000)
    life.opened.disk.fail("write", errno.ENOSPC)

    life.timers.run()
    assert life.bodies() == []
    assert life.timers.recalled == 0
    life.opened.tick(500)
    life.run()

    assert life.bodies() == [b"1"]
    assert life.timers.recalled == 1
    assert "Delivery of timed messages is paused and will be retried" in caplog.text


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02",
        "TIMER_OUT_MS\x011\x02",
        f"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01{TIMER_TOPIC}\x02REAL_QID\x010\x02",
    ],
)
def test_foreign_messages_in_the_topic_are_logged_and_skipped(
    properties: str, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life()
    life.send(b"1", TIMER_DELAY_SEC=1)
    life.opened.send(b"strange", topic=TIMER_TOPIC, properties=properties)
    life.send(b"2", TIMER_DELAY_SEC=1)

    life.pass_ms(1000)
    life = life.restart()
    life.pass_ms(1000)

    assert life.bodies() == [b"1", b"2"]
    assert [record.levelname for record in caplog.records if record.name == "pocketmq.broker"] == ["ERROR"]


def test_a_damaged_record_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    place = life.send(b"broken", TIMER_DELAY_SEC=1)
    life.send(b"sound", TIMER_DELAY_SEC=1)
    with life.opened.disk.open(ROOT / f"commitlog/{0:020d}") as file:
        file.write_at(place.log_offset + 88, b"X")

    life.pass_ms(1000)

    assert life.bodies() == [b"sound"]
    assert "checksum" in caplog.text
    assert life.timers.undeliverable == 1


def test_a_missing_queue_file_loses_no_message() -> None:
    life = Life()
    for number in range(25):
        life.send(b"%d" % number, TIMER_DELAY_SEC=10)
    life = life.restart()
    life.opened.disk.unlink(ROOT / f"consumequeue/{TIMER_TOPIC}/0/{200:020d}")

    life.pass_ms(10_000)

    assert life.bodies() == [b"%d" % number for number in range(25)]
