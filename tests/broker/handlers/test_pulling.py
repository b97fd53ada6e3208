"""Pulls over the wire: what is found, what is said when nothing is, who may pull, and how long a pull waits."""

import asyncio
import gc
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.running import (
    Client,
    RunningBroker,
    in_virtual_time,
    offsets_of,
    pulling,
    request,
    running,
    sending,
    settled,
)

from pocketmq.broker.handlers.pulling import MAX_HOLD_S, MAX_KEPT, MAX_KEPT_CHARS
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.flags import PullFlag
from pocketmq.model.names import parse_topic
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.api.groups import UpdateGroupForbidden
from pocketmq.protocol.api.offsets import ResetOffset
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.bodies.groups import SubscriptionGroupConfig
from pocketmq.protocol.bodies.heartbeat import MessageModel
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.heads import PullHead
from pocketmq.protocol.record import decode_records

pytestmark = pytest.mark.usefixtures("twin")

FOUND, NOTHING, RETRY, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
PULL = RequestCode.PULL_MESSAGE


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


async def filled(broker: RunningBroker, count: int, *, tags: str = "", size: int = 0, topic: str = "T") -> Client:
    """A client that sent `count` messages to queue 0, with these tags by turns."""
    client = await broker.connect()
    for number in range(count):
        properties = {"n": str(number)} | ({"TAGS": tags[number % len(tags)]} if tags else {})
        await client.sent((b"%d" % number).ljust(size, b"."), topic=topic, properties=properties)
    return client


# what is found, and what is said when nothing is


@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_pull_gets_the_records_as_they_lie_in_the_log(code: RequestCode, binary: bool) -> None:
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
        (6, MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (2**63 - 1, MOVED, "OFFSET_OVERFLOW_BADLY", 5),
    ],
)
@in_virtual_time
async def test_an_offset_is_in_the_queue_or_at_its_end_or_is_told_where_to_go(
    offset: int, code: ResponseCode, remark: str, next_offset: int
) -> None:
    async with running() as broker:
        client = await filled(broker, 5)

        answer = await client.pull(offset)

        assert (answer.code, answer.remark) == (code, remark)
        assert offsets_of(answer) == (next_offset, 0, 5)


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
async def test_a_pull_behind_what_retention_took_goes_on_at_the_first_message_that_is_left() -> None:
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


@in_virtual_time
async def test_entries_whose_messages_are_gone_are_passed() -> None:
    async with running(store={"log_file_bytes": 4096, "max_read_entries": 3}) as broker:
        client = await filled(broker, 60, size=300)
        await asyncio.sleep(20)
        broker.store._parts.log.drop_first()  # and the queue has not heard of it yet

        answer = await client.pull(0, most=3)

        assert (answer.code, answer.remark) == (RETRY, "MESSAGE_WAS_REMOVING")
        assert offsets_of(answer) == (3, 0, 60)


@pytest.mark.parametrize("wait_ms", [0, 15_000])
@in_virtual_time
async def test_a_missing_file_of_a_queue_is_jumped_over_at_once(wait_ms: int) -> None:
    async with running(store={"queue_file_entries": 10, "max_open_queue_files": 1}) as broker:
        client = await filled(broker, 25)
        await filled(broker, 5, topic="Other")
        await asyncio.sleep(30)
        queue = broker.store.find_queue("T", 0)
        assert queue is not None
        broker.disk.unlink(queue.file_of(10))
        await client.pull(0, topic="Other")
        began = asyncio.get_running_loop().time()

        answer = await client.pull(10, wait_ms=wait_ms)

        assert (answer.code, answer.remark) == (NOTHING, "OFFSET_FOUND_NULL")
        assert offsets_of(answer) == (20, 0, 25)
        assert asyncio.get_running_loop().time() - began < 0.1
        assert bodies(await client.pull(20)) == [b"20", b"21", b"22", b"23", b"24"]


# how much one pull gets


