"""Who may pull, and by which subscription."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.handlers.pulling_kit import bodies, filled
from tests.broker.running import RunningBroker, in_virtual_time, pulling, running

from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.api.messages import PullMessage
from pocketmq.protocol.bodies.clients import MessageModel, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig

pytestmark = pytest.mark.usefixtures("twin")
FOUND, NOTHING, RETRY, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
PULL = RequestCode.PULL_MESSAGE


# subscriptions that heartbeats reported


def by_heartbeat(offset: int = 0, **fields: Any) -> PullMessage:
    return pulling(offset, flags=0, **fields)


@in_virtual_time
async def test_a_pull_without_a_subscription_needs_a_heartbeat_with_one() -> None:
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
async def test_a_newer_heartbeat_applies_from_the_next_pull_on() -> None:
    async with running() as broker:
        client = await filled(broker, 4, tags="ab")
        found = []

        for number, tag in enumerate("aba"):
            await client.beat("G", Subscription.parse("T", tag, sub_version=number))
            found.append(bodies(await client.ask(PULL, by_heartbeat(version=number))))

        assert found == [[b"0", b"2"], [b"1", b"3"], [b"0", b"2"]]


@in_virtual_time
async def test_the_subscription_in_a_pull_replaces_that_of_the_heartbeat() -> None:
    async with running() as broker:
        client = await filled(broker, 4, tags="ab")
        await client.beat("G", Subscription.parse("T", "a", sub_version=1))

        answer = await client.pull(0, expression="b", version=99)

        assert bodies(answer) == [b"1", b"3"]


@in_virtual_time
async def test_a_pull_with_an_invalid_expression_in_the_heartbeat_is_refused() -> None:
    async with running() as broker:
        client = await filled(broker, 1)
        wrong = Subscription("T", "n >", expression_type=ExpressionType.SQL92, sub_version=1)
        await client.beat("G", wrong)

        answer = await client.ask(PULL, by_heartbeat(version=1))

        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "column 4" in (answer.remark or "")


@in_virtual_time
async def test_retries_are_filtered_by_the_subscription_of_their_original_topic() -> None:
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
    return lambda broker: broker.parts.state.groups.put([SubscriptionGroupConfig("G", **fields)], 0)


def forbid(broker: RunningBroker) -> None:
    broker.parts.state.groups.set_readable("G", "T", False, 0)


def unreadable(broker: RunningBroker) -> None:
    broker.parts.state.topics.put([TopicConfig("T", 4, 4, 2)], 0)


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
        r"contains '\*'",
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
async def test_a_refused_pull_gets_the_reason_in_the_order_of_apache(case: str, flags: int) -> None:
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
async def test_a_group_that_may_not_broadcast_is_refused_before_its_versions_are_compared() -> None:
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
async def test_lite_pulls_can_be_switched_off() -> None:
    async with running(lite_pull=False) as broker:
        client = await filled(broker, 1)

        light = await client.ask(RequestCode.LITE_PULL_MESSAGE, pulling(0))

        assert light.code == ResponseCode.NO_PERMISSION
        assert "lite pull consumer is forbidden" in (light.remark or "")
        assert (await client.pull(0)).code == FOUND


@in_virtual_time
async def test_the_first_pull_creates_a_new_group_if_groups_may_be_created() -> None:
    for auto_create, code in ((True, FOUND), (False, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)):
        async with running(auto_create_group=auto_create) as broker:
            client = await filled(broker, 1)

            assert (await client.pull(0)).code == code
            assert ("G" in broker.parts.state.groups) is auto_create


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_pull_without_a_field_is_answered_with_its_name(binary: bool) -> None:
    async with running() as broker:
        client = await filled(broker, 1)

        answer = await client.ask(PULL, None, binary=binary, topic="T")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "consumerGroup" in (answer.remark or "")
