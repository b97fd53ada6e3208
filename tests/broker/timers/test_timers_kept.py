"""Timed messages over a stop: retention, rolling and saved progress."""

import asyncio
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.life import Life, TickingClock, life_with, with_timer
from tests.golden import needs_golden
from tests.store.golden_store import restore
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore

from pocketmq.broker.delivery.timer_progress import TimerCheck, TimerProgress
from pocketmq.broker.delivery.timers import Timers
from pocketmq.broker.messages import Appender
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.store.message_store import MessageStore
from pocketmq.testing import FakeClock, run
from pocketmq.testing.fake_clock import START_MS

HOUR_MS = 3_600_000


# retention


def test_a_message_is_stored_again_before_retention_deletes_it() -> None:
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


def test_rolling_runs_in_batches_and_only_for_old_messages() -> None:
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


def test_messages_lost_with_the_log_are_logged_when_due(caplog: pytest.LogCaptureFixture) -> None:
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
    assert life.timers.undeliverable == 1
    assert "no longer in the log" in caplog.text


@pytest.mark.parametrize("is_there_again", [False, True])
def test_a_message_of_a_deleted_topic_is_logged_and_not_rolled(
    is_there_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    life = life_with(retention_hours=3, log_file_bytes=512 * 1024, prepared_files=8)
    life.send(b"of the past", "Deleted", TIMER_DELAY_SEC=9 * 3600)
    life.send(b"kept", TIMER_DELAY_SEC=9 * 3600)
    life.run()
    life.store.delete_topic("Deleted")
    if is_there_again:
        life.topics.add("Deleted")

    life.pass_ms(2 * HOUR_MS)

    left = 1 + is_there_again
    assert (life.timers.rolled, life.timers.undeliverable, len(life.timers)) == (left, 2 - left, left)
    assert ("its topic Deleted was deleted while it waited" in caplog.text) is not is_there_again
    life.pass_ms(7 * HOUR_MS)
    assert life.bodies() == [b"kept"]
    assert life.bodies("Deleted") == [b"of the past"] * is_there_again


def test_messages_lost_before_rolling_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    life = life_with(retention_hours=3, log_file_bytes=512 * 1024, prepared_files=8)
    life.send(b"lost", TIMER_DELAY_SEC=9 * 3600)
    for _ in range(4):
        life.send(bytes(400_000), "Other")
    life.send(b"kept", TIMER_DELAY_SEC=9 * 3600)
    life.run()
    life.opened.queue(TIMER_TOPIC).min_offset = 1

    life.pass_ms(2 * HOUR_MS)

    assert (life.timers.rolled, life.timers.undeliverable, len(life.timers)) == (1, 1, 1)
    assert "1 timed messages are lost" in caplog.text
    life.pass_ms(7 * HOUR_MS)
    assert life.bodies() == [b"kept"]


def test_rolling_with_a_missing_queue_file_loses_no_message() -> None:
    life = life_with(retention_hours=3)
    for number in range(25):
        life.send(b"%d" % number, TIMER_DELAY_SEC=9 * 3600)
    life = life.restart()
    life.opened.disk.unlink(ROOT / f"consumequeue/{TIMER_TOPIC}/0/{200:020d}")
    life.run()

    life.pass_ms(2 * HOUR_MS)
    assert life.timers.rolled == 25
    life.pass_ms(7 * HOUR_MS)

    assert sorted(life.bodies(), key=int) == [b"%d" % number for number in range(25)]


# keeping


def test_after_a_kill_only_deliveries_since_the_last_save_are_repeated() -> None:
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


def test_after_a_kill_within_a_second_the_rest_of_the_second_is_delivered() -> None:
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


def test_deliveries_that_a_power_loss_undid_are_repeated_although_progress_was_saved() -> None:
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


def test_stopping_waits_until_all_progress_may_be_saved() -> None:
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


def test_a_long_wait_does_not_repeat_delivered_messages() -> None:
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


def test_progress_of_another_log_is_ignored() -> None:
    life = Life()
    life.send(TIMER_DELAY_SEC=1)

    life.timers.load(TimerProgress(oldest=10**9, read_to=10**9))
    life.pass_ms(1000)

    assert life.bodies() == [b"body"]


def test_a_store_without_timed_messages_delivers_nothing() -> None:
    life = Life()

    life.timers.load(TimerProgress(oldest=0, read_to=0))

    assert not life.timers.run()
    assert not life.timers.is_changed


def test_runtime_info_has_the_progress_of_timers() -> None:
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
    """The number of messages that our timers deliver in a store of an Apache broker."""
    store = MessageStore(restore("5.3.3", kind, folder), store_host=HOST, post=lambda callback: callback())
    with store:
        clock, in_use = FakeClock(start_ms=1_794_740_000_000), SettingsInUse(BrokerSettings())
        timers = Timers(store, Appender(store, in_use, clock), (), in_use, clock)
        timers.load(None, check)
        while timers.run():
            pass
        return timers.delivered


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
def test_messages_that_an_apache_broker_delivered_are_not_repeated(kind: str, tmp_path: Path) -> None:
    restore("5.3.3", kind, tmp_path / "look")
    check = TimerCheck.parse((tmp_path / "look/config/timercheck").read_bytes())

    assert _timers_of(tmp_path / "with", kind, check) == 0
    assert _timers_of(tmp_path / "without", kind, None) == 1
    assert _timers_of(tmp_path / "earlier", kind, TimerCheck(0, 0)) == 1
    assert _timers_of(tmp_path / "unread", kind, check._replace(queue_offset=0)) == 1


def test_switched_off_timers_still_deliver_waiting_messages(caplog: pytest.LogCaptureFixture) -> None:
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
def test_timed_messages_are_never_early_lost_or_recalled_and_duplicated_only_after_a_crash(
    events: list[tuple[str, int]],
) -> None:
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
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.lists(st.integers(1, 6), max_size=12), st.booleans())
def test_rolling_does_not_change_the_delivered_messages(hours: list[int], passes: list[int], restarts: bool) -> None:
    life = life_with(retention_hours=3, disk_clean_ratio=1e-9)
    got: dict[int, bytes] = {}
    for number, wait in enumerate(hours):
        life.send(b"%d" % number, TIMER_DELAY_SEC=wait * 3600)

    for wait in [*passes, *[1] * 13]:
        life.send(bytes(3900), "Other")  # in a file of its own: those before it may go
        life.sync()
        life.pass_ms(wait * HOUR_MS)
        if restarts:
            life = life.restart()
        for message in life.got():
            assert message.store_ms >= START_MS + hours[int(message.body)] * HOUR_MS
            got[message.queue_offset] = message.body

    assert sorted(got.values(), key=int) == [b"%d" % number for number in range(len(hours))]
