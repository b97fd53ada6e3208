"""Delayed messages: when each level delivers, in which order, what survives a restart, and what can fail."""

import asyncio
import errno
import logging
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.life import MOVES, Life, TickingClock, life_with
from tests.golden import GOLDEN, captured, needs_golden
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore

from pocketmq.broker.delivery.forwarding import ForwardLimits
from pocketmq.codes import RequestCode, SysFlag
from pocketmq.model.delay import DELAY_LEVELS, DelayLevels
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.protocol.bodies.topics import DataVersion, DelayOffsets
from pocketmq.protocol.record import decode_records
from pocketmq.testing import FakeClock, FaultyFiles, run

# when


@pytest.mark.parametrize("level", range(1, len(DELAY_LEVELS) + 1))
def test_a_level_delivers_after_its_delay_and_not_before(level: int) -> None:
    life = Life()
    life.send(DELAY=level)

    life.pass_ms(DELAY_LEVELS.ms(level) - 1)
    assert life.bodies() == []

    life.pass_ms(1)
    assert life.bodies() == [b"body"]

    life.pass_ms(10_000_000)
    assert life.bodies() == [b"body"]


def test_a_delivered_message_equals_the_sent_one_in_every_field() -> None:
    life = Life()
    draft = life.draft(b"\x00body", "Orders", 3, DELAY=1, TAGS="A", KEYS="k", UNIQ_KEY="U", own="value")
    draft.flag, draft.reconsume_times, draft.sys_flag = 7, 2, SysFlag.COMPRESSED
    life.appender.append(draft)
    (waiting,) = life.got(SCHEDULE_TOPIC, 0)

    life.pass_ms(1000)

    (message,) = life.got("Orders", 3)
    assert message.raw_properties == waiting.raw_properties
    assert message.properties == {
        "DELAY": "1",
        "TAGS": "A",
        "KEYS": "k",
        "UNIQ_KEY": "U",
        "own": "value",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "3",
    }
    assert (message.body, message.flag, message.reconsume_times) == (b"\x00body", 7, 2)
    assert (message.sys_flag, message.born_ms) == (SysFlag.COMPRESSED, waiting.born_ms)
    assert message.packed_born_host == waiting.packed_born_host
    assert message.store_ms == waiting.store_ms + 1000


@needs_golden
def test_delivered_messages_have_the_same_properties_as_with_apache() -> None:
    answers = [
        frame.command for frame in captured("wire/5.3.3/json/delay.jsonl") if frame.answers == RequestCode.PULL_MESSAGE
    ]
    theirs = [message for answer in answers if answer.body for message in decode_records(answer.body)]
    delayed = [message for message in theirs if message.delay_level]
    assert {message.delay_level for message in delayed} == {1, 3}
    life = Life()

    for message in delayed:
        sent = {name: value for name, value in message.properties.items() if not name.startswith("REAL_")}
        life.send(message.body, message.topic, message.queue_id, **sent)
    life.pass_ms(10_000)

    for message in delayed:
        ours = [ours for ours in life.got(message.topic, message.queue_id) if ours.body == message.body]
        assert [one.properties for one in ours] == [message.properties]
        assert [one.sys_flag for one in ours] == [message.sys_flag]


def test_the_queue_entry_of_a_delivered_message_has_the_code_of_its_tag() -> None:
    life = Life()
    life.send(DELAY=1, TAGS="TagA")

    life.pass_ms(1000)

    queue = life.opened.queue()
    assert queue.entry(0) is not None
    assert [code for _, _, code in queue.entries(0, 1)] == [2598919]


def test_a_level_above_the_table_waits_as_long_as_the_longest() -> None:
    life = life_with(delay_levels=DelayLevels("1s 2s"))
    life.send(DELAY=9)

    life.pass_ms(1999)
    assert life.bodies() == []

    life.pass_ms(1)
    assert life.bodies() == [b"body"]
    assert life.got()[0].properties["DELAY"] == "2"


# order and share


def test_each_level_keeps_the_order_of_arrival() -> None:
    life = Life()
    for number in range(30):
        life.send(b"%d" % number, DELAY=1 + number % 2)
        life.opened.tick(7)

    life.pass_ms(10_000)

    got = [int(body) for body in life.bodies()]
    assert sorted(got) == list(range(30))
    assert [number for number in got if number % 2 == 0] == list(range(0, 30, 2))
    assert [number for number in got if number % 2 == 1] == list(range(1, 30, 2))


def test_a_batch_is_one_write() -> None:
    life = life_with(log_file_bytes=64 * 1024)
    for _ in range(12):
        life.send(DELAY=1)
    life.clock.advance_ms(1000)
    before = life.opened.disk.position

    assert not life.delays.run()

    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"] * 3
    assert MOVES.batch_messages == 4


