"""The codes of the real broker for every kind of request, and what forged or late handles do."""

import asyncio
from typing import Any

import pytest
from tests.broker.pop.pops import ack, ack_all, batch_of, bodies, change, pop, popping, with_messages
from tests.broker.running import in_virtual_time, running

from pocketmq.broker.settings import PopSettings, TimerSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.administration import GetConsumeStats
from pocketmq.protocol.api.messages import ChangeInvisibleTime, Notification, PeekMessage, PollingInfo, ResetOffset
from pocketmq.protocol.bodies.clients import (
    QueueAssignments,
    RequestMode,
    RequestModes,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.topics import ConsumeStats
from pocketmq.protocol.command import Command

MINUTE = 60_000


@in_virtual_time
async def test_a_pop_is_refused_with_the_codes_of_rocketmq() -> None:
    async with running(auto_create_group=False) as broker:
        client = await with_messages(broker, 3)
        broker.make_topic("WriteOnly", perm=2)
        broker.parts.state.groups.put([SubscriptionGroupConfig("G"), SubscriptionGroupConfig("Off", False)], 0)
        now_ms = broker.clock.now_ms()

        async def code(topic: str = "T", **fields: Any) -> int:
            return (await client.ask(RequestCode.POP_MESSAGE, popping(topic, **fields))).code

        assert await code(born_ms=now_ms - 10_000, poll_ms=9_000) == ResponseCode.POLLING_TIMEOUT
        assert await code(most=33) == ResponseCode.INVALID_PARAMETER
        assert await code("Unknown") == ResponseCode.TOPIC_NOT_EXIST
        assert await code("WriteOnly") == ResponseCode.NO_PERMISSION
        assert await code(queue_id=7) == ResponseCode.INVALID_PARAMETER
        assert await code(group="Nobody") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await code(group="Off") == ResponseCode.NO_PERMISSION
        assert await code(exp_type="SQL92", exp="a >") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        refused = await client.ask(RequestCode.POP_MESSAGE, popping(most=33))
        assert refused.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        assert await bodies(client, most=0) == []
        broker.change(timer=TimerSettings(enabled=False))
        assert await code() == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("kind", "expression", "found"),
    [("TAG", "a || b", [b"a", b"b"]), ("SQL92", "n > 1", [b"b", b"c"]), (None, None, 3)],
)
@in_virtual_time
async def test_a_pop_gets_what_its_filter_matches(kind: str | None, expression: str | None, found: Any) -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client = await broker.connect()
        for number, tag in enumerate("abc"):
            await client.sent(tag.encode(), properties={"TAGS": tag, "n": str(number + 1)})

        got = await bodies(client, exp_type=kind, exp=expression)

        assert got == found or len(got) == found
        assert broker.parts.state.positions.get(("G", "T", 0)) == 3


@in_virtual_time
async def test_a_new_group_begins_where_its_mode_says() -> None:
    async with running(pop=PopSettings(begin_at_first_in_memory=False)) as broker:
        client = await with_messages(broker, 3)

        assert await bodies(client, group="First", init_mode=0) == [b"0", b"1", b"2"]
        assert await bodies(client, group="Last", init_mode=1) == [b"2"]
        broker.change(pop=PopSettings())
        assert await bodies(client, group="Young", init_mode=1) == [b"0", b"1", b"2"]


@in_virtual_time
async def test_a_reset_moves_a_group_while_messages_are_leased() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        leases = await pop(client, most=2)
        header = ResetOffset("G", "T", -1, is_force=True, queue_id=0, offset=1)

        await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

        assert await bodies(client) == [b"1", b"2"]
        assert (await ack_all(client, leases)).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_acks_are_refused_with_the_codes_of_rocketmq() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        one, *_ = await pop(client)

        async def code(**changes: Any) -> int:
            return (await ack(client, one, **changes)).code

        assert await code(topic="Unknown") == ResponseCode.TOPIC_NOT_EXIST
        assert await code(queue_id=9) == ResponseCode.MESSAGE_ILLEGAL
        assert await code(queue_id=-1) == ResponseCode.MESSAGE_ILLEGAL
        assert await code(offset=4) == ResponseCode.NO_MESSAGE
        assert await code(offset=-1) == ResponseCode.NO_MESSAGE
        assert await code(extra_info="forged") == ResponseCode.SYSTEM_ERROR
        assert await code(extra_info=one.handle.text().rpartition(" broker-a")[0]) == ResponseCode.SYSTEM_ERROR
        assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE)).code == ResponseCode.NO_MESSAGE
        assert (await client.ask(RequestCode.BATCH_ACK_MESSAGE, body=b'{"acks":[]}')).code == ResponseCode.NO_MESSAGE
        assert len(broker.parts.state.leases) == 1