@pytest.mark.parametrize(("most", "count"), [(-5, 1), (0, 1), (1, 1), (7, 7), (32, 32), (2**31 - 1, 32)])
@in_virtual_time
async def test_a_pull_gets_as_many_as_it_wants_and_no_more_than_32(most: int, count: int) -> None:
    async with running() as broker:
        client = await filled(broker, 40)

        answer = await client.pull(0, most=most)

        assert len(bodies(answer)) == count
        assert offsets_of(answer) == (count, 0, 40)


@in_virtual_time
async def test_a_pull_ends_before_it_has_too_many_bytes_but_has_one_message_at_least() -> None:
    async with running(store={"hot_read_bytes": 2_000}) as broker:
        client = await filled(broker, 4, size=800)
        await client.sent(b"large".ljust(6_000, b"."))

        sizes = [[len(body) for body in bodies(await client.pull(offset))] for offset in (0, 2, 4)]

        assert sizes == [[800, 800], [800, 800], [6_000]]


@in_virtual_time
async def test_a_reader_that_is_far_behind_gets_less_at_a_time() -> None:
    async with running(store={"memory_bytes": 2_000}) as broker:
        client = await filled(broker, 40)

        old, new = await client.pull(0), await client.pull(37)

        assert (len(bodies(old)), len(bodies(new))) == (8, 3)


@in_virtual_time
async def test_a_pull_looks_at_so_many_entries_and_no_more_whatever_it_asks_for() -> None:
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
        ("n >", "SQL92", [0, 1, 2, 3, 4, 5], 6),
        ("whatever", "LUA", [0, 1, 2, 3, 4, 5], 6),
    ],
)
@in_virtual_time
async def test_a_pull_gets_what_the_subscription_wants_that_it_carries(
    expression: str | None, kind: str | None, found: list[int], next_offset: int
) -> None:
    async with running() as broker:
        client = await filled(broker, 6, tags="abc")

        for _ in range(2):
            answer = await client.pull(0, expression=expression, kind=kind)

            assert bodies(answer) == [b"%d" % number for number in found]
            assert offsets_of(answer) == (next_offset, 0, 6)


@in_virtual_time
async def test_the_next_offset_is_behind_all_that_was_looked_at_wanted_or_not() -> None:
    async with running() as broker:
        client = await filled(broker, 6, tags="abc")

        some = await client.pull(0, expression="b", most=1)
        none = await client.pull(2, expression="zzz")

        assert (some.code, bodies(some), offsets_of(some)[0]) == (FOUND, [b"1"], 2)
        assert (none.code, none.remark) == (RETRY, "NO_MATCHED_MESSAGE")
        assert offsets_of(none) == (6, 0, 6)


@pytest.mark.parametrize(("expression", "kind"), [("|| ||", "TAG"), ("", "SQL92"), (None, "SQL92")])
@in_virtual_time
async def test_an_expression_that_says_nothing_is_refused(expression: str | None, kind: str) -> None:
    async with running() as broker:
        client = await filled(broker, 1)

        answer = await client.pull(0, expression=expression, kind=kind)

        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@in_virtual_time
async def test_sql_may_be_switched_off() -> None:
    async with running(property_filter=False) as broker:
        client = await filled(broker, 1)

        answer = await client.pull(0, expression="n > 3", kind="SQL92")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "filter message by SQL92" in (answer.remark or "")
        assert (await client.pull(0)).code == FOUND


@in_virtual_time
async def test_what_was_parsed_is_kept_but_not_for_ever_and_not_at_any_length() -> None:
    async with running() as broker:
        client = await filled(broker, 1, tags="a")
        pulls = broker.turns._serve[PullHead].__self__  # type: ignore[attr-defined]

        long = await client.pull(0, expression="a || " + "b" * MAX_KEPT_CHARS)
        assert bodies(long) == [b"0"]
        assert not pulls._parsed
        pulls._parsed.update({("T", str(number), "TAG"): Subscription("T") for number in range(MAX_KEPT)})
        await client.pull(0, expression="a || b")

        assert len(pulls._parsed) == 1


# subscriptions that heartbeats told


def by_heartbeat(offset: int = 0, **fields: Any) -> PullMessage:
    return pulling(offset, flags=0, **fields)