def test_a_batch_has_a_byte_limit_and_a_larger_message_is_a_batch_of_its_own() -> None:
    limits = ForwardLimits(batch_bytes=1000)
    life = Life(OpenStore.small(log_file_bytes=64 * 1024), forwards=limits)
    for size in (300, 300, 300, 2000, 300):
        life.send(bytes(size), DELAY=1)
    life.clock.advance_ms(1000)
    before = life.opened.disk.position

    life.run()

    assert [len(body) for body in life.bodies()] == [300, 300, 300, 2000, 300]
    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"] * 4


def test_a_run_ends_at_its_time_limit_and_serves_every_level() -> None:
    clock = TickingClock(look_ms=3)
    life = Life(OpenStore.small(clock=clock, log_file_bytes=256 * 1024))
    for _ in range(40):
        for level in (1, 2, 3):
            life.send(b"level %d" % level, DELAY=level)
    clock.advance_ms(10_000)

    counts = [Counter(life.bodies())]
    while life.delays.run():
        counts.append(Counter(life.bodies()))

    shares = [[count[b"level %d" % level] for level in (1, 2, 3)] for count in counts]
    assert len(shares) > 6
    assert all(max(share) - min(share) <= MOVES.batch_messages for share in shares)
    assert Counter(life.bodies()) == {b"level 1": 40, b"level 2": 40, b"level 3": 40}


def test_delivering_everything_pauses_for_other_tasks() -> None:
    clock = TickingClock(look_ms=20)
    life = Life(OpenStore.small(clock=clock, log_file_bytes=256 * 1024))
    for _ in range(20):
        life.send(DELAY=1)
    clock.advance_ms(1000)
    seen: list[int] = []

    async def main() -> None:
        async def watch() -> None:
            while len(life.bodies()) < 20:
                seen.append(len(life.bodies()))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await life.delays.run_all()
        await watching

    run(main())

    assert seen[:1] != [20]
    assert len(set(seen)) > 2


# the clock is set


def test_a_clock_that_is_set_forward_makes_waiting_messages_due() -> None:
    life = Life()
    life.send(DELAY=18)

    life.clock.step_ms(7_200_000)
    life.run()

    assert life.bodies() == [b"body"]


def test_a_clock_that_is_set_back_neither_delays_messages_nor_shortens_their_delay() -> None:
    life = Life()
    life.send(b"before", DELAY=3)
    life.pass_ms(4000)

    life.clock.step_ms(-3_600_000)
    life.run()
    life.pass_ms(2000)
    life.send(b"after", DELAY=3)
    life.pass_ms(700)

    life.pass_ms(7299)
    assert life.bodies() == []
    life.pass_ms(1)
    assert life.bodies() == [b"before"]
    life.pass_ms(1999)
    assert life.bodies() == [b"before"]
    life.pass_ms(700 + 1)
    assert life.bodies() == [b"before", b"after"]


def test_a_small_step_back_delays_by_no_more_than_a_level() -> None:
    life = Life()
    life.send(DELAY=1)

    life.clock.step_ms(-500)
    for _ in range(10):
        life.pass_ms(100)
    assert life.bodies() == []
    for _ in range(5):
        life.pass_ms(100)

    assert life.bodies() == [b"body"]


# keeping


def test_progress_continues_after_a_restart_without_duplicates() -> None:
    life = Life()
    for number in range(5):
        life.send(b"%d" % number, DELAY=1)
        life.pass_ms(300)

    life = life.restart()
    life.pass_ms(5000)

    assert life.bodies() == [b"0", b"1", b"2", b"3", b"4"]


def test_after_a_kill_only_deliveries_since_the_last_save_are_repeated() -> None:
    life = Life()
    life.send(b"1", DELAY=1)
    life.pass_ms(1000)
    life.sync()
    life.save()
    life.send(b"2", DELAY=1)
    life.pass_ms(1000)

    life = life.crash()
    life.run()

    assert life.bodies() == [b"1", b"2", b"2"]


def test_deliveries_that_a_power_loss_undid_are_repeated_although_progress_was_saved() -> None:
    life = Life()
    life.send(b"1", DELAY=1)
    life.sync()
    life.clock.advance_ms(1000)
    life.run()
    assert life.bodies() == [b"1"]

    life.save()
    assert life.saved == {}
    life = life.crash("nothing")
    assert life.bodies() == []
    life.run()

    assert life.bodies() == [b"1"]


