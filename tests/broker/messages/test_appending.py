"""Appending: the first queue of a message, refused messages, and that a write stores all messages or none."""

import asyncio
import errno
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.life import Life, life_with, with_timer
from tests.store.kit import HOST
from tests.store.open_store import OpenStore

from pocketmq.broker.messages import Draft, Forward, due_time, route
from pocketmq.broker.settings import TimerSettings
from pocketmq.codes import ResponseCode, SysFlag
from pocketmq.errors import ImpossibleRequest, InvalidMessage, InvalidName, StoreBusy, StoreFull, SystemBusy
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TopicName
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FakeClock, run
from pocketmq.testing.fake_clock import START_MS

NOW_MS = 1_700_000_000_526
TIMER = TimerSettings()
TIMES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")


def draft_with(topic: str = "T", queue_id: int = 3, sys_flag: int = 0, **properties: str | int) -> Draft:
    return draft_of(properties, topic, queue_id, sys_flag)


def draft_of(properties: Mapping[str, str | int], topic: str = "T", queue_id: int = 3, sys_flag: int = 0) -> Draft:
    return Draft(
        topic=topic,
        queue_id=queue_id,
        body=b"body",
        properties={name: str(value) for name, value in properties.items()},
        born_ms=NOW_MS,
        born_host=HOST,
        sys_flag=sys_flag,
    )


def routed(draft: Draft, timer: TimerSettings = TIMER) -> tuple[str, int]:
    route(draft, FakeClock(start_ms=NOW_MS), DELAY_LEVELS, timer)
    return draft.topic, draft.queue_id


# the usual message


def test_a_plain_message_goes_to_its_own_queue_unchanged() -> None:
    draft = draft_with(TAGS="A")

    assert routed(draft) == ("T", 3)
    assert draft.properties == {"TAGS": "A"}


# levels


@pytest.mark.parametrize(
    ("level", "queue_id"), [("1", 0), ("3", 2), ("18", 17), ("19", 17), ("2147483648", 17), ("+4", 3)]
)
def test_a_delay_level_selects_a_queue_of_the_schedule_topic(level: str, queue_id: int) -> None:
    draft = draft_with(DELAY=level)

    assert routed(draft) == (SCHEDULE_TOPIC, queue_id)
    assert draft.properties == {"DELAY": str(queue_id + 1), "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_level_means_no_delay(level: str) -> None:
    draft = draft_with(DELAY=level)

    assert routed(draft) == ("T", 3)
    assert draft.properties == {"DELAY": level}


def test_a_delay_level_replaces_a_delivery_time() -> None:
    draft = draft_with(DELAY=2, TIMER_DELAY_SEC=5, TIMER_DELAY_MS=5, TIMER_DELIVER_MS=5)

    assert routed(draft) == (SCHEDULE_TOPIC, 1)
    assert draft.properties == {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3"}


def test_the_real_topic_is_the_destination_of_the_send_not_a_property() -> None:
    draft = draft_with(DELAY=1, REAL_TOPIC="Other", REAL_QID=9)

    routed(draft)

    assert (draft.properties["REAL_TOPIC"], draft.properties["REAL_QID"]) == ("T", "3")


# times


@pytest.mark.parametrize(
    ("properties", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": 2}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": 2500}, 1_700_000_003_000),
        ({"TIMER_DELAY_MS": 1}, 1_700_000_000_000),
        ({"TIMER_DELIVER_MS": 1_700_000_003_515}, 1_700_000_003_000),
        ({"TIMER_DELIVER_MS": 1_700_000_003_000}, 1_700_000_002_000),
        ({"TIMER_DELIVER_MS": 1_700_000_003_001}, 1_700_000_003_000),
        ({"TIMER_DELAY_SEC": 2, "TIMER_DELAY_MS": 9000, "TIMER_DELIVER_MS": 1}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": 2500, "TIMER_DELIVER_MS": 1}, 1_700_000_003_000),
    ],
)
def test_a_delivery_time_selects_the_timer_topic_and_is_stored_as_the_second_before(
    properties: dict[str, int], out_ms: int
) -> None:
    draft = draft_of(properties)

    assert routed(draft) == (TIMER_TOPIC, 0)
    assert draft.properties["TIMER_OUT_MS"] == str(out_ms)
    assert (draft.properties["REAL_TOPIC"], draft.properties["REAL_QID"]) == ("T", "3")
    assert all(draft.properties[name] == str(value) for name, value in properties.items())


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": NOW_MS},
        {"TIMER_DELIVER_MS": 1},
        {"TIMER_DELIVER_MS": -5},
        {"TIMER_DELAY_SEC": 0},
        {"TIMER_DELAY_MS": -1},
    ],
)
def test_a_past_time_means_at_once(properties: dict[str, int]) -> None:
    draft = draft_of(properties)

    assert routed(draft) == ("T", 3)
    assert "TIMER_OUT_MS" not in draft.properties


