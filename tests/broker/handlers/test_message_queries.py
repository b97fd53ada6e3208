"""Queries of messages by key and offset, and of queue entries."""

import asyncio

import pytest
from tests.broker.handlers.admin_talk import Desk, real_answers
from tests.golden import needs_golden
from tests.store.open_store import OpenStore, numbered

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.messages import QueryConsumeQueue, QueryMessage, QueryMessageReply, ViewMessage
from pocketmq.protocol.bodies.topics import ConsumeQueueContent, ConsumeQueueEntry
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import read_json
from pocketmq.protocol.record import decode_records
from pocketmq.store import readable_store
from pocketmq.store.upkeep import INDEX_STEP
from pocketmq.testing import FakeClock, run
from pocketmq.testing.fake_clock import START_MS

FOREVER = 2**63 - 1


def query(
    key: str, *, topic: str = "T", most: int = 32, begin: int = 0, end: int = FOREVER, unique: bool | None = False
) -> QueryMessage:
    return QueryMessage(topic, key, most, begin, end, unique)


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS
    return [message.body for message in decode_records(answer.body)]


# by key


def test_messages_are_found_by_key_newest_first() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send(b"one", properties="KEYS\x01k other\x02")
        desk.opened.send(b"not this", properties="KEYS\x01other\x02")
        desk.opened.send(b"two", properties="KEYS\x01k\x02")
        desk.opened.send(b"another topic", topic="U", properties="KEYS\x01k\x02")

        answer = await desk.done(RequestCode.QUERY_MESSAGE, query("k"))

        assert bodies(answer) == [b"two", b"one"]
        assert bodies(await desk.done(RequestCode.QUERY_MESSAGE, query("k", most=1))) == [b"two"]
        indexed = QueryMessageReply.decode(answer.ext)
        last = desk.store.message(indexed.index_last_update_phyoffset)
        assert last is not None
        assert (last.body, indexed.index_last_update_timestamp) == (b"another topic", START_MS)

    run(main())


def test_unique_keys_and_keys_are_searched_separately() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send(b"has it as its own", properties="UNIQ_KEY\x01k\x02")
        desk.opened.send(b"has it as a key", properties="KEYS\x01k\x02UNIQ_KEY\x01l\x02")

        assert bodies(await desk.done(RequestCode.QUERY_MESSAGE, query("k", unique=True))) == [b"has it as its own"]
        assert bodies(await desk.done(RequestCode.QUERY_MESSAGE, query("k", unique=None))) == [b"has it as a key"]

    run(main())


@needs_golden
def test_an_unknown_message_is_answered_as_by_apache() -> None:
    async def main() -> None:
        missed = [
            (asked.command, told.command)
            for asked, told in real_answers(RequestCode.QUERY_MESSAGE)
            if told.command.code != ResponseCode.SUCCESS
        ]
        assert missed
        desk = Desk()

        for asked, told in missed:
            answer = await desk.answer(asked)
            assert (answer.code, answer.remark, answer.ext) == (told.code, told.remark, told.ext)

    run(main())


def test_the_time_of_a_message_counts() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send(properties="KEYS\x01k\x02")

        async def found(begin: int, end: int) -> bool:
            answer = await desk.ask(RequestCode.QUERY_MESSAGE, query("k", begin=START_MS + begin, end=START_MS + end))
            return answer.code == ResponseCode.SUCCESS

        assert await found(0, 0)
        assert await found(-10, 10)
        assert not await found(-10, -1)
        assert not await found(1, 10)

    run(main())


def test_a_search_waits_for_the_index_up_to_a_limit() -> None:
    async def main() -> None:
        desk = Desk(OpenStore.small(index_enabled=True))
        desk.opened.send(properties="KEYS\x01k\x02")
        loop = asyncio.get_running_loop()
        looking = asyncio.create_task(desk.ask(RequestCode.QUERY_MESSAGE, query("k")))
        await asyncio.sleep(0.5)
        assert not looking.done()
        desk.opened.tick()

        assert (await looking).code == ResponseCode.SUCCESS
        assert loop.time() < 0.6
        desk.opened.send(properties="KEYS\x01k\x02")
        await desk.ask(RequestCode.QUERY_MESSAGE, query("k"))
        assert 2.0 < loop.time() < 3.0

    run(main())


class SteppingClock(FakeClock):
    """Every query of it takes a millisecond."""

    def monotonic(self) -> float:
        self.advance_ms(1)
        return super().monotonic()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_search_after_a_burst_finds_the_newest_message(goes_on: bool) -> None:
    async def main() -> None:
        opened = OpenStore.small(
            clock=SteppingClock(), log_file_bytes=1024 * 1024, index_entries=100_000, queue_file_entries=100_000
        )
        desk = Desk(opened)
        opened.send(*numbered(30_000), properties="KEYS\x01old\x02")
        opened.send(b"newest", properties="KEYS\x01k\x02")
        behind = opened.store.index_backlog_bytes

        async def tick() -> None:
            while True:
                if goes_on:
                    opened.send(*numbered(INDEX_STEP), properties="KEYS\x01later\x02")
                opened.tick()
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0.05)
        assert opened.store.index_backlog_bytes > behind * 0.8

        assert bodies(await desk.done(RequestCode.QUERY_MESSAGE, query("k"))) == [b"newest"]
        assert asyncio.get_running_loop().time() < 2.0
        ticking.cancel()

    run(main())