def test_progress_is_marked_as_changed_until_it_is_saved() -> None:
    life = Life()
    changed = [life.delays.is_changed]
    life.send(DELAY=2)
    life.send(DELAY=1)
    life.clock.advance_ms(1000)
    life.run()
    changed.append(life.delays.is_changed)

    life.sync()
    changed.append(life.delays.is_changed)
    life.save()
    changed.append(life.delays.is_changed)

    assert changed == [False, False, True, False]
    saved = DelayOffsets.decode(life.saved["delayOffset.json"])
    assert saved.offset_table == {1: 1, 2: 0}
    assert saved.data_version == DataVersion(1, 0, life.clock.now_ms())
    assert life.delays.snapshot_json(0) == life.saved["delayOffset.json"]


def test_stopping_waits_until_all_progress_may_be_saved() -> None:
    life = Life()
    life.send(DELAY=1)
    life.clock.advance_ms(1000)
    life.run()

    async def main() -> None:
        settling = asyncio.create_task(life.delays.settle())
        await asyncio.sleep(0)
        assert not settling.done()
        life.opened.run_workers()
        await settling
        await life.delays.settle()

    run(main())

    assert life.delays.is_changed


@needs_golden
def test_the_file_is_the_one_that_apache_writes() -> None:
    theirs = (GOLDEN / "store/5.3.3/clean/config/delayOffset.json").read_bytes()
    life = Life()
    for _ in range(3):
        life.send(DELAY=1)

    life.delays.load(DelayOffsets.decode(theirs))

    assert life.delays.snapshot_json(0) == theirs.replace(b",18:0", b"")
    assert life.delays.progress() == {1: (3, 3)}


def test_the_answer_about_all_offsets_is_compact_json_of_current_progress() -> None:
    life = Life()
    life.send(DELAY=1)
    life.send(DELAY=3)
    life.clock.advance_ms(1000)
    life.run()

    assert life.delays.offsets_body() == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{1:1,3:0}}'
    )
    assert life.delays.progress() == {1: (1, 1), 3: (0, 1)}


def test_a_level_removed_from_the_table_is_still_emptied() -> None:
    life = Life()
    life.send(b"early", DELAY=4)
    life.pass_ms(30_000)
    life.send(b"late", DELAY=4)
    life.sync()
    life.save()

    life = Life(life.opened.reopen(delay_levels=DelayLevels("1s")), life.saved)
    life.pass_ms(30_000)

    assert life.bodies() == [b"early", b"late"]


def test_progress_of_a_deleted_log_restarts_at_the_start_of_the_new_log() -> None:
    life = Life()
    life.delays.load(DelayOffsets(offset_table={1: 1_000, -3: 5, 2: -1}))
    life.send(b"1", DELAY=1)
    life.send(b"2", DELAY=2)
    life.pass_ms(5000)
    life.send(b"3", DELAY=1)
    life.pass_ms(5000)

    assert life.bodies() == [b"1", b"2", b"3"]


# what stands in the way


def test_a_busy_store_is_retried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    life = life_with(prepared_files=1)
    life.appender.append(life.draft(bytes(1500), DELAY=1))
    life.appender.append(life.draft(bytes(1500), DELAY=1))
    life.clock.advance_ms(1000)

    with caplog.at_level(logging.INFO, "pocketmq.broker"):
        life.delays.run()
        life.delays.run()
        assert life.bodies() == []
        life.run()
        life.run()

    assert [len(body) for body in life.bodies()] == [1500, 1500]
    told = [record.levelname for record in caplog.records if record.name == "pocketmq.broker"]
    assert told == ["WARNING", "INFO"]
    assert "is paused and will be retried" in caplog.text


def test_a_disk_that_rejects_writes_leaves_everything_for_the_next_run() -> None:
    life = Life()
    life.send(b"1", DELAY=1)
    life.send(b"2", DELAY=1)
    life.clock.advance_ms(1000)
    life.opened.disk.fail("write", errno.ENOSPC)

    life.delays.run()
    assert life.bodies() == []
    life.opened.tick(500)
    life.run()

    assert life.bodies() == [b"1", b"2"]


def test_a_batch_larger_than_the_transient_pool_is_written_in_parts() -> None:
    life = Life(OpenStore.small(transient_pool=True, log_file_bytes=64 * 1024), forwards=ForwardLimits())
    for number in range(20):
        life.send(bytes([number]) * 500, DELAY=1)
    life.clock.advance_ms(1000)

    for _ in range(20):
        life.run()

    assert life.bodies() == [bytes([number]) * 500 for number in range(20)]


