"""Pulls over the wire: which messages, how many, and the answer if there are none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.handlers.pulling_kit import bodies, filled
from tests.broker.running import (
    RunningBroker,
    in_virtual_time,
    offsets_of,
    pulling,
    running,
    settled,
)

from pocketmq.broker.handlers.pulling import FILTER_SECONDS, MAX_CACHED, MAX_CACHED_CHARS
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.model.names import parse_topic
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.hot_headers import PullHead
from pocketmq.protocol.record import decode_records

pytestmark = pytest.mark.usefixtures("twin")
FOUND, NOTHING, RETRY, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
PULL = RequestCode.PULL_MESSAGE


# what is found, and what is said when nothing is


@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_pull_returns_the_stored_records(code: RequestCode, binary: bool) -> None:
    async with running() as broker:
        client = await filled(broker, 5)

        answer = await client.ask(code, pulling(1, most=3), binary=binary)

        assert (answer.code, answer.remark) == (FOUND, "FOUND")
        assert decode_records(answer.body) == broker.stored()[1:4]
        assert answer.ext == {"suggestWhichBrokerId": "0", "nextBeginOffset": "4", "minOffset": "0", "maxOffset": "5"}


@pytest.mark.parametrize(
    ("offset", "code", "remark", "next_offset"),
    [
        (-1, MOVED, "OFFSET_TOO_SMALL", 0),
        (0, FOUND, "FOUND", 5),
        (4, FOUND, "FOUND", 5),
        (5, NOTHING, "OFFSET_OVERFLOW_ONE", 5),
        (6, MOVED, "OFFSET_OVERFLOW_BADLY", 0),
        (2**63 - 1, MOVED, "OFFSET_OVERFLOW_BADLY", 0),
    ],
)
@in_virtual_time
async def test_an_offset_outside_the_queue_gets_the_offset_to_continue_at(
    offset: int, code: ResponseCode, remark: str, next_offset: int
) -> None:
    async with running() as broker:
        client = await filled(broker, 5)

        answer = await client.pull(offset)

        assert (answer.code, answer.remark) == (code, remark)
        assert offsets_of(answer) == (next_offset, 0, 5)


@pytest.mark.parametrize(("committed", "next_offset"), [(0, 0), (3, 3), (5, 5)])
@in_virtual_time
async def test_beyond_the_end_a_group_continues_at_its_offset_and_its_commit_is_ignored(
    committed: int, next_offset: int
) -> None:
    async with running() as broker:
        client = await filled(broker, 5)
        broker.parts.state.offsets.commit("G", "T", 0, committed)

        answer = await client.pull(9, flags=PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET, commit=5)

        assert (answer.code, answer.remark) == (MOVED, "OFFSET_OVERFLOW_BADLY")
        assert offsets_of(answer) == (next_offset, 0, 5)
        assert broker.parts.state.offsets.stored("G", "T", 0) == committed


@in_virtual_time
async def test_a_commit_beyond_the_end_is_ignored_by_every_pull() -> None:
    async with running() as broker:
        client = await filled(broker, 5)
        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET

        for _ in range(3):
            assert (await client.pull(0, flags=flags, commit=6)).code == FOUND

        assert broker.parts.state.offsets.stored("G", "T", 0) is None


@pytest.mark.parametrize("was_made", [False, True], ids=["NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE"])
@pytest.mark.parametrize(("offset", "code"), [(0, NOTHING), (1, MOVED), (99, MOVED), (-1, MOVED)])
@in_virtual_time
async def test_a_queue_without_messages_begins_and_ends_at_zero(
    offset: int, code: ResponseCode, was_made: bool, request: pytest.FixtureRequest
) -> None:
    async with running() as broker:
        broker.make_topic()
        if was_made:
            broker.store.queue(parse_topic("T"), 0)
        client = await broker.connect()

        answer = await client.pull(offset)

        assert answer.code == code
        assert answer.remark == ("NO_MESSAGE_IN_QUEUE" if was_made else "NO_MATCHED_LOGIC_QUEUE")
        assert offsets_of(answer) == (0, 0, 0)


@in_virtual_time
async def test_a_pull_before_the_first_message_continues_at_it() -> None:
    async with running(store={"log_file_bytes": 4096, "retention_hours": 0}) as broker:
        client = await filled(broker, 60, size=300)
        await asyncio.sleep(15)
        assert broker.store.drop_expired()
        await asyncio.sleep(1)

        answer = await client.pull(0)

        low = broker.store.min_offset("T", 0)
        assert 0 < low < 60
        assert (answer.code, answer.remark) == (MOVED, "OFFSET_TOO_SMALL")
        assert offsets_of(answer) == (low, low, 60)


@pytest.mark.parametrize("is_checked", [False, True])
@in_virtual_time
async def test_deleted_messages_are_reported_before_the_queue_is_trimmed(
    is_checked: bool,
) -> None:
    async with running(store={"log_file_bytes": 4096, "max_read_entries": 3}) as broker:
        client = await filled(broker, 60, size=300)
        await asyncio.sleep(20)
        if is_checked:
            await client.pull(0, most=3)
        broker.store._parts.log.drop_first()

        answer = await client.pull(0, most=32)

        low = broker.store.min_offset("T", 0)
        assert 3 < low < 32, "there are others to be had"
        assert (answer.code, answer.remark) == (MOVED, "OFFSET_TOO_SMALL")
        assert offsets_of(answer) == (low, low, 60)


@in_virtual_time
async def test_empty_entries_are_skipped() -> None:
    async with running(store={"max_read_entries": 3}) as broker:
        client = await filled(broker, 5)
        queue = broker.store.find_queue("T", 0)
        assert queue is not None
        assert queue.skip_to(9, broker.store._parts.log.written)

        answer = await client.pull(5, most=3)

        assert (answer.code, answer.remark) == (RETRY, "MESSAGE_WAS_REMOVING")
        assert offsets_of(answer) == (8, 0, 9)


@in_virtual_time
async def test_a_missing_queue_file_is_rebuilt_and_no_message_is_skipped() -> None:
    async with running(store={"queue_file_entries": 10, "max_open_queue_files": 1}) as broker:
        client = await filled(broker, 25)
        await filled(broker, 5, topic="Other")
        await asyncio.sleep(30)
        queue = broker.store.find_queue("T", 0)
        assert queue is not None
        broker.disk.unlink(queue.file_of(10))
        await client.pull(0, topic="Other")

        answer = await client.pull(10)

        assert (answer.code, answer.remark) == (0, "FOUND")
        assert offsets_of(answer) == (25, 0, 25)


@in_virtual_time
async def test_a_pull_at_damage_with_a_long_repair_is_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(store={"queue_file_entries": 10, "max_open_queue_files": 1}) as broker:
        client = await filled(broker, 25)
        await filled(broker, 5, topic="Other")
        await asyncio.sleep(30)
        queue = broker.store.find_queue("T", 0)
        assert queue is not None
        queue.rewrite(12, bytes(60))
        monkeypatch.setattr("pocketmq.store.recovery.queue_repair.INLINE_S", -1.0)

        before, refused = await client.pull(8), await client.pull(12, wait_ms=15_000)
        await asyncio.sleep(1)
        after = await client.pull(12)

        assert offsets_of(before) == (12, 0, 25)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "consume queue T:0 is damaged at offset 12" in (refused.remark or "")
        assert offsets_of(after) == (25, 0, 25)


# how much one pull gets


@pytest.mark.parametrize(("most", "count"), [(-5, 1), (0, 1), (1, 1), (7, 7), (32, 32), (2**31 - 1, 32)])
@in_virtual_time
async def test_a_pull_returns_the_requested_number_and_at_most_32(most: int, count: int) -> None:
    async with running() as broker:
        client = await filled(broker, 40)

        answer = await client.pull(0, most=most)

        assert len(bodies(answer)) == count
        assert offsets_of(answer) == (count, 0, 40)


@in_virtual_time
async def test_a_pull_has_a_byte_limit_and_returns_at_least_one_message() -> None:
    async with running(store={"hot_read_bytes": 2_000}) as broker:
        client = await filled(broker, 4, size=800)
        await client.sent(b"large".ljust(6_000, b"."))

        sizes = [[len(body) for body in bodies(await client.pull(offset))] for offset in (0, 2, 4)]

        assert sizes == [[800, 800], [800, 800], [6_000]]


@in_virtual_time
async def test_a_reader_far_behind_gets_fewer_messages_per_pull() -> None:
    async with running(store={"memory_bytes": 2_000}) as broker:
        client = await filled(broker, 40)

        old, new = await client.pull(0), await client.pull(37)

        assert (len(bodies(old)), len(bodies(new))) == (8, 3)


@in_virtual_time
async def test_a_pull_examines_a_limited_number_of_entries() -> None:
    async with running(store={"max_read_entries": 10}) as broker:
        client = await filled(broker, 35, tags="a")

        answer = await client.pull(0, most=2**31 - 1, expression="none")

        assert (answer.code, offsets_of(answer)[0]) == (RETRY, 32)


# filters


@pytest.mark.parametrize(
    ("expression", "kind", "found", "next_offset"),
    [
        ("*", "TAG", [0, 1, 2, 3, 4, 5], 6),
        ("", "TAG", [0, 1, 2, 3, 4, 5], 6),
        (None, None, [0, 1, 2, 3, 4, 5], 6),
        ("a", "TAG", [0, 3], 6),
        ("a || c", "TAG", [0, 2, 3, 5], 6),
        ("b", None, [1, 4], 6),
        ("n > 3", "SQL92", [4, 5], 6),
        ("TAGS = 'c' AND n < 3", "SQL92", [2], 6),
    ],
)
@in_virtual_time
async def test_a_pull_uses_the_subscription_that_it_contains(
    expression: str | None, kind: str | None, found: list[int], next_offset: int
) -> None:
    async with running() as broker:
        client = await filled(broker, 6, tags="abc")

        for _ in range(2):
            answer = await client.pull(0, expression=expression, kind=kind)

            assert bodies(answer) == [b"%d" % number for number in found]
            assert offsets_of(answer) == (next_offset, 0, 6)


@in_virtual_time
async def test_the_next_offset_follows_all_examined_messages() -> None:
    async with running() as broker:
        client = await filled(broker, 6, tags="abc")

        some = await client.pull(0, expression="b", most=1)
        none = await client.pull(2, expression="zzz")

        assert (some.code, bodies(some), offsets_of(some)[0]) == (FOUND, [b"1"], 2)
        assert (none.code, none.remark) == (RETRY, "NO_MATCHED_MESSAGE")
        assert offsets_of(none) == (6, 0, 6)


@pytest.mark.parametrize(("expression", "kind"), [("|| ||", "TAG"), ("", "SQL92"), (None, "SQL92")])
@in_virtual_time
async def test_an_empty_expression_is_refused(expression: str | None, kind: str) -> None:
    async with running() as broker:
        client = await filled(broker, 1)

        answer = await client.pull(0, expression=expression, kind=kind)

        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@in_virtual_time
async def test_a_slow_expression_delays_no_other_client_and_finds_all_messages() -> None:
    async with running() as broker:
        client = await filled(broker, 100)
        broker.clock.skip_delay_s = FILTER_SECONDS / 20  # what deciding on a message takes
        offset, pulls, found = 0, 0, []

        while offset < 100:
            answer = await client.pull(offset, expression="n = 7 OR n = 99", kind="SQL92")
            assert answer.code in (FOUND, RETRY)
            found += bodies(answer)
            offset, pulls = offsets_of(answer)[0], pulls + 1
            assert offset <= 20 * pulls + len(found)

        assert found == [b"7", b"99"]


@pytest.mark.parametrize(
    ("expression", "kind", "why"),
    [
        ("nonsense nonsense", "SQL92", "column 10"),
        ("n >", "SQL92", "column 4"),
        ("", "SQL92", "is empty"),
        ("whatever", "LUA", "use TAG or SQL92"),
        ("||", "TAG", "contains no tag"),
    ],
)
@in_virtual_time
async def test_an_invalid_expression_selects_nothing(expression: str, kind: str, why: str) -> None:
    async with running() as broker:
        client = await filled(broker, 6, tags="abc")

        for flags in (PullFlag.SUBSCRIPTION, PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL):
            for _ in range(2):
                answer = await client.pull(0, expression=expression, kind=kind, flags=flags, wait_ms=100)

                assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert why in (answer.remark or "")
                assert answer.body == b""


@in_virtual_time
async def test_sql_may_be_switched_off() -> None:
    async with running(property_filter=False) as broker:
        client = await filled(broker, 1)

        answer = await client.pull(0, expression="n > 3", kind="SQL92")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "filter message by SQL92" in (answer.remark or "")
        assert (await client.pull(0)).code == FOUND


@in_virtual_time
async def test_the_cache_of_parsed_expressions_is_limited_in_number_and_length() -> None:
    async with running() as broker:
        client = await filled(broker, 1, tags="a")
        pulls = broker.turns._serve[PullHead].__self__  # type: ignore[attr-defined]

        long = await client.pull(0, expression="a || " + "b" * MAX_CACHED_CHARS)
        assert bodies(long) == [b"0"]
        assert not pulls._parsed
        pulls._parsed.update({("T", str(number), "TAG"): Subscription("T") for number in range(MAX_CACHED)})
        await client.pull(0, expression="a || b")

        assert len(pulls._parsed) == 1


def put_group(**fields: Any) -> Callable[[RunningBroker], None]:
    return lambda broker: broker.parts.state.groups.put([SubscriptionGroupConfig("G", **fields)], 0)


# offsets that come along


@in_virtual_time
async def test_a_pull_commits_once_and_only_with_the_flag() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        offsets = broker.parts.state.offsets

        await client.pull(0, commit=1)
        assert offsets.stored("G", "T", 0) is None
        await client.pull(0, commit=2, flags=PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
        assert offsets.stored("G", "T", 0) == 2

        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        held = asyncio.ensure_future(client.pull(3, commit=1, flags=flags, wait_ms=10_000))
        await settled()
        assert offsets.stored("G", "T", 0) == 1
        await client.commit(3)
        await client.sent()
        assert (await held).code == FOUND
        assert offsets.stored("G", "T", 0) == 3


@in_virtual_time
async def test_after_a_reset_the_next_pull_is_redirected_once_and_commits_nothing() -> None:
    async with running() as broker:
        client = await filled(broker, 9)
        await client.commit(8)
        broker.parts.state.offsets.reset("G", "T", {0: 4})

        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        answers = [await client.pull(8, commit=8, flags=flags) for _ in range(2)]

        assert [(answer.code, offsets_of(answer)) for answer in answers] == [(MOVED, (4, 0, 9)), (FOUND, (9, 0, 9))]
        assert answers[0].remark == "OFFSET_RESET"
        assert answers[0].ext is not None
        assert "suggestWhichBrokerId" in answers[0].ext


# another broker


@pytest.mark.parametrize(("slave_read", "suggested"), [(False, ["0", "0"]), (True, ["7", "3"])])
@in_virtual_time
async def test_a_reader_far_behind_may_be_redirected_to_a_slave(slave_read: bool, suggested: list[str]) -> None:
    async with running(slave_read=slave_read, store={"memory_bytes": 2_000}) as broker:
        client = await filled(broker, 40)
        put_group(which_broker_when_consume_slowly=7, broker_id=3)(broker)

        answers = [await client.pull(0), await client.pull(39)]

        assert [(answer.ext or {})["suggestWhichBrokerId"] for answer in answers] == suggested


# counting


@in_virtual_time
async def test_pulls_are_counted_found_or_not() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        await client.pull(0)
        await client.pull(1)
        await client.pull(3)

        tally = broker.parts.state.stats.pulled("G", "T")
        assert (tally.count, tally.calls) == (5, 2)
        assert tally.bytes == sum(message.size for message in broker.stored()) * 2 - broker.stored()[0].size
        assert broker.parts.state.stats.missed == 1