@in_virtual_time
async def test_a_pull_without_a_subscription_needs_a_heartbeat_that_tells_it() -> None:
    async with running() as broker:
        client = await filled(broker, 3, tags="ab")
        broker.make_topic("Other")

        unknown = await client.ask(PULL, by_heartbeat())
        await client.beat("G", Subscription.parse("T", "a", sub_version=7))
        known = await client.ask(PULL, by_heartbeat(version=7, expression="b"))
        older = await client.ask(PULL, by_heartbeat(version=6))
        newer = await client.ask(PULL, by_heartbeat(version=8))
        other = await client.ask(PULL, by_heartbeat(topic="Other"))

        assert unknown.code == other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        assert (known.code, bodies(known)) == (FOUND, [b"0", b"2"])
        assert (older.code, bodies(older)) == (FOUND, [b"0", b"2"])


@in_virtual_time
async def test_a_newer_heartbeat_counts_from_the_next_pull_on() -> None:
    async with running() as broker:
        client = await filled(broker, 4, tags="ab")
        found = []

        for number, tag in enumerate("aba"):
            await client.beat("G", Subscription.parse("T", tag, sub_version=number))
            found.append(bodies(await client.ask(PULL, by_heartbeat(version=number))))

        assert found == [[b"0", b"2"], [b"1", b"3"], [b"0", b"2"]]


@in_virtual_time
async def test_a_carried_subscription_is_served_whatever_the_heartbeat_said() -> None:
    async with running() as broker:
        client = await filled(broker, 4, tags="ab")
        await client.beat("G", Subscription.parse("T", "a", sub_version=1))

        answer = await client.pull(0, expression="b", version=99)

        assert bodies(answer) == [b"1", b"3"]


@in_virtual_time
async def test_a_heartbeat_with_a_wrong_expression_has_no_filter() -> None:
    async with running() as broker:
        client = await filled(broker, 1)
        wrong = Subscription("T", "n >", expression_type=ExpressionType.SQL92, sub_version=1)
        await client.beat("G", wrong)

        answer = await client.ask(PULL, by_heartbeat(version=1))

        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST


@in_virtual_time
async def test_retries_are_judged_by_the_subscription_of_the_topic_that_they_came_from() -> None:
    async with running() as broker:
        client = await broker.connect()
        sql = {"expression_type": ExpressionType.SQL92, "sub_version": 1}
        await client.beat("G", Subscription("T", "n > 3", **sql), Subscription("%RETRY%G", "n > 3", **sql))  # type: ignore[arg-type]
        for number in range(6):
            await client.sent(b"%d" % number, topic="%RETRY%G", properties={"n": str(number), "RETRY_TOPIC": "T"})

        answer = await client.ask(PULL, by_heartbeat(topic="%RETRY%G", version=1))

        assert bodies(answer) == [b"4", b"5"]


# who may


def nothing(_: RunningBroker) -> None:
    """The broker is as it is."""


def put_group(**fields: Any) -> Callable[[RunningBroker], None]:
    return lambda broker: broker.parts.groups.put([SubscriptionGroupConfig("G", **fields)], 0)


def forbid(broker: RunningBroker) -> None:
    broker.parts.groups.set_readable("G", "T", False, 0)


def unreadable(broker: RunningBroker) -> None:
    broker.parts.topics.put([TopicConfig("T", 4, 4, 2)], 0)


REFUSALS: dict[str, tuple[Callable[[RunningBroker], None], dict[str, Any], ResponseCode, str, str | None]] = {
    "the broker is not readable": (
        lambda broker: broker.change(permission=2),
        {"group": "bad*group", "topic": "None"},
        ResponseCode.NO_PERMISSION,
        r"the broker\[broker-a\] pulling message is forbidden",
        "1",
    ),
    "a group that cannot be": (
        nothing,
        {"group": "bad*group", "topic": "None"},
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        r"holds '\*'",
        None,
    ),
    "the group may not consume": (
        put_group(consume_enable=False),
        {"topic": "None"},
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, G",
        "2",
    ),
    "no such topic": (
        nothing,
        {"topic": "None", "queue_id": 99},
        ResponseCode.TOPIC_NOT_EXIST,
        r"topic\[None\] not exist, apply first please!",
        None,
    ),
    "the topic is not readable": (
        unreadable,
        {"queue_id": 99},
        ResponseCode.NO_PERMISSION,
        r"the topic\[T\] pulling message is forbidden",
        "3",
    ),
    "a queue too far": (
        nothing,
        {"queue_id": 4},
        ResponseCode.INVALID_PARAMETER,
        r"queueId\[4\] is illegal, topic:\[T\] topicConfig.readQueueNums:\[4\]",
        None,
    ),
    "a negative queue": (nothing, {"queue_id": -1}, ResponseCode.INVALID_PARAMETER, r"queueId\[-1\] is illegal", None),
    "the group may not read the topic": (forbid, {}, ResponseCode.NO_PERMISSION, "forbidden", "5"),
}