@pytest.mark.parametrize(
    "properties", [{"TIMER_DELAY_SEC": 5 * 86_400}, {"TIMER_DELIVER_MS": NOW_MS + 3 * 86_400_000 + 1}]
)
def test_a_time_too_far_ahead_is_refused(properties: dict[str, int]) -> None:
    with pytest.raises(InvalidMessage, match="the limit is 259200 s") as refusal:
        routed(draft_of(properties))

    assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_longest_time_is_accepted() -> None:
    assert routed(draft_with(TIMER_DELAY_SEC=3 * 86_400)) == (TIMER_TOPIC, 0)


@pytest.mark.parametrize("name", ["DELAY", *TIMES])
@pytest.mark.parametrize("text", ["soon", "1.5", "1_000", " 1", "", "٣", "9" * 5000, "1e3"])
def test_a_time_that_is_not_a_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidMessage, match=f"property {name}"):
        routed(draft_of({name: text}))


def test_with_timers_off_times_are_refused_and_levels_are_not() -> None:
    off = TimerSettings(enabled=False)

    with pytest.raises(ImpossibleRequest, match="timerWheelEnable"):
        routed(draft_with(TIMER_DELAY_SEC=1), off)
    assert routed(draft_with(DELAY=1), off) == (SCHEDULE_TOPIC, 0)
    assert routed(draft_with(), off) == ("T", 3)


def test_a_delivered_timed_message_is_not_timed_again() -> None:
    delivered = draft_with("%DLQ%g", TIMER_DELAY_SEC=60, TIMER_OUT_MS=1, DELAY=0)

    assert routed(delivered) == ("%DLQ%g", 3)


def test_a_recall_after_the_due_time_is_refused() -> None:
    assert routed(draft_with(TIMER_DELAY_SEC=1, TIMER_DEL_UNIQKEY="T+U")) == (TIMER_TOPIC, 0)

    with pytest.raises(InvalidMessage, match="can no longer be recalled"):
        routed(draft_with(TIMER_DELIVER_MS=NOW_MS, TIMER_DEL_UNIQKEY="T+U"))


def test_a_recall_applies_to_its_own_topic() -> None:
    with pytest.raises(InvalidMessage, match="a message of topic T cannot recall one of topic Other"):
        routed(draft_with(TIMER_DELAY_SEC=1, TIMER_DEL_UNIQKEY="Other+U"))


@given(st.integers(1, 10**9), st.sampled_from([1, 10, 100, 1000, 60_000]))
def test_a_message_waits_until_it_is_due_and_less_than_one_precision_longer(wait_ms: int, precision_ms: int) -> None:
    draft = draft_with(TIMER_DELAY_MS=wait_ms)

    route(draft, FakeClock(start_ms=NOW_MS), DELAY_LEVELS, TimerSettings(precision_ms=precision_ms, max_delay_s=10**9))

    delivered_ms = int(draft.properties["TIMER_OUT_MS"]) + precision_ms
    assert 0 <= delivered_ms - (NOW_MS + wait_ms) < precision_ms


def test_a_message_without_a_delay_has_no_due_time() -> None:
    assert due_time(draft_with(), NOW_MS) is None


# what is left alone


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC])
def test_a_waiting_message_is_not_routed_again(topic: str) -> None:
    assert routed(draft_with(topic, DELAY=2, TIMER_DELAY_SEC=1)) == (topic, 3)