def test_an_answer_contains_few_large_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readable_store, "MAX_KEY_BYTES", 2500)

    async def main() -> None:
        desk = Desk()
        desk.opened.send(*numbered(5, size=1000), properties="KEYS\x01k\x02")
        desk.opened.send(bytes(3500), properties="KEYS\x01huge\x02")

        assert len(bodies(await desk.done(RequestCode.QUERY_MESSAGE, query("k")))) == 2
        assert len(bodies(await desk.done(RequestCode.QUERY_MESSAGE, query("huge")))) == 1

    run(main())


# by log offset


def test_a_message_is_found_by_its_log_offset() -> None:
    async def main() -> None:
        desk = Desk()
        offsets = desk.opened.send(*numbered(3))

        answer = await desk.done(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offsets[1], "T"))

        assert answer.body == desk.store.record(offsets[1])

    run(main())


def test_an_offset_inside_a_message_finds_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        (first,) = desk.opened.send()
        record = desk.store.record(first)
        assert record is not None
        (carrier,) = desk.opened.send(record)
        inside = carrier + desk.store.record(carrier).index(record)  # type: ignore[union-attr]

        for offset in (-1, 3, 10**12, inside):
            answer = await desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"can not find message by the offset, {offset}"

    run(main())


# a queue


async def entries(desk: Desk, index: int, count: int, group: str | None = None) -> ConsumeQueueContent:
    answer = await desk.done(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueue("T", 0, index, count, group))
    return ConsumeQueueContent.decode(answer.body)


def test_entries_of_a_queue_are_shown() -> None:
    async def main() -> None:
        desk = Desk()
        places = desk.opened.send(*numbered(5), properties="TAGS\x01TagA\x02")

        found = await entries(desk, 3, 10)

        assert (found.min_queue_index, found.max_queue_index) == (0, 5)
        size = places[1] - places[0]
        assert found.queue_data == tuple(ConsumeQueueEntry(place, size, 2598919) for place in places[3:])
        assert (await entries(desk, 5, 1)).queue_data == ()

    run(main())


@pytest.mark.parametrize(
    ("subscription", "taken"),
    [
        (Subscription("T", sub_version=1), [True, True]),
        (Subscription("T", "TagA", ("TagA",), (2598919,), 1), [True, False]),
        (Subscription("T", "a > 1", sub_version=1, expression_type="SQL92"), [False, True]),
    ],
)
def test_entries_are_marked_by_the_filter_of_a_group(subscription: Subscription, taken: list[bool]) -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send(properties="TAGS\x01TagA\x02a\x011\x02")
        desk.opened.send(properties="TAGS\x01TagB\x02a\x012\x02")
        desk.join("g", subscription)

        found = await entries(desk, 0, 10, "g")

        assert found.subscription_data == subscription
        assert [entry.eval for entry in found.queue_data or ()] == taken

    run(main())


def test_an_unknown_group_is_reported() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send()

        found = await entries(desk, 0, 10, "g")

        assert found.filter_data == "g@T is not online!"
        assert found.subscription_data is None

    run(main())


def test_an_invalid_expression_is_reported_with_its_error() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send()
        desk.join("g", Subscription("T", "a >", sub_version=1, expression_type="SQL92"))

        found = await entries(desk, 0, 10, "g")

        assert found.filter_data
        assert [entry.eval for entry in found.queue_data or ()] == [False]

    run(main())


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (QueryConsumeQueue("T", 1, 0, 1), ResponseCode.SYSTEM_ERROR),
        (QueryConsumeQueue(), ResponseCode.SYSTEM_ERROR),
        (QueryConsumeQueue("T", 0, 7, 1), ResponseCode.SYSTEM_ERROR),
        (QueryConsumeQueue("T", 0, -1, 1), ResponseCode.SYSTEM_ERROR),
        (QueryConsumeQueue("T", 0, 0, -1), ResponseCode.INVALID_PARAMETER),
        (QueryConsumeQueue("T", 0, 0, 1001), ResponseCode.INVALID_PARAMETER),
    ],
)
def test_entries_outside_the_queue_are_refused(header: QueryConsumeQueue, code: ResponseCode) -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send()

        assert (await desk.ask(RequestCode.QUERY_CONSUME_QUEUE, header)).code == code

    run(main())


@needs_golden
def test_returned_entries_have_the_form_of_the_captured_ones() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send(*numbered(5), topic="StayTopic", properties="TAGS\x01TagA\x02")
        desk.join("CG_stay", Subscription("StayTopic", sub_version=1))
        real = list(real_answers(RequestCode.QUERY_CONSUME_QUEUE))
        assert real

        for asked, told in real:
            ours, theirs = read_json((await desk.answer(asked.command)).body), read_json(told.command.body)
            assert ours.keys() == theirs.keys() - {"filterData"}
            assert ours["queueData"][0].keys() == theirs["queueData"][0].keys()

    run(main())