@pytest.mark.parametrize("flags", [0, PullFlag.SUBSCRIPTION], ids=["by heartbeat", "carried"])
@pytest.mark.parametrize("case", REFUSALS)
@in_virtual_time
async def test_who_may_not_pull_is_told_why_in_the_order_of_apache(case: str, flags: int) -> None:
    prepare, fields, code, words, forbidden = REFUSALS[case]
    async with running() as broker:
        client = await filled(broker, 1)
        await client.beat()
        prepare(broker)

        answer = await client.ask(PULL, pulling(0, flags=flags, wait_ms=10_000, **fields))

        assert answer.code == code
        assert re.search(words, answer.remark or "")
        assert (answer.ext or {}) == ({"forbiddenType": forbidden} if forbidden else {})


@in_virtual_time
async def test_a_group_that_must_not_broadcast_is_refused_before_its_versions_are_compared() -> None:
    async with running() as broker:
        client = await filled(broker, 1)
        await client.beat(model=MessageModel.BROADCASTING)
        put_group(consume_broadcast_enable=False)(broker)

        answer = await client.ask(PULL, by_heartbeat(version=99))
        carried = await client.pull(0)

        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "4"})
        assert "can not consume by broadcast way" in (answer.remark or "")
        assert carried.code == FOUND


@in_virtual_time
async def test_light_pulls_may_be_switched_off() -> None:
    async with running(lite_pull=False) as broker:
        client = await filled(broker, 1)

        light = await client.ask(RequestCode.LITE_PULL_MESSAGE, pulling(0))

        assert light.code == ResponseCode.NO_PERMISSION
        assert "lite pull consumer is forbidden" in (light.remark or "")
        assert (await client.pull(0)).code == FOUND


@in_virtual_time
async def test_a_new_group_is_made_by_its_first_pull_if_groups_may_be() -> None:
    for auto_create, code in ((True, FOUND), (False, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)):
        async with running(auto_create_group=auto_create) as broker:
            client = await filled(broker, 1)

            assert (await client.pull(0)).code == code
            assert ("G" in broker.parts.groups) is auto_create


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_pull_without_a_field_is_answered_with_its_name(binary: bool) -> None:
    async with running() as broker:
        client = await filled(broker, 1)

        answer = await client.ask(PULL, None, binary=binary, topic="T")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "consumerGroup" in (answer.remark or "")


# offsets that come along


@in_virtual_time
async def test_a_pull_commits_only_with_the_flag_and_only_when_it_comes() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        offsets = broker.parts.offsets

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
async def test_after_a_reset_the_next_pull_is_sent_there_once_and_commits_nothing() -> None:
    async with running() as broker:
        client = await filled(broker, 9)
        await client.commit(8)
        broker.parts.offsets.reset("G", "T", {0: 4})

        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        answers = [await client.pull(8, commit=8, flags=flags) for _ in range(2)]

        assert [(answer.code, offsets_of(answer)) for answer in answers] == [(MOVED, (4, 0, 9)), (FOUND, (9, 0, 9))]
        assert answers[0].remark == "OFFSET_RESET"
        assert answers[0].ext is not None
        assert "suggestWhichBrokerId" in answers[0].ext


# another broker