@pytest.mark.parametrize("sys_flag", [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK])
def test_undecided_and_rolled_back_messages_are_not_routed(sys_flag: int) -> None:
    assert routed(draft_with(sys_flag=sys_flag, DELAY=2)) == ("T", 3)


def test_a_committed_message_may_be_timed() -> None:
    assert routed(draft_with(sys_flag=SysFlag.TRANSACTION_COMMIT, TIMER_DELAY_SEC=1)) == (TIMER_TOPIC, 0)


def test_routing_a_draft_twice_has_no_further_effect() -> None:
    draft = draft_with(DELAY=2)
    routed(draft)
    once = dict(draft.properties)

    assert routed(draft) == (SCHEDULE_TOPIC, 1)
    assert draft.properties == once


# storing


def test_an_appended_message_can_be_read_when_the_call_returns() -> None:
    life = Life()
    draft = life.draft(b"body", "Orders", 2, TAGS="A")
    draft.flag, draft.reconsume_times, draft.prepared_offset = 7, 3, 99

    place = life.appender.append(draft)

    (message,) = life.got("Orders", 2)
    assert (place.queue_id, place.queue_offset, place.log_offset) == (2, 0, message.log_offset)
    assert message.properties == {"TAGS": "A"}
    assert (message.flag, message.reconsume_times, message.prepared_offset) == (7, 3, 99)
    assert (message.born_ms, message.packed_born_host) == (START_MS, HOST)
    assert place.message_id(life.store.store_host) == message.offset_id


def test_a_delayed_message_is_stored_in_the_queue_of_its_level() -> None:
    life = Life()

    place = life.appender.append(life.draft(queue_id=7, DELAY=3))

    assert (place.queue_id, place.queue_offset) == (2, 0)


def test_many_messages_are_one_write() -> None:
    life = Life()
    before = life.opened.disk.position

    places = life.appender.append_all([life.draft(topic=f"T{number % 3}") for number in range(6)])

    assert [place.queue_offset for place in places] == [0, 0, 0, 1, 1, 1]
    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"]


def test_several_messages_are_all_stored_or_none() -> None:
    life = Life()

    with pytest.raises(InvalidMessage):
        life.appender.append_all([life.draft(b"good"), life.draft(b"bad", DELAY="x")])

    assert life.bodies() == []
    life.appender.append(life.draft(b"next"))
    assert [message.queue_offset for message in life.got()] == [0]


def test_an_invalid_topic_is_refused() -> None:
    life = Life()

    with pytest.raises(InvalidName):
        life.appender.append(life.draft(topic="../etc"))


def test_a_property_that_would_corrupt_others_is_refused() -> None:
    life = Life()

    with pytest.raises(InvalidMessage, match="0x02"):
        life.appender.append(life.draft(own="a\x02b"))

    assert life.store.end == 0


def test_a_failed_write_stores_nothing_and_the_next_one_works() -> None:
    life = Life()
    life.opened.disk.fail("write", errno.ENOSPC)

    with pytest.raises(StoreFull):
        life.appender.append(life.draft(b"lost"))
    life.opened.tick(500)
    life.appender.append(life.draft(b"kept"))

    assert life.bodies() == [b"kept"]


def test_full_timers_refuse_timed_messages_and_nothing_else() -> None:
    life = Life()
    life.appender.timers_full = True

    with pytest.raises(SystemBusy) as refusal:
        life.appender.append(life.draft(TIMER_DELAY_SEC=1))
    life.appender.append(life.draft(b"recall", TIMER_DELAY_SEC=1, TIMER_DEL_UNIQKEY="T+U"))
    life.appender.append(life.draft(b"past", TIMER_DELAY_SEC=0))
    life.appender.append(life.draft(b"plain"))

    assert refusal.value.code == ResponseCode.SYSTEM_BUSY
    assert life.bodies() == [b"past", b"plain"]
    assert life.bodies(TIMER_TOPIC) == [b"recall"]


def test_changed_settings_apply_from_the_next_message_on() -> None:
    life = Life()
    life.appender.append(life.draft(TIMER_DELAY_SEC=100))

    with_timer(life, max_delay_s=50)

    with pytest.raises(InvalidMessage, match="the limit is 50 s"):
        life.appender.append(life.draft(TIMER_DELAY_SEC=100))


# moving