def test_messages_that_retention_deleted_are_skipped() -> None:
    life = Life()
    for number in range(40):
        life.send(b"%d" % number * 50, DELAY=1)
    queue = life.opened.queue(SCHEDULE_TOPIC)
    queue.min_offset = 30
    life.pass_ms(1000)

    assert life.bodies() == [b"%d" % number * 50 for number in range(30, 40)]


def test_a_missing_queue_file_loses_no_message() -> None:
    life = Life()
    for number in range(25):
        life.send(b"%d" % number, DELAY=1)
    life = life.restart()
    life.opened.disk.unlink(ROOT / f"consumequeue/{SCHEDULE_TOPIC}/0/{200:020d}")

    life.pass_ms(1000)

    assert life.bodies() == [b"%d" % number for number in range(25)]


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x011\x02",
        "DELAY\x011\x02REAL_TOPIC\x01T\x02",
        "DELAY\x011\x02REAL_TOPIC\x01../etc\x02REAL_QID\x010\x02",
        "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02",
        "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x\x02",
        "DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x019999999999\x02",
        f"DELAY\x011\x02REAL_TOPIC\x01{SCHEDULE_TOPIC}\x02REAL_QID\x010\x02",
    ],
)
def test_a_record_without_destination_is_logged_and_skipped(properties: str, caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    life.send(b"1", DELAY=1)
    life.opened.send(b"nowhere", topic=SCHEDULE_TOPIC, properties=properties)
    life.send(b"2", DELAY=1)

    life.pass_ms(1000)
    life.pass_ms(1000)

    assert life.bodies() == [b"1", b"2"]
    assert (life.delays.delivered, life.delays.undeliverable) == (2, 1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "Cannot deliver the message" in caplog.text


def test_a_damaged_record_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    life = Life()
    place = life.send(b"broken", DELAY=1)
    life.send(b"sound", DELAY=1)
    with life.opened.disk.open(ROOT / f"commitlog/{0:020d}") as file:
        file.write_at(place.log_offset + 88, b"X")

    life.pass_ms(1000)

    assert life.bodies() == [b"sound"]
    assert "checksum" in caplog.text


def test_many_bad_records_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    life = life_with(log_file_bytes=256 * 1024)
    life.opened.send(*[b"nowhere"] * 100, topic=SCHEDULE_TOPIC, properties="DELAY\x011\x02")

    life.pass_ms(1000)

    assert life.delays.undeliverable == 100
    assert len(caplog.records) == 7


# promises

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("pass"), st.integers(1, 4000)),
        st.tuples(st.just("step"), st.integers(-20_000, 20_000)),
        st.tuples(st.just("save"), st.just(0)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("power loss"), st.integers(0, 99)),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(EVENTS)
def test_messages_keep_the_order_of_their_level_and_are_duplicated_only_after_a_crash(
    events: list[tuple[str, int]],
) -> None:
    life = Life()
    sent: dict[bytes, int] = {}
    crashed = False
    for kind, number in events:
        match kind:
            case "send":
                body = b"%d" % len(sent)
                life.send(body, DELAY=number)
                life.sync()
                sent[body] = number
            case "pass":
                life.pass_ms(number)
            case "step":
                life.clock.step_ms(number)
            case "save":
                life.save()
            case "sync":
                life.sync()
            case "restart":
                life = life.restart()
            case _:
                life.run()
                crashed = True
                life = life.crash("everything" if kind == "kill" else "any", number)
    for _ in range(9):
        life.pass_ms(9000)

    got = life.bodies()
    assert set(got) == set(sent)
    assert crashed or len(got) == len(sent)
    for level in range(1, 5):
        firsts = list(dict.fromkeys(body for body in got if sent[body] == level))
        assert firsts == [body for body in sent if sent[body] == level]


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 4)),
            st.tuples(st.just("pass"), st.integers(1, 3000)),
            st.tuples(st.just("back"), st.integers(1, 20_000)),
        ),
        max_size=30,
    )
)
def test_no_level_is_early_when_the_clock_is_set_back_several_times(events: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    life = Life(OpenStore.small(FaultyFiles(clock=clock), clock, prepared_files=60))
    sent: list[tuple[float, int]] = []
    seen = 0
    for kind, number in [*events, *[("pass", 9000)] * 9]:
        if kind == "send":
            life.send(b"%d" % len(sent), DELAY=number)
            sent.append((clock.monotonic(), number))
        elif kind == "back":
            clock.step_ms(-number)
        else:
            life.pass_ms(number)
            for body in life.bodies()[seen:]:
                at, level = sent[int(body)]
                assert round((clock.monotonic() - at) * 1000) >= DELAY_LEVELS.ms(level)
                seen += 1

    assert seen == len(sent)