@pytest.mark.parametrize(("slave_read", "suggested"), [(False, ["0", "0"]), (True, ["7", "3"])])
@in_virtual_time
async def test_who_is_far_behind_may_be_sent_to_a_slave(slave_read: bool, suggested: list[str]) -> None:
    async with running(slave_read=slave_read, store={"memory_bytes": 2_000}) as broker:
        client = await filled(broker, 40)
        put_group(which_broker_when_consume_slowly=7, broker_id=3)(broker)

        answers = [await client.pull(0), await client.pull(39)]

        assert [(answer.ext or {})["suggestWhichBrokerId"] for answer in answers] == suggested


# waiting


async def took(pull: Awaitable[Command]) -> tuple[float, Command]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await pull
    return round(loop.time() - began, 1), answer


@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_pull_at_the_end_waits_until_a_message_arrives(code: RequestCode, binary: bool) -> None:
    async with running() as broker:
        client, other = await filled(broker, 3), await broker.connect()
        loop = asyncio.get_running_loop()
        pull = asyncio.ensure_future(client.ask(code, pulling(3, wait_ms=15_000), binary=binary))
        await asyncio.sleep(7)
        assert not pull.done()
        assert len(broker.parts.arrivals) == 1

        began = loop.time()
        await other.sent(b"news")
        answer = await pull

        assert loop.time() - began < 0.01
        assert (answer.code, bodies(answer), offsets_of(answer)) == (FOUND, [b"news"], (4, 0, 4))
        assert not len(broker.parts.arrivals)


@pytest.mark.parametrize("has_queue", [False, True])
@in_virtual_time
async def test_the_first_message_of_a_queue_wakes_who_waited_at_zero(has_queue: bool) -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic()
        if has_queue:
            broker.store.queue(parse_topic("T"), 0)

        pull = asyncio.ensure_future(client.pull(0, wait_ms=15_000))
        await asyncio.sleep(3)
        await client.sent(b"first")

        assert bodies(await pull) == [b"first"]


@pytest.mark.parametrize("wait_ms", [500, 15_000, 20_000])
@in_virtual_time
async def test_a_pull_for_which_nothing_comes_is_answered_when_its_time_is_over(wait_ms: int) -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        seconds, answer = await took(client.pull(3, wait_ms=wait_ms))

        assert seconds == wait_ms / 1000
        assert (answer.code, answer.remark, offsets_of(answer)) == (NOTHING, "OFFSET_OVERFLOW_ONE", (3, 0, 3))
        assert not len(broker.parts.arrivals)


@in_virtual_time
async def test_nobody_waits_longer_than_a_minute() -> None:
    async with running(idle_s=600) as broker:
        client = await filled(broker, 3)

        seconds, _ = await took(client.pull(3, wait_ms=10**9))

        assert seconds == MAX_HOLD_S


@pytest.mark.parametrize("wait_ms", [-1, 0])
@in_virtual_time
async def test_a_pull_that_may_wait_for_no_time_is_answered_at_once(wait_ms: int) -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        header = pulling(3, flags=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND)
        header.suspend_timeout_millis = wait_ms

        assert (await client.ask(PULL, header)).code == NOTHING
        assert not broker.parts.arrivals.count


@in_virtual_time
async def test_without_long_polling_a_pull_waits_for_a_short_time() -> None:
    async with running(long_polling=False, short_polling_ms=1_000) as broker:
        client = await filled(broker, 3)

        seconds, answer = await took(client.pull(3, wait_ms=15_000))

        assert (seconds, answer.code) == (1.0, NOTHING)


@pytest.mark.parametrize(
    ("expression", "kind", "wanted", "unwanted"),
    [("a", "TAG", {"TAGS": "a"}, {"TAGS": "b"}), ("n > 3", "SQL92", {"n": "4"}, {"n": "3"})],
)
@in_virtual_time
async def test_only_what_it_wants_wakes_a_pull_and_anything_else_moves_it_on_later(
    expression: str, kind: str, wanted: dict[str, str], unwanted: dict[str, str]
) -> None:
    async with running(hold_check_ms=5_000) as broker:
        client, other = await filled(broker, 3), await broker.connect()

        pull = asyncio.ensure_future(took(client.pull(3, wait_ms=15_000, expression=expression, kind=kind)))
        await asyncio.sleep(1)
        await other.sent(b"not this", properties=unwanted)
        await asyncio.sleep(1)
        assert not pull.done()
        await other.sent(b"this", properties=wanted)
        seconds, answer = await pull
        assert (seconds, bodies(answer), offsets_of(answer)[0]) == (2.0, [b"this"], 5)

        pull = asyncio.ensure_future(took(client.pull(5, wait_ms=15_000, expression=expression, kind=kind)))
        await asyncio.sleep(1)
        for _ in range(3):
            await other.sent(b"not this", properties=unwanted)
        seconds, answer = await pull
        assert (seconds, answer.code, offsets_of(answer)[0]) == (6.0, RETRY, 8)