def moves_of(life: Life, *topics: str) -> list[Forward]:
    moves = []
    for topic in topics:
        message = life.store.message(life.send(topic.encode(), "Waiting", DELAY=0, TIMER_DELAY_SEC=0).log_offset)
        assert message is not None
        moves.append(Forward(message, TopicName(topic), 1, b"DELAY\x015\x02TIMER_DELAY_SEC\x0160\x02"))
    return moves


def test_forwarded_messages_go_to_the_given_queue_whatever_their_properties() -> None:
    life = Life()
    moves = moves_of(life, "A", "B")
    before = life.opened.disk.position

    assert life.appender.forward_all(moves) == [None, None]

    assert [life.bodies(topic, 1) for topic in ("A", "B")] == [[b"A"], [b"B"]]
    assert life.got("A", 1)[0].properties == {"DELAY": "5", "TIMER_DELAY_SEC": "60"}
    assert [operation.kind for operation in life.opened.disk.operations[before:]] == ["write"]


def test_an_impossible_forward_is_skipped_and_the_others_are_stored() -> None:
    life = Life()
    first, second, third = moves_of(life, "A", "B", "C")

    refused = life.appender.forward_all(
        [first, second._replace(queue_id=10**10), third._replace(properties=bytes(40_000))]
    )

    assert [type(outcome) for outcome in refused] == [type(None), InvalidMessage, InvalidMessage]
    assert life.bodies("A", 1) == [b"A"]


def test_a_store_that_accepts_a_part_stores_that_part() -> None:
    life = Life(OpenStore.small(transient_pool=True, log_file_bytes=64 * 1024))
    life.send(bytes(1200), "Waiting")
    message = life.got("Waiting")[0]
    moves = [Forward(message, TopicName("A"), 0, b"")] * 10

    taken = life.appender.forward_all(moves)

    assert 0 < len(taken) < 10
    with pytest.raises(StoreBusy):
        life.appender.forward_all(moves)
    life.opened.run_workers()
    assert len(life.bodies("A")) == len(taken)


def test_a_failed_write_forwards_nothing() -> None:
    life = Life()
    moves = moves_of(life, "A")
    life.opened.disk.fail("write", errno.ENOSPC)

    with pytest.raises(StoreFull):
        life.appender.forward_all(moves)

    assert life.bodies("A", 1) == []


def test_an_error_in_the_middle_forwards_nothing() -> None:
    life = Life()
    (move,) = moves_of(life, "A")

    with pytest.raises(InvalidName):
        life.appender.forward_all([move, move._replace(topic=TopicName("../etc"))])

    assert life.bodies("A", 1) == []


# safe


@pytest.mark.parametrize("flush", FlushMode)
def test_with_sync_flush_the_answer_waits_for_the_sync(flush: FlushMode) -> None:
    life = life_with(flush=flush)
    life.appender.append(life.draft())

    async def main() -> None:
        waiting = asyncio.create_task(life.appender.safe())
        await asyncio.sleep(0)
        assert waiting.done() == (flush is FlushMode.ASYNC)
        life.opened.run_workers()
        assert await waiting

    run(main())


def test_a_caller_may_wait_for_a_sync_with_async_flush() -> None:
    life = Life()
    life.appender.append(life.draft())

    async def main() -> None:
        waiting = asyncio.create_task(life.appender.synced())
        await asyncio.sleep(0)
        life.opened.run_workers()
        assert await waiting
        assert life.store.synced == life.store.end

    run(main())


def test_a_late_sync_is_reported() -> None:
    life = life_with(flush=FlushMode.SYNC)
    life.appender.append(life.draft())

    async def main() -> None:
        waiting = asyncio.create_task(life.appender.safe())
        await asyncio.sleep(0)
        life.clock.advance_ms(life.store.settings.sync_timeout_ms)
        life.store.tick()
        assert not await waiting

    run(main())


def test_a_caller_that_stops_waiting_for_a_sync_does_not_affect_others() -> None:
    life = life_with(flush=FlushMode.SYNC)
    life.appender.append(life.draft())

    async def main() -> None:
        waiting = asyncio.create_task(life.appender.safe())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        life.opened.run_workers()
        assert await life.appender.safe()

    run(main())