@in_virtual_time
async def test_a_handle_of_another_member_succeeds_and_changes_nothing() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        leases = await pop(client, invisible_ms=5_000)
        one = leases[0]
        before = broker.store.end

        for forged in (
            one.handle._replace(pop_ms=one.handle.pop_ms - 1),
            one.handle._replace(pop_ms=one.handle.pop_ms + 10**9),
            one.handle._replace(start=1),
            one.handle._replace(broker="broker-b"),
        ):
            answer = await ack(client, one._replace(handle=forged))
            assert answer.code == ResponseCode.SUCCESS
        assert (await ack(client, one, group="Other")).code == ResponseCode.SUCCESS
        assert (await ack_all(client, leases, group="Other")).code == ResponseCode.SUCCESS

        assert broker.store.end - before < 1_000  # one may be of a lease from before the start, and is written
        await asyncio.sleep(6)
        assert sorted(await bodies(client)) == [b"0", b"1", b"2"]


@in_virtual_time
async def test_acknowledging_twice_or_late_is_a_success() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        first, second = await pop(client, invisible_ms=2_000)
        await ack(client, first)
        end = broker.store.end

        assert (await ack(client, first)).code == ResponseCode.SUCCESS
        assert broker.store.end == end
        await asyncio.sleep(3)
        assert (await ack(client, second)).code == ResponseCode.SUCCESS

        (again,) = await pop(client)
        assert again.body == b"1"


@in_virtual_time
async def test_a_failed_change_has_its_numbers_too() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        one, *_ = await pop(client)
        changes = {"offset": 3}, {"queue_id": 5}, {"topic": "Unknown"}, {"extra_info": "forged"}

        answers = []
        for change_of in changes:
            header = ChangeInvisibleTime("G", "T", 0, one.handle.text(), 0, MINUTE)
            for name, value in change_of.items():
                setattr(header, name, value)
            answers.append(await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))

        assert [answer.code for answer in answers] == [208, 13, 17, 1]
        assert all(answer.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"} for answer in answers)


@in_virtual_time
async def test_a_lost_lease_cannot_be_extended() -> None:
    async with running() as broker:
        client = await with_messages(broker, 1)
        (first,) = await pop(client, invisible_ms=1_000)
        await asyncio.sleep(1.5)
        (second,) = await pop(client)

        await change(client, first, 1_000)
        await asyncio.sleep(5)

        assert await bodies(client) == []
        await ack(client, second)
        await asyncio.sleep(90)
        assert await bodies(client) == []


@pytest.mark.parametrize("invisible_ms", [2**63 - 1, -1, -(2**63), 0])
@in_virtual_time
async def test_impossible_times_are_brought_to_the_nearest_possible_one(invisible_ms: int) -> None:
    async with running() as broker:
        client = await with_messages(broker, 1)

        (one,) = await pop(client, invisible_ms=invisible_ms)

        assert one.handle.invisible_ms == (3 * 24 * 3600 * 1000 if invisible_ms > 0 else 0)
        header = ChangeInvisibleTime("G", "T", 0, one.handle.text(), 0, invisible_ms)
        changed = await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert changed.code == (ResponseCode.SYSTEM_ERROR if invisible_ms > 0 else ResponseCode.SUCCESS)


@in_virtual_time
async def test_waiting_pops_are_limited_by_group_and_in_total() -> None:
    async with running(pop=PopSettings(max_waiting_per_queue=3, max_waiting=5)) as broker:
        broker.make_topic()
        client = await broker.connect()

        def ask(group: str) -> "asyncio.Task[Command]":
            return asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, popping(group=group, poll_ms=10_000)))

        first = [ask("A") for _ in range(4)]
        await asyncio.sleep(0.1)
        others = [ask("B") for _ in range(3)]
        await asyncio.sleep(0.1)
        info = await client.ask(RequestCode.POLLING_INFO, PollingInfo("A", "T", -1))
        codes = [(await one).code for one in (*first, *others)]

        assert info.ext == {"pollingNum": "3"}
        assert sorted(codes) == [209, 209, *[210] * 5]
        assert len(broker.parts.state.waiting_pops) == 0


@in_virtual_time
async def test_ten_thousand_pops_wait_and_leave_nothing() -> None:
    async with running() as broker:
        broker.make_topic()
        clients = [await broker.connect() for _ in range(5)]
        waiting = [
            asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, popping(group=f"G{at % 1000}", poll_ms=5_000)))
            for at in range(2_000)
            for client in clients
        ]
        await asyncio.sleep(1)
        assert len(broker.parts.state.waiting_pops) == 10_000

        codes = {(await one).code for one in waiting}

        assert codes == {ResponseCode.POLLING_TIMEOUT}
        assert not broker.parts.state.waiting_pops._pops
        assert not broker.parts.state.waiting_pops._by_topic