@in_virtual_time
async def test_messages_of_another_queue_wake_nobody() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        pull = asyncio.ensure_future(took(client.pull(3, wait_ms=15_000)))
        await settled()
        await client.sent(queue_id=1)
        await client.sent(topic="Other")

        assert (await pull)[0] == 15.0


@in_virtual_time
async def test_a_message_that_comes_in_the_same_breath_as_the_pull_is_not_missed() -> None:
    async with running() as broker:
        client, other = await filled(broker, 3), await broker.connect()

        for number in range(3, 40):
            sent = asyncio.ensure_future(client.sent(b"%d" % number))
            late = asyncio.ensure_future(other.sent(b"%d" % number, queue_id=1))
            seconds, answer = await took(client.pull(number, wait_ms=15_000))
            await asyncio.gather(sent, late)

            assert (seconds, bodies(answer)) == (0.0, [b"%d" % number])


@in_virtual_time
async def test_a_message_that_is_stored_before_the_pull_began_to_wait_is_not_missed() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))
        broker.store.stage(broker.store.queue(parse_topic("T"), 0), b"now", b"", 0, 0, 0, bytes(8))
        broker.store.end_turn()
        assert not len(broker.parts.arrivals)

        seconds, answer = await took(pull)
        assert (seconds, bodies(answer)) == (0.0, [b"now"])


@in_virtual_time
async def test_a_reset_or_a_stop_before_the_pull_began_to_wait_is_not_missed() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))
        broker.parts.offsets.reset("G", "T", {0: 1})
        broker.parts.arrivals.wake("T", 0)
        seconds, answer = await took(pull)
        assert (seconds, answer.code) == (0.0, MOVED)

        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))
        broker.parts.arrivals.stop()
        seconds, answer = await took(pull)
        assert (seconds, answer.code) == (0.0, NOTHING)


@in_virtual_time
async def test_a_reset_wakes_who_waits_and_one_in_the_same_breath_is_not_missed() -> None:
    async with running() as broker:
        client, admin = await filled(broker, 9), await broker.connect()
        reset = ResetOffset("G", "T", -1, True, 0, 4)

        pull = asyncio.ensure_future(took(client.pull(9, wait_ms=15_000)))
        await asyncio.sleep(3)
        await admin.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        seconds, answer = await pull
        assert (seconds, answer.code, offsets_of(answer)[0]) == (3.0, MOVED, 4)

        pull = asyncio.ensure_future(took(client.pull(9, wait_ms=15_000)))
        same = asyncio.ensure_future(client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset))
        seconds, answer = await pull
        await same
        assert (seconds, answer.code, offsets_of(answer)[0]) == (0.0, MOVED, 4)


@in_virtual_time
async def test_deleting_a_topic_wakes_who_waits_for_it() -> None:
    async with running() as broker:
        client, admin = await filled(broker, 1), await broker.connect()

        pull = asyncio.ensure_future(took(client.pull(1, wait_ms=15_000)))
        await asyncio.sleep(2)
        await admin.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")

        seconds, answer = await pull
        assert (seconds, answer.code) == (2.0, ResponseCode.TOPIC_NOT_EXIST)


@in_virtual_time
async def test_a_held_pull_does_not_bring_its_deleted_group_back() -> None:
    async with running() as broker:
        client, admin = await filled(broker, 1), await broker.connect()
        pull = asyncio.ensure_future(client.pull(1, wait_ms=15_000))
        await asyncio.sleep(2)

        await admin.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G")
        await client.sent()

        answer = await pull
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "G" not in broker.parts.groups


