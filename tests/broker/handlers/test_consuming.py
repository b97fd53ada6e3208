"""The progress of a group over the wire: where a member starts, and what it commits."""

import asyncio

import pytest
from tests.broker.handlers.pulling_kit import filled
from tests.broker.running import RunningBroker, in_virtual_time, request, running, settled

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.names import parse_topic
from pocketmq.protocol.api.messages import QueryConsumerOffset, UpdateConsumerOffset
from pocketmq.protocol.command import Command

DONE, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND
QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


def told(answer: Command) -> tuple[int, int | None]:
    """Code and offset."""
    offset = (answer.ext or {}).get("offset")
    return answer.code, None if offset is None else int(offset)


def make_group(broker: RunningBroker, name: str = "G") -> None:
    broker.parts.state.groups.ensure(name, 0)


# where a member begins


@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_a_member_starts_at_the_offset_of_the_group(binary: bool) -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        make_group(broker)

        await client.ask(UPDATE, UpdateConsumerOffset("G", "T", 0, 2), binary=binary)
        answer = await client.ask(QUERY, QueryConsumerOffset("G", "T", 0), binary=binary)

        assert told(answer) == (DONE, 2)


@pytest.mark.parametrize("zero", [None, True])
@in_virtual_time
async def test_a_new_group_starts_at_zero_while_the_first_message_is_in_memory(zero: bool | None) -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent()

        assert told(await client.offset(zero=zero)) == (DONE, 0)


@in_virtual_time
async def test_a_new_group_chooses_its_start_when_the_first_message_is_old() -> None:
    async with running(store={"memory_bytes": 500}) as broker:
        client = await broker.connect()
        for _ in range(20):
            await client.sent()

        answer = await client.offset()

        assert told(answer) == (NOT_FOUND, None)
        assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


@in_virtual_time
async def test_a_new_group_chooses_its_start_when_the_first_message_is_deleted() -> None:
    async with running(store={"log_file_bytes": 4096, "retention_hours": 0}) as broker:
        client = await broker.connect()
        for _ in range(40):
            await client.sent(b"x" * 300)
        await asyncio.sleep(15)
        assert broker.store.drop_expired()
        await asyncio.sleep(1)

        assert told(await client.offset()) == (NOT_FOUND, None)


@pytest.mark.parametrize("was_made", [False, True])
@in_virtual_time
async def test_a_new_group_starts_at_zero_in_a_queue_that_never_had_a_message(was_made: bool) -> None:
    async with running() as broker:
        broker.make_topic()
        if was_made:
            broker.store.queue(parse_topic("T"), 0)
        client = await broker.connect()

        asked = await client.offset()
        await client.sent(b"first")
        answer = await client.pull(0)

        assert told(asked) == (DONE, 0)
        assert answer.code == DONE


@pytest.mark.parametrize(
    ("topic", "queue_id", "zero"),
    [("T", 0, False), ("T", 4, None), ("T", -1, None), ("None", 0, None), ("%RETRY%G", 0, None)],
    ids=["does not want zero", "queue too far", "negative queue", "no topic", "no retry topic yet"],
)
@in_virtual_time
async def test_a_missing_queue_or_a_query_that_excludes_zero_has_no_offset(
    topic: str, queue_id: int, zero: bool | None
) -> None:
    async with running() as broker:
        broker.make_topic("T", 4)
        client = await broker.connect()
        await client.sent()

        answer = await client.offset("G", topic, queue_id, zero)

        assert told(answer) == (NOT_FOUND, None)
        assert (answer.remark or "").startswith("Not found, ")


@in_virtual_time
async def test_a_query_that_excludes_zero_still_gets_a_committed_offset() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent()
        make_group(broker)
        await client.commit(0)

        assert told(await client.offset(zero=False)) == (DONE, 0)


@in_virtual_time
async def test_after_a_reset_a_member_starts_at_the_new_offset() -> None:
    async with running() as broker:
        client = await filled(broker, 5)
        make_group(broker)
        await client.commit(5)

        broker.parts.state.offsets.reset("G", "T", {0: 1})
        ignored = await client.commit(5)

        assert ignored.code == DONE
        assert told(await client.offset()) == (DONE, 1)
        await client.pull(5)
        await client.commit(2)
        assert told(await client.offset()) == (DONE, 2)


@pytest.mark.parametrize("code", [QUERY, UPDATE])
@in_virtual_time
async def test_a_request_without_a_field_is_answered_with_its_name(code: RequestCode) -> None:
    async with running() as broker:
        client = await broker.connect()

        answers = [await client.ask(code, None, binary=binary, topic="T") for binary in (False, True)]

        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR] * 2
        assert all("consumerGroup" in (answer.remark or "") for answer in answers)


# how far it is


@in_virtual_time
async def test_a_commit_overwrites_the_previous_offset() -> None:
    async with running() as broker:
        client = await filled(broker, 7)
        make_group(broker)

        answers = [await client.commit(offset) for offset in (6, 3, 7)]

        assert [(answer.code, answer.ext) for answer in answers] == [(DONE, {})] * 3
        assert told(await client.offset()) == (DONE, 7)
        assert broker.parts.state.offsets.commits_lowered == 1


@in_virtual_time
async def test_a_commit_beyond_the_end_of_the_queue_is_ignored() -> None:
    async with running() as broker:
        client = await filled(broker, 7)
        make_group(broker)
        await client.commit(3)

        answers = [await client.commit(offset) for offset in (8, 2**62)]

        assert [answer.code for answer in answers] == [DONE] * 2
        assert told(await client.offset()) == (DONE, 3)
        assert broker.parts.state.offsets.commits_ignored == 2


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset", "code"),
    [
        ("None", "None", -1, -1, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("G", "None", -1, -1, ResponseCode.TOPIC_NOT_EXIST),
        ("G", "T", -1, 3, ResponseCode.INVALID_PARAMETER),
        ("G", "T", 0, -1, ResponseCode.INVALID_PARAMETER),
    ],
)
@in_virtual_time
async def test_an_invalid_commit_is_refused_in_the_order_of_apache(
    group: str, topic: str, queue_id: int, offset: int, code: ResponseCode
) -> None:
    async with running() as broker:
        client = await broker.connect()
        broker.make_topic()
        make_group(broker)

        answer = await client.commit(offset, group, topic, queue_id)

        assert answer.code == code
        assert answer.remark
        assert not broker.parts.state.offsets.is_changed


@in_virtual_time
async def test_one_way_commits_are_accepted_and_not_answered() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        make_group(broker)

        for group in ("G", "None"):
            client.peer.oneway(request(UPDATE, UpdateConsumerOffset(group, "T", 0, 2)))
        await settled()

        assert broker.parts.state.offsets.stored("G", "T", 0) == 2
        assert client.peer.unmatched == 0


@in_virtual_time
async def test_a_commit_survives_a_restart_of_the_broker() -> None:
    async with running() as broker:
        client = await broker.connect()
        await client.sent()
        make_group(broker)
        await client.commit(1)
        disk = broker.disk

    async with running(disk=disk) as again:
        client = await again.connect()
        assert told(await client.offset()) == (DONE, 1)
