"""Requests of administrators to clients through the broker: answers and errors are returned."""

import asyncio
from typing import NamedTuple

import pytest
from tests.broker.handlers.client_talk import Client, Room, consuming, served
from tests.golden import captured, needs_golden
from tests.net.talk import until
from tests.store.kit import HOST

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.message_id import offset_id
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.messages import ConsumeMessageDirectly, GetConsumerRunningInfo, GetConsumerStatus
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import ConsumerStatus, TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_record
from pocketmq.testing import run

RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
FROM_CLIENT = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
QUEUE = MessageQueue("T", "broker-a", 0)


async def never(command: Command) -> Command:
    await asyncio.sleep(3600)
    return command.reply()


def standing_at(offset: int) -> bytes:
    return ConsumerStatus({QUEUE: offset}).encode()


async def member(room: Room, client_id: str = "c1", *, version: int = 479) -> Client:
    client = await room.connect(client_id, consuming("g"), version=version)
    await asyncio.sleep(0.01)
    client.take_covered()
    return client


# running info and direct consumption


def test_running_info_is_requested_from_the_client_and_returned() -> None:
    async def main() -> None:
        async with served() as room:
            client = await member(room)
            client.answers[RUNNING_INFO] = lambda command: command.reply(0, "a remark of its own", body=b"{info}")
            administrator = await room.connect("admin")

            answer = await administrator.ask(RUNNING_INFO, GetConsumerRunningInfo("g", "c1", True))

            assert (answer.code, answer.remark, answer.body) == (0, "a remark of its own", b"{info}")
            assert [one.ext for one in client.told if one.code == RUNNING_INFO] == [
                {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
            ]

    run(main())


def test_an_error_of_the_client_is_returned_unchanged() -> None:
    async def main() -> None:
        async with served() as room:
            client = await member(room)
            client.answers[RUNNING_INFO] = lambda command: command.reply(1, "The Consumer Group not exist")
            administrator = await room.connect("admin")

            answer = await administrator.ask(RUNNING_INFO, GetConsumerRunningInfo("g", "c1"))

            assert (answer.code, answer.remark) == (1, "The Consumer Group not exist")

    run(main())


@pytest.mark.parametrize(("group", "client_id"), [("g", "nobody"), ("none", "c1")])
def test_a_client_that_is_not_online_is_not_called(group: str, client_id: str) -> None:
    async def main() -> None:
        async with served() as room:
            await member(room)
            administrator = await room.connect("admin")

            info = await administrator.ask(RUNNING_INFO, GetConsumerRunningInfo(group, client_id))
            directly = await administrator.ask(DIRECTLY, ConsumeMessageDirectly(group, client_id, "00" * 16))

            expected = ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            assert [(one.code, one.remark) for one in (info, directly)] == [expected, expected]

    run(main())


def test_a_client_with_an_old_version_is_not_called() -> None:
    async def main() -> None:
        async with served() as room:
            client = await member(room, version=61)
            administrator = await room.connect("admin")

            answer = await administrator.ask(RUNNING_INFO, GetConsumerRunningInfo("g", "c1"))

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "please upgrade it to V3_1_8_SNAPSHOT" in (answer.remark or "")
            assert client.told == []

    run(main())


def test_a_client_that_does_not_answer_in_time_keeps_its_connection() -> None:
    async def main() -> None:
        async with served(client_call_ms=7_000) as room:
            client = await member(room)
            client.answers[RUNNING_INFO] = never
            administrator = await room.connect("admin")
            started = room.clock.monotonic()

            answer = await administrator.ask(RUNNING_INFO, GetConsumerRunningInfo("g", "c1"))

            assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
            assert (answer.remark or "").startswith("consumer <g> <c1> Timeout: ")
            assert 7 <= room.clock.monotonic() - started < 7.1
            assert room.members.client_ids("g") == ("c1",)

    run(main())


def test_losing_a_client_during_a_call_is_not_a_timeout() -> None:
    async def main() -> None:
        async with served() as room:
            client = await member(room)
            client.answers[RUNNING_INFO] = never
            administrator = await room.connect("admin")
            asking = asyncio.ensure_future(administrator.ask(RUNNING_INFO, GetConsumerRunningInfo("g", "c1")))
            await until(lambda: client.told)

            client.peer.connection.abort()
            answer = await asking

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("invoke consumer <g> <c1> Exception: ")

    run(main())


def test_a_client_gets_the_stored_message_to_consume() -> None:
    async def main() -> None:
        async with served() as room:
            room.topics.put([TopicConfig("T", topic_sys_flag=2)], 0)
            room.groups.put([SubscriptionGroupConfig("g", group_sys_flag=4)], 0)
            _, log_offset = room.disk.send(b"one", b"two")
            client = await member(room)
            client.answers[DIRECTLY] = lambda command: command.reply(body=b"{done}")
            administrator = await room.connect("admin")
            msg_id = offset_id(HOST, log_offset)

            answer = await administrator.done(DIRECTLY, ConsumeMessageDirectly("g", "c1", msg_id, topic="T"))

            assert answer.body == b"{done}"
            (told,) = client.told
            assert decode_record(told.body).body == b"two"
            assert ConsumeMessageDirectly.decode(told.ext) == ConsumeMessageDirectly(
                "g", "c1", msg_id, "broker-a", "T", topic_sys_flag=2, group_sys_flag=4
            )

    run(main())


@pytest.mark.parametrize(
    ("msg_id", "remark"),
    [
        (None, "msgId is missing"),
        ("xyz", "has 3 characters instead of 32 or 56"),
        (offset_id(HOST, 999_999), "no message 7F00000100002A9F00000000000F423F is stored"),
    ],
)
def test_a_missing_message_cannot_be_consumed(msg_id: str | None, remark: str) -> None:
    async def main() -> None:
        async with served() as room:
            client = await member(room)

            answer = await client.ask(DIRECTLY, ConsumeMessageDirectly("g", "c1", msg_id))

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert remark in (answer.remark or "")
            assert client.told == []

    run(main())


# where members stand


def test_every_member_reports_its_offsets() -> None:
    async def main() -> None:
        async with served() as room:
            for number, client_id in enumerate(("c1", "c2")):
                client = await member(room, client_id)
                client.answers[FROM_CLIENT] = lambda command, number=number: command.reply(body=standing_at(number))  # type: ignore[misc]
            administrator = await room.connect("admin")

            answer = await administrator.done(STATUS, GetConsumerStatus("T", "g"))

            assert ConsumerStatus.decode(answer.body).consumer_table == {"c1": {QUEUE: 0}, "c2": {QUEUE: 1}}
            assert client.told[-1].ext == {"topic": "T", "group": "g"}

    run(main())


def test_a_single_member_may_be_queried() -> None:
    async def main() -> None:
        async with served() as room:
            clients = [await member(room, client_id) for client_id in ("c1", "c2")]
            for client in clients:
                client.answers[FROM_CLIENT] = lambda command: command.reply(body=standing_at(5))
                client.take_covered()
            administrator = await room.connect("admin")

            answer = await administrator.done(STATUS, GetConsumerStatus("T", "g", "c2"))
            nobody = await administrator.ask(STATUS, GetConsumerStatus("T", "g", "c3"))

            assert ConsumerStatus.decode(answer.body).consumer_table == {"c2": {QUEUE: 5}}
            assert [len(client.told) for client in clients] == [0, 1]
            assert (nobody.code, nobody.remark) == (1, "The Consumer <g> <c3> not online")

    run(main())


def test_members_that_do_not_report_are_named() -> None:
    async def main() -> None:
        async with served(client_call_ms=1_000) as room:
            good, slow, failing, talking = [await member(room, name) for name in ("good", "slow", "failing", "talking")]
            good.answers[FROM_CLIENT] = lambda command: command.reply(body=standing_at(5))
            slow.answers[FROM_CLIENT] = never
            failing.answers[FROM_CLIENT] = lambda command: command.reply(1, "no")
            talking.answers[FROM_CLIENT] = lambda command: command.reply(body=b"nonsense")
            administrator = await room.connect("admin")
            started = room.clock.monotonic()

            answer = await administrator.ask(STATUS, GetConsumerStatus("T", "g"))

            assert (answer.code, answer.remark) == (0, "no answer from slow, failing, talking")
            assert ConsumerStatus.decode(answer.body).consumer_table == {"good": {QUEUE: 5}}
            assert room.clock.monotonic() - started < 1.1

    run(main())


def test_if_no_member_reports_the_answer_is_a_timeout() -> None:
    async def main() -> None:
        async with served() as room:
            client = await member(room)
            client.answers[FROM_CLIENT] = never
            administrator = await room.connect("admin")

            answer = await administrator.ask(STATUS, GetConsumerStatus("T", "g"))

            assert (answer.code, answer.remark) == (ResponseCode.CONSUME_MSG_TIMEOUT, "no answer from c1")

    run(main())


def test_members_with_old_versions_and_groups_without_members_are_not_called() -> None:
    async def main() -> None:
        async with served() as room:
            old = await member(room, version=27)
            administrator = await room.connect("admin")

            refused = await administrator.ask(STATUS, GetConsumerStatus("T", "g"))
            nobody = await administrator.ask(STATUS, GetConsumerStatus("T", "none"))

            assert "please upgrade it to V3_0_7_SNAPSHOT" in (refused.remark or "")
            assert (nobody.code, nobody.remark) == (1, "No Any Consumer online in the consumer group: [none]")
            assert old.told == []

    run(main())


# the real broker


class Relayed(NamedTuple):
    """A captured request of an administrator, the request to the client with its answer, and the response."""

    name: str
    request: Command
    asked: Command
    told: Command
    answer: Command


def relayed(pattern: str) -> list[Relayed]:
    found: list[Relayed] = []
    frames = [one for one in captured(pattern) if (one.answers or one.command.code) in (RUNNING_INFO, DIRECTLY)]
    while frames:
        four, frames = frames[:4], frames[4:]
        if four[1].forward:
            continue
        request, asked, told, answer = (one.command for one in four)
        found.append(Relayed(four[0].name, request, asked, told, answer))
    return found


@needs_golden
@pytest.mark.parametrize("pattern", ["mqadmin/5.3.3/wire/consumeDirectly-*.jsonl", "mqadmin/4.9.7/wire/02*.jsonl"])
def test_calls_and_answers_match_the_captured_broker(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def relay(room: Room, one: Relayed) -> None:
        header = one.request.ext or {}
        client = await room.connect(header["clientId"], consuming(header["consumerGroup"]))
        await asyncio.sleep(0.01)
        client.take_covered()
        client.answers[one.request.code] = lambda command: command.reply(
            one.told.code, one.told.remark, body=one.told.body
        )
        room.make_topic("StayTopic")
        if "msgId" in header:
            monkeypatch.setattr(room.store, "record", lambda _: one.asked.body)
        administrator = await room.connect("admin")

        answer = await administrator.peer.call(one.request, 600)

        (asked,) = client.told
        assert (asked.code, asked.ext, asked.body) == (one.asked.code, one.asked.ext, one.asked.body), one.name
        expected = one.answer.code, one.answer.remark, one.answer.body
        assert (answer.code, answer.remark, answer.body) == expected, one.name

    async def main() -> None:
        exchanges = relayed(pattern)
        for one in exchanges:
            async with served() as room:
                await relay(room, one)
        assert len(exchanges) >= 3

    run(main())