@in_virtual_time
async def test_what_was_forbidden_meanwhile_is_told_when_the_pull_wakes() -> None:
    async with running() as broker:
        client = await filled(broker, 1)
        pull = asyncio.ensure_future(client.pull(1, wait_ms=15_000))
        await asyncio.sleep(2)

        await client.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbidden("G", "T", readable=False))
        await client.sent()

        answer = await pull
        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "5"})


@in_virtual_time
async def test_stopping_answers_everybody_who_waits() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        pulls = [asyncio.ensure_future(took(client.pull(3, wait_ms=15_000))) for _ in range(3)]
        await asyncio.sleep(2)

        await broker.broker.stop()

        assert [(seconds, answer.code) for seconds, answer in await asyncio.gather(*pulls)] == [(2.0, NOTHING)] * 3


@in_virtual_time
async def test_a_pull_is_forgotten_with_its_line() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        await settled()
        before = len(asyncio.all_tasks())
        pulls = [asyncio.ensure_future(client.pull(3, wait_ms=15_000)) for _ in range(20)]
        await settled()
        assert len(broker.parts.arrivals) == 20

        client.peer.line.abort()
        await asyncio.gather(*pulls, return_exceptions=True)
        await settled()

        assert not len(broker.parts.arrivals)
        assert len(asyncio.all_tasks()) == before
        scheduled = [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert not [handle for handle in scheduled if "_Held" in repr(handle)]
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one).__name__ == "_Held"]


@in_virtual_time
async def test_a_line_that_is_lost_in_the_breath_of_its_pull_leaves_nothing_behind() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        peer = broker.peer_of(client)
        (pull,) = broker.serve_now(client, request(PULL, pulling(3, wait_ms=15_000)))

        peer.line.abort()
        await asyncio.gather(pull, return_exceptions=True)
        await settled()

        assert not len(broker.parts.arrivals)
        assert not peer.serving


@in_virtual_time
async def test_beyond_so_many_held_pulls_one_more_is_answered_at_once() -> None:
    async with running(flow=FlowSettings(max_held_pulls=3)) as broker:
        client, other = await filled(broker, 3), await broker.connect()

        pulls = [took(one.pull(3, wait_ms=10_000)) for one in (client, other) * 4]
        waited = sorted((seconds, answer.code) for seconds, answer in await asyncio.gather(*pulls))

        assert waited == [(0.0, NOTHING)] * 5 + [(10.0, NOTHING)] * 3


@in_virtual_time
async def test_a_one_way_pull_is_neither_held_nor_answered() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        client.tell(PULL, pulling(3, wait_ms=1_000))
        client.tell(PULL, pulling(0, commit=2, flags=PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET))
        await settled()
        assert not len(broker.parts.arrivals)
        await client.sent()
        await asyncio.sleep(2)

        assert client.peer.unmatched == 0
        assert broker.parts.offsets.stored("G", "T", 0) == 2


@in_virtual_time
async def test_all_who_wait_for_a_queue_are_woken_by_one_message() -> None:
    async with running() as broker:
        clients = [await broker.connect() for _ in range(10)]
        broker.make_topic()

        pulls = [
            asyncio.ensure_future(client.pull(0, group=f"G{index}", wait_ms=15_000))
            for index, client in enumerate(clients)
        ]
        await settled()
        await clients[0].ask(RequestCode.SEND_MESSAGE_V2, sending(), b"to all")

        assert [bodies(answer) for answer in await asyncio.gather(*pulls)] == [[b"to all"]] * 10


# counting


@in_virtual_time
async def test_pulls_are_counted_found_or_not() -> None:
    async with running() as broker:
        client = await filled(broker, 3)

        await client.pull(0)
        await client.pull(1)
        await client.pull(3)

        tally = broker.parts.stats.pulled("G", "T")
        assert (tally.count, tally.calls) == (5, 2)
        assert tally.bytes == sum(message.size for message in broker.stored()) * 2 - broker.stored()[0].size
        assert broker.parts.stats.missed == 1