@in_virtual_time
async def test_a_lost_connection_leaves_no_held_pop() -> None:
    async with running() as broker:
        broker.make_topic()
        client = await broker.connect()
        waiting = asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, popping(poll_ms=20_000)))
        await asyncio.sleep(0.1)
        client.peer.close()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.1)

        assert len(broker.parts.state.waiting_pops) == 0


@in_virtual_time
async def test_a_notification_says_that_there_are_messages() -> None:
    async with running() as broker:
        broker.make_topic(queues=1)
        client, producer = await broker.connect(), await broker.connect()

        async def ask(poll_ms: int) -> Any:
            header = Notification("G", "T", -1, poll_ms, 0)
            return (await client.ask(RequestCode.NOTIFICATION, header)).ext

        assert await ask(0) == {"hasMsg": "false", "pollingFull": "false"}
        waiting = asyncio.ensure_future(ask(20_000))
        await asyncio.sleep(1)
        await producer.sent()
        assert await waiting == {"hasMsg": "true", "pollingFull": "false"}
        assert await ask(0) == {"hasMsg": "true", "pollingFull": "false"}


@in_virtual_time
async def test_a_peek_leases_nothing() -> None:
    async with running() as broker:
        client = await with_messages(broker, 2)
        header = PeekMessage("T", 0, 32, "G")

        peeked = await client.ask(RequestCode.PEEK_MESSAGE, header)

        assert (peeked.code, len(peeked.body) > 0) == (0, True)
        assert await bodies(client) == [b"0", b"1"]
        assert (await client.ask(RequestCode.PEEK_MESSAGE, header)).code == ResponseCode.PULL_NOT_FOUND


@in_virtual_time
async def test_the_mode_of_a_group_is_set_before_its_first_member_starts() -> None:
    async with running() as broker:
        broker.make_topic()
        client = await broker.connect()

        answer = await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=RequestMode("T", "New", "POP").encode())

        assert answer.code == ResponseCode.SUCCESS
        assert broker.parts.state.groups.get("New") is not None


@in_virtual_time
async def test_an_export_of_leases_succeeds_as_all_of_them_are_in_the_log() -> None:
    async with running() as broker:
        client = await broker.connect()

        assert (await client.ask(RequestCode.POP_ROLLBACK)).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_modes_are_kept_and_decide_on_assignments() -> None:
    async with running() as broker:
        broker.make_topic(queues=2)
        client = await broker.connect()
        await client.beat("G")

        async def assigned() -> list[tuple[int, str]]:
            body = b'{"clientId":"client","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}'
            answer = await client.ask(RequestCode.QUERY_ASSIGNMENT, body=body)
            found = QueueAssignments.decode(answer.body).message_queue_assignments
            return [(one.message_queue.queue_id, one.mode) for one in found or ()]

        async def set_mode(topic: str, group: str, mode: str = "POP") -> int:
            body = RequestMode(topic, group, mode).encode()
            return (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)).code

        assert await assigned() == [(0, "PULL"), (1, "PULL")]
        assert await set_mode("T", "G") == ResponseCode.SUCCESS
        assert await assigned() == [(-1, "POP")]
        assert await set_mode("%RETRY%G", "G") == ResponseCode.NO_PERMISSION
        assert await set_mode("Unknown", "G") == ResponseCode.TOPIC_NOT_EXIST
        assert await set_mode("T", "not a group") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await set_mode("T", "G", "PUSH") == ResponseCode.INVALID_PARAMETER
        modes = await client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert RequestModes.decode(modes.body).message_request_mode_map == {"T": {"G": RequestMode("T", "G", "POP")}}
        saved = broker.store.tables.load("messageRequestMode.json", RequestModes.decode)
        assert saved == RequestModes.decode(modes.body)


def test_a_batch_has_one_entry_for_each_check_point() -> None:
    assert batch_of([]).acks == ()


@in_virtual_time
async def test_the_progress_of_a_group_has_its_leases_and_its_retry_topic() -> None:
    async with running() as broker:
        client = await with_messages(broker, 3)
        await client.beat("G")
        first, *_ = await pop(client, most=3)
        await asyncio.sleep(2)
        await change(client, first, 0)
        await asyncio.sleep(2)
        await pop(client, most=3)
        await asyncio.sleep(2)

        answer = await client.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStats("G"))

        rows = ConsumeStats.decode(answer.body).offset_table
        found = {queue.topic: row for queue, row in rows.items() if row.leased}
        assert {topic: (row.leased, row.pull_offset - row.consumer_offset) for topic, row in found.items()} == {
            "T": (2, 2),
            "%RETRY%G_T": (1, 1),
        }
        now_ms = broker.clock.now_ms()
        assert now_ms - (found["T"].leased_since or 0) == pytest.approx(6000, abs=200)
