"""Timed messages: never early, none lost, none twice; over restarts, crashes, clock steps and retention."""

import asyncio
import errno
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.life import MOVES, Life, TickingClock, life_with, with_timer
from tests.golden import captured, needs_golden
from tests.store.golden_store import restore
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore

from pocketmq.broker.appending import Appender
from pocketmq.broker.moving import MoveLimits
from pocketmq.broker.settings import BrokerSettings, SettingsInUse, TimerSettings
from pocketmq.broker.timers import TimerCheck, TimerProgress, Timers
from pocketmq.codes import RequestCode
from pocketmq.errors import SystemBusy
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.protocol.record import decode_records
from pocketmq.store.message_store import MessageStore
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
def test_a_message_is_delivered_when_the_second_in_which_it_is_due_is_over(
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
def test_what_apache_delivered_has_the_same_properties_as_what_we_deliver() -> None:
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


def test_the_second_of_several_messages_keeps_the_order_in_which_they_came() -> None:
    life = Life()
    for number in range(10):
        life.send(b"%d" % number, TIMER_DELAY_SEC=1 + (number % 2))
    life.pass_ms(3000)

    assert life.bodies() == [b"0", b"2", b"4", b"6", b"8", b"1", b"3", b"5", b"7", b"9"]


def test_a_broker_that_was_away_delivers_what_became_due_meanwhile() -> None:
    life = Life()
    life.send(b"late", TIMER_DELAY_SEC=10)
    life.send(b"later", TIMER_DELAY_SEC=100)
    life = life.restart()

    life.clock.advance_ms(50_000)
    life.run()

    assert life.bodies() == [b"late"]


def test_another_precision_counts_from_the_next_message_on() -> None:
    life = Life(timer=TimerSettings(precision_ms=100))
    life.send(TIMER_DELAY_MS=250)

    life.pass_ms(299)
    assert life.bodies() == []
    life.pass_ms(1)
    assert life.bodies() == [b"body"]


# the clock is set


def test_a_clock_that_is_set_forward_makes_due_what_waits() -> None:
    life = Life()
    life.send(TIMER_DELAY_SEC=3600)

    life.clock.step_ms(HOUR_MS)
    life.run()

    assert life.bodies() == [b"body"]


def test_a_clock_that_is_set_back_holds_messages_back_and_loses_none_over_a_restart() -> None:
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


def test_a_recalled_message_is_not_delivered_and_others_are() -> None:
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


def test_a_recall_of_what_is_delivered_already_changes_nothing() -> None:
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


def test_a_batch_is_limited_in_bytes_and_a_larger_message_goes_alone() -> None:
    life = Life(OpenStore.small(log_file_bytes=64 * 1024), moves=MoveLimits(batch_bytes=1200))
    for size in (300, 300, 300, 2000, 300):
        life.send(bytes(size), TIMER_DELAY_SEC=1)
    life.clock.advance_ms(1000)
    before = life.opened.disk.position

    life.run()

    assert [len(body) for body in life.bodies()] == [300, 300, 300, 2000, 300]
    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"] * 4


def test_a_run_ends_when_its_time_is_up() -> None:
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


def test_running_out_delivers_all() -> None:
    clock = TickingClock(look_ms=20)
    life = Life(OpenStore.small(clock=clock, log_file_bytes=256 * 1024))
    for _ in range(20):
        life.send(TIMER_DELAY_SEC=1)
    clock.advance_ms(2000)

    run(life.timers.run_all())

    assert len(life.bodies()) == 20


def test_more_messages_than_may_wait_are_refused_and_recalls_are_not() -> None:
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


def test_a_disk_that_refuses_leaves_everything_for_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
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
    assert "timed messages wait for the store, nothing is lost" in caplog.text


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02",
        "TIMER_OUT_MS\x011\x02",
        f"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01{TIMER_TOPIC}\x02REAL_QID\x010\x02",
    ],
)
def test_what_a_stranger_put_into_the_topic_is_told_and_passed_over(
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


def test_a_damaged_record_is_told_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    place = life.send(b"broken", TIMER_DELAY_SEC=1)
    life.send(b"sound", TIMER_DELAY_SEC=1)
    with life.opened.disk.open(ROOT / f"commitlog/{0:020d}") as file:
        file.write_at(place.log_offset + 88, b"X")

    life.pass_ms(1000)

    assert life.bodies() == [b"sound"]
    assert "checksum" in caplog.text
    assert life.timers.passed_over == 1


def test_a_queue_file_that_is_missing_is_passed_over() -> None:
    life = Life()
    for number in range(25):
        life.send(b"%d" % number, TIMER_DELAY_SEC=10)
    life = life.restart()
    life.opened.disk.unlink(ROOT / f"consumequeue/{TIMER_TOPIC}/0/{200:020d}")

    life.pass_ms(10_000)

    assert life.bodies() == [b"%d" % number for number in (*range(10), *range(20, 25))]


# retention


def test_a_message_is_stored_anew_before_retention_takes_it() -> None:
    life = life_with(retention_hours=3)
    life.send(b"long", TIMER_DELAY_SEC=9 * 3600, UNIQ_KEY="L")
    life.send(b"recalled", TIMER_DELAY_SEC=9 * 3600, UNIQ_KEY="R")
    life.send(b"0", TIMER_DELIVER_MS=START_MS + 9 * HOUR_MS - 999, UNIQ_KEY="R", TIMER_DEL_UNIQKEY="T+R")
    life.send(b"short", TIMER_DELAY_SEC=3600)

    life.pass_ms(HOUR_MS)
    assert life.bodies() == [b"short"]
    life.pass_ms(HOUR_MS)
    assert life.timers.rolled == 3
    life.pass_ms(HOUR_MS)
    assert life.timers.rolled == 3
    life = life.restart()
    for _ in range(12):
        life.pass_ms(HOUR_MS // 2 - 1)
    assert life.bodies() == [b"short"]
    life.pass_ms(60_000)

    assert life.bodies() == [b"short", b"long"]
    (message,) = life.got()[1:]
    assert int(message.properties["TIMER_ROLL_TIMES"]) >= 3
    assert message.properties["TIMER_ENQUEUE_MS"] == str(START_MS)
    assert len(life.timers) == 0
    assert life.timers.recalled == 1


def test_rolling_goes_in_batches_and_only_where_it_must() -> None:
    life = life_with(retention_hours=3, log_file_bytes=64 * 1024)
    for number in range(11):
        life.send(b"old %d" % number, TIMER_DELAY_SEC=9 * 3600)
    life.pass_ms(HOUR_MS)
    for number in range(5):
        life.send(b"new %d" % number, TIMER_DELAY_SEC=9 * 3600)
    life.clock.advance_ms(HOUR_MS)

    assert life.timers.run()
    assert life.timers.rolled == 4
    life.run()
    assert life.timers.rolled == 11
    assert len(life.timers) == 16
    life.pass_ms(8 * HOUR_MS)

    assert sorted(life.bodies()) == sorted([b"old %d" % n for n in range(11)] + [b"new %d" % n for n in range(5)])


def test_a_kill_between_rolling_and_saving_delivers_all() -> None:
    life = life_with(retention_hours=3)
    for number in range(5):
        life.send(b"%d" % number, TIMER_DELAY_SEC=9 * 3600)
    life.run()
    life.sync()
    life.save()
    life.pass_ms(2 * HOUR_MS)
    assert life.timers.rolled == 5

    life = life.crash()
    life.pass_ms(8 * HOUR_MS)

    assert set(life.bodies()) == {b"0", b"1", b"2", b"3", b"4"}


def test_messages_that_the_log_lost_are_told_when_they_are_due(caplog: pytest.LogCaptureFixture) -> None:
    life = life_with(disk_clean_ratio=0.1, disk_force_ratio=0.1, disk_full_ratio=1.0, log_file_bytes=4096)
    life.send(b"lost", TIMER_DELAY_SEC=3600)
    life.run()
    life.send(bytes(3900))
    life.send(b"kept", TIMER_DELAY_SEC=3600)
    life.sync()
    life.opened.disk.resize(8192)
    life.opened.tick(20_000)
    life.opened.disk.resize(None)
    assert life.store.min_offset(TIMER_TOPIC, 0) == 1

    life.pass_ms(HOUR_MS)

    assert life.bodies()[-1] == b"kept"
    assert life.timers.passed_over == 1
    assert "not in the log any more" in caplog.text


def test_rolling_tells_what_the_log_lost_before_it_could_be_rolled(caplog: pytest.LogCaptureFixture) -> None:
    life = life_with(retention_hours=3, log_file_bytes=512 * 1024, prepared_files=8)
    life.send(b"lost", TIMER_DELAY_SEC=9 * 3600)
    for _ in range(4):
        life.send(bytes(400_000), "Other")
    life.send(b"kept", TIMER_DELAY_SEC=9 * 3600)
    life.run()
    life.opened.queue(TIMER_TOPIC).min_offset = 1

    life.pass_ms(2 * HOUR_MS)

    assert (life.timers.rolled, life.timers.passed_over, len(life.timers)) == (1, 1, 1)
    assert "1 are lost" in caplog.text
    life.pass_ms(7 * HOUR_MS)
    assert life.bodies() == [b"kept"]


def test_rolling_goes_past_a_queue_file_that_is_missing() -> None:
    life = life_with(retention_hours=3)
    for number in range(25):
        life.send(b"%d" % number, TIMER_DELAY_SEC=9 * 3600)
    life = life.restart()
    life.opened.disk.unlink(ROOT / f"consumequeue/{TIMER_TOPIC}/0/{200:020d}")
    life.run()

    life.pass_ms(2 * HOUR_MS)
    assert life.timers.rolled == 15
    life.pass_ms(7 * HOUR_MS)

    assert sorted(life.bodies(), key=int) == [b"%d" % number for number in (*range(10), *range(20, 25))]


# keeping


def test_after_a_kill_only_what_was_delivered_since_the_last_save_comes_again() -> None:
    life = Life()
    for number in range(6):
        life.send(b"%d" % number, TIMER_DELAY_SEC=1 + number // 3)
    life.pass_ms(1000)
    life.sync()
    life.save()
    life.pass_ms(1000)

    life = life.crash()
    life.run()

    assert life.bodies() == [b"0", b"1", b"2", b"3", b"4", b"5", b"3", b"4", b"5"]


def test_a_kill_in_the_middle_of_a_second_goes_on_in_the_middle() -> None:
    clock = TickingClock(look_ms=20)
    life = Life(OpenStore.small(clock=clock, log_file_bytes=256 * 1024))
    for number in range(12):
        life.send(b"%d" % number, TIMER_DELAY_SEC=30)
    life.timers.run()
    clock.advance_ms(31_000)
    life.timers.run()
    life.sync()
    life.save()
    delivered = len(life.bodies())
    assert 0 < delivered < 12

    life = life.crash()
    life.run()

    assert life.bodies() == [b"%d" % number for number in range(12)]


def test_what_a_power_loss_took_back_is_delivered_again_though_progress_was_saved_often() -> None:
    life = Life()
    life.send(b"1", TIMER_DELAY_SEC=1)
    life.run()
    life.sync()
    life.save()
    before = dict(life.saved)
    life.clock.advance_ms(1000)
    life.run()
    assert life.bodies() == [b"1"]

    life.save()
    assert life.saved == before
    life = life.crash("nothing")
    assert life.bodies() == []
    life.run()

    assert life.bodies() == [b"1"]


def test_settling_waits_until_all_progress_may_be_saved() -> None:
    life = Life()
    life.send(TIMER_DELAY_SEC=1)
    life.clock.advance_ms(1000)
    life.run()
    changed = [life.timers.is_changed]

    async def main() -> None:
        settling = asyncio.create_task(life.timers.settle())
        await asyncio.sleep(0)
        assert not settling.done()
        life.opened.run_workers()
        await settling
        await life.timers.settle()

    run(main())

    changed.append(life.timers.is_changed)
    life.save()
    changed.append(life.timers.is_changed)
    assert changed == [False, True, False]


def test_a_long_wait_does_not_make_delivered_messages_come_again() -> None:
    life = life_with(log_file_bytes=64 * 1024)
    life.send(b"long", TIMER_DELAY_SEC=3600)
    for number in range(30):
        life.send(b"%d" % number, TIMER_DELAY_SEC=1)
        life.pass_ms(400)
    life.pass_ms(1000)

    life = life.restart()
    life.pass_ms(1000)
    assert len(life.bodies()) == 30
    life.pass_ms(HOUR_MS)

    assert life.bodies() == [*(b"%d" % number for number in range(30)), b"long"]


def test_progress_of_another_log_counts_for_nothing() -> None:
    life = Life()
    life.send(TIMER_DELAY_SEC=1)

    life.timers.load(TimerProgress(oldest=10**9, read_to=10**9))
    life.pass_ms(1000)

    assert life.bodies() == [b"body"]


def test_a_store_without_timed_messages_has_nothing_to_do() -> None:
    life = Life()

    life.timers.load(TimerProgress(oldest=0, read_to=0))

    assert not life.timers.run()
    assert not life.timers.is_changed


def test_runtime_info_tells_how_far_timers_are() -> None:
    life = Life()
    for number in range(4):
        life.send(TIMER_DELAY_SEC=1 + number)
    assert life.timers.runtime_info() == {
        "timerReadBehind": "0",
        "timerOffsetBehind": "4",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }
    life.pass_ms(2000)
    life.clock.advance_ms(8000)

    assert life.timers.runtime_info() == {
        "timerReadBehind": "7",
        "timerOffsetBehind": "0",
        "timerCongestNum": "2",
        "timerEnqueueTps": "0.4",
        "timerDequeueTps": "0.2",
    }


def _timers_of(folder: Path, kind: str, check: TimerCheck | None) -> int:
    """How many messages our timers deliver in a store that an Apache broker left."""
    store = MessageStore(restore("5.3.3", kind, folder), store_host=HOST, post=lambda callback: callback())
    with store:
        clock, in_use = FakeClock(start_ms=1_794_740_000_000), SettingsInUse(BrokerSettings())
        timers = Timers(store, Appender(store, in_use, clock), in_use, clock)
        timers.load(None, check)
        while timers.run():
            pass
        return timers.delivered


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
def test_what_an_apache_broker_has_delivered_is_not_delivered_again(kind: str, tmp_path: Path) -> None:
    restore("5.3.3", kind, tmp_path / "look")
    check = TimerCheck.parse((tmp_path / "look/config/timercheck").read_bytes())

    assert _timers_of(tmp_path / "with", kind, check) == 0
    assert _timers_of(tmp_path / "without", kind, None) == 1
    assert _timers_of(tmp_path / "earlier", kind, TimerCheck(0, 0)) == 1
    assert _timers_of(tmp_path / "unread", kind, check._replace(queue_offset=0)) == 1


def test_timers_that_were_switched_off_still_deliver_what_waits(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.send(TIMER_DELAY_SEC=1)
    with_timer(life, enabled=False)

    with caplog.at_level(logging.ERROR):
        life.pass_ms(1000)

    assert life.bodies() == [b"body"]
    assert caplog.records == []


# promises

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 12_000)),
        st.tuples(st.just("send"), st.integers(1, 3_000)),
        st.tuples(st.just("recall"), st.integers(0, 30)),
        st.tuples(st.just("pass"), st.integers(1, 4000)),
        st.tuples(st.just("step"), st.integers(-20_000, 20_000)),
        st.tuples(st.just("save"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("power loss"), st.integers(0, 99)),
    ),
    max_size=30,
)


@settings(max_examples=80)
@given(EVENTS)
def test_never_early_never_lost_never_recalled_and_once_unless_there_was_a_crash(events: list[tuple[str, int]]) -> None:
    life = Life()
    due: dict[bytes, int] = {}
    recalled: set[bytes] = set()
    seen = 0
    crashed = False
    for kind, number in [*events, *[("pass", 9000)] * 9]:
        match kind:
            case "send":
                body = b"%d" % len(due)
                due[body] = life.clock.now_ms() + number
                life.send(body, TIMER_DELAY_MS=number, UNIQ_KEY=body.decode())
                life.sync()
            case "recall":
                body = b"%d" % number
                if body in due and due[body] > life.clock.now_ms() + 1000 and body not in life.bodies():
                    out_ms = (due[body] - 1) // 1000 * 1000
                    life.send(b"0", TIMER_DELIVER_MS=out_ms + 1, UNIQ_KEY=number, TIMER_DEL_UNIQKEY=f"T+{number}")
                    life.sync()
                    recalled.add(body)
            case "pass":
                life.pass_ms(number)
            case "step":
                life.clock.step_ms(number)
            case "save":
                life.sync()
                life.save()
            case "restart":
                life = life.restart()
            case _:
                life.run()
                crashed = True
                life = life.crash("everything" if kind == "kill" else "any", number)
                seen = len(life.bodies())
        got = life.bodies()
        assert all(due[body] <= life.clock.now_ms() for body in got[seen:])
        if kind != "step":
            seen = len(got)

    got = life.bodies()
    assert set(got) == set(due) - recalled
    assert crashed or len(got) == len(set(got))
    assert len(life.timers) == 0


@settings(max_examples=20)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.lists(st.integers(1, 2), max_size=12), st.booleans())
def test_rolling_changes_nothing_of_what_is_delivered(hours: list[int], passes: list[int], restarts: bool) -> None:
    life = life_with(retention_hours=3)
    got: dict[int, bytes] = {}
    for number, wait in enumerate(hours):
        life.send(b"%d" % number, TIMER_DELAY_SEC=wait * 3600)

    for wait in [*passes, *[2] * 13]:
        life.pass_ms(wait * HOUR_MS // 2)
        if restarts:
            life = life.restart()
        for message in life.got():
            assert message.store_ms >= START_MS + hours[int(message.body)] * HOUR_MS
            got[message.queue_offset] = message.body

    assert sorted(got.values(), key=int) == [b"%d" % number for number in range(len(hours))]
