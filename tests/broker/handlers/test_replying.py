"""Replies to request messages: delivered to the requesting client, stored in their topic, answered as by Apache's
broker.
"""

import asyncio
import logging
from typing import Any

import pytest
from tests.broker.handlers.client_talk import Client, Room, producing, served, settled
from tests.golden import captured, needs_golden
from tests.net.talk import until
from tests.store.kit import HOST

from pocketmq.codes import RequestCode, ResponseCode, SysFlag
from pocketmq.model import properties as names
from pocketmq.model.message_id import OffsetId
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.protocol.api.messages import PushReplyMessage, SendMessage, SendMessageV2, SendReply
from pocketmq.protocol.command import Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run

REPLY = RequestCode.SEND_REPLY_MESSAGE
REPLY_V2 = RequestCode.SEND_REPLY_MESSAGE_V2
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKED_BY = {names.REPLY_TO_CLIENT: "asker", names.CORRELATION_ID: "7", names.MESSAGE_TYPE: "reply"}


def header(kind: type[SendMessage] = SendMessageV2, **changes: Any) -> SendMessage:
    fields = {
        "producer_group": "repliers",
        "topic": TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 3,
        "properties": format_properties(ASKED_BY),
    }
    return kind(**{**fields, **changes})


async def both(room: Room) -> tuple[Client, Client]:
    """The client that sends a request and waits, and the client that replies."""
    return await room.connect("asker", producing("askers")), await room.connect("replier")


def kept(room: Room) -> list[bytes]:
    return room.disk.bodies(TOPIC)


async def never(command: Command) -> Command:
    await asyncio.sleep(3600)
    return command.reply()


@pytest.mark.parametrize(("code", "kind"), [(REPLY, SendMessage), (REPLY_V2, SendMessageV2)])
def test_a_reply_is_pushed_to_the_requesting_client_and_stored(code: RequestCode, kind: type[SendMessage]) -> None:
    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)

            answer = await replier.done(code, header(kind), b"the answer")

            (told,) = asker.told
            pushed = PushReplyMessage.decode(told.ext)
            assert (told.code, told.is_oneway, told.body) == (PUSH, False, b"the answer")
            assert (pushed.producer_group, pushed.topic, pushed.flag) == ("repliers", TOPIC, 3)
            assert pushed.store_host == "127.0.0.1:10911"
            assert pushed.store_timestamp == int(parse_properties(pushed.properties or "")[names.PUSH_REPLY_TIME])
            reply = SendReply.decode(answer.ext)
            stored = room.store.message(OffsetId.parse(reply.msg_id).offset)
            assert stored is not None
            assert (stored.topic, stored.body, stored.flag) == (TOPIC, b"the answer", 3)
            assert stored.properties == ASKED_BY | {names.REGION: "DefaultRegion", names.TRACE_ON: "true"}
            assert str(stored.born_host) == pushed.born_host
            assert (reply.queue_id, reply.queue_offset, reply.transaction_id) == (0, 0, None)
            tally = room.state.stats.sent(TOPIC)
            assert (tally.count, tally.bytes) == (1, 10)
            assert (room.replies.delivered, room.replies.undelivered) == (1, 0)

    run(main())


def test_a_compressed_reply_stays_compressed_and_is_no_transaction() -> None:
    compressed = SysFlag.COMPRESSED | 3 << SysFlag.COMPRESSION_SHIFT

    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)

            answer = await replier.done(REPLY_V2, header(sys_flag=compressed | SysFlag.TRANSACTION_PREPARED), b"body")

            stored = room.store.message(OffsetId.parse(SendReply.decode(answer.ext).msg_id).offset)
            assert stored is not None
            assert stored.sys_flag == compressed
            assert PushReplyMessage.decode(asker.told[0].ext).sys_flag == compressed
            assert kept(room) == [b"body"]

    run(main())


def test_a_reply_that_is_not_stored_is_answered_with_an_empty_id() -> None:
    async def main() -> None:
        async with served(store_reply_messages=False, region="north", trace_on=False) as room:
            _, replier = await both(room)

            answer = await replier.done(REPLY_V2, header(), b"the answer")

            assert answer.ext == {
                "msgId": "0",
                "queueId": "0",
                "queueOffset": "0",
                "MSG_REGION": "north",
                "TRACE_ON": "false",
            }
            assert kept(room) == []

    run(main())


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"a": "b"}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({names.REPLY_TO_CLIENT: "gone"}, "push reply message fail, channel of <gone> not found."),
    ],
)
def test_a_reply_without_receiver_is_stored_and_its_sender_gets_an_error(
    properties: dict[str, str], remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with served() as room:
            _, replier = await both(room)
            lost = header(properties=format_properties(properties))

            for _ in range(2):
                answer = await replier.ask(REPLY_V2, lost, b"lost")

            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
            assert SendReply.decode(answer.ext).queue_offset == 1
            assert kept(room) == [b"lost", b"lost"]
            assert room.replies.undelivered == 2
            assert len([line for line in caplog.records if "Cannot deliver a reply" in line.message]) == 1

    run(main())


def test_a_reply_that_the_client_refuses_or_answers_late_counts_as_undelivered() -> None:
    async def main() -> None:
        async with served(client_call_ms=2_000) as room:
            asker, replier = await both(room)

            asker.answers[PUSH] = never
            late = await replier.ask(REPLY_V2, header(), b"1")
            asker.answers[PUSH] = lambda command: command.reply(1, "who asked?")
            refused = await replier.ask(REPLY_V2, header(), b"2")
            del asker.answers[PUSH]
            await replier.done(REPLY_V2, header(), b"3")

            assert [late.code, refused.code] == [ResponseCode.SYSTEM_ERROR] * 2
            assert (late.remark or "").startswith("push reply message to asker fail: ")
            assert "no response to request 326 within 2" in (late.remark or "")
            assert refused.remark == "push reply message to asker fail: SYSTEM_ERROR (1): who asked?"
            assert kept(room) == [b"1", b"2", b"3"]
            assert (room.replies.delivered, room.replies.undelivered) == (1, 2)

    run(main())


def test_a_reply_to_a_client_lost_during_the_push_counts_as_undelivered() -> None:
    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)
            asker.answers[PUSH] = never
            replying = asyncio.ensure_future(replier.ask(REPLY_V2, header(), b"1"))
            await until(lambda: asker.told)

            asker.peer.connection.abort()
            answer = await replying

            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert room.members.producers.find_client("asker") is None

    run(main())


def test_a_reply_that_cannot_be_stored_is_still_delivered(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)

            for _ in range(2):
                answer = await replier.done(REPLY_V2, header(), bytes(3000))

            assert SendReply.decode(answer.ext).msg_id == "0"
            assert [len(told.body) for told in asker.told] == [3000, 3000]
            assert kept(room) == []
            assert room.replies.unstored == 2
            assert room.state.stats.sent(TOPIC).count == 0
            warnings = [line for line in caplog.records if line.levelno == logging.WARNING]
            assert len([line for line in warnings if "max_message_bytes" in line.message]) == 1

    run(main())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "../up"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"topic": "New", "default_topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "New", "properties": "a\x01b\x01c"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_a_forbidden_reply_is_not_delivered(changes: dict[str, Any], code: ResponseCode) -> None:
    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)

            answer = await replier.ask(REPLY_V2, header(**changes), b"body")

            assert answer.code == code
            assert answer.remark
            assert asker.told == []
            assert "New" not in room.topics
            assert room.store.end == 0

    run(main())


def test_a_reply_without_a_queue_gets_one() -> None:
    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)

            answer = await replier.done(REPLY_V2, header(topic="New", queue_id=-1), b"body")

            assert 0 <= SendReply.decode(answer.ext).queue_id < 4
            assert room.announced == 1
            assert [told.body for told in asker.told] == [b"body"]

    run(main())


def test_a_replier_that_disconnects_during_the_push_leaves_nothing_open() -> None:
    async def main() -> None:
        async with served() as room:
            asker, replier = await both(room)
            asker.answers[PUSH] = never
            replying = asyncio.ensure_future(replier.ask(REPLY_V2, header(), b"1"))
            await until(lambda: asker.told)

            replier.peer.connection.abort()
            await settled()

            assert isinstance(replying.exception(), Exception)
            assert [peer.in_flight for peer in room.server.peers] == [0]
            assert kept(room) == []

    run(main())


@pytest.mark.parametrize(("synced", "code"), [(True, ResponseCode.SUCCESS), (False, ResponseCode.FLUSH_DISK_TIMEOUT)])
def test_a_reply_is_synced_before_its_answer_with_sync_flush(synced: bool, code: ResponseCode) -> None:
    async def main() -> None:
        async with served(flush=FlushMode.SYNC) as room:
            asker, replier = await both(room)
            replying = asyncio.ensure_future(replier.ask(REPLY_V2, header(), b"1"))
            await settled()
            is_early = replying.done()

            if not synced:
                await asyncio.sleep(room.store.settings.sync_timeout_ms / 1000)
            room.store.tick()
            if synced:
                room.disk.run_workers("sync")
            answer = await replying

            assert not is_early
            assert answer.code == code
            assert len(asker.told) == 1

    run(main())


# the real broker

_VOLATILE = ("bornHost", "storeHost", "storeTimestamp", "msgId")


def _steady(command: Command) -> dict[str, Any]:
    """The fields of a captured command or of ours; of fields that differ from run to run, only the names."""
    ext: dict[str, Any] = {name: None if name in _VOLATILE else text for name, text in (command.ext or {}).items()}
    if "properties" in ext:
        properties = parse_properties(ext["properties"])
        ext["properties"] = properties | {names.PUSH_REPLY_TIME: "", names.REGION: "", names.TRACE_ON: ""}
    return ext


@needs_golden
@pytest.mark.parametrize("release", ["5.3.3", "4.9.7"])
def test_a_reply_matches_the_captured_conversation(release: str) -> None:
    frames = captured(f"wire/{release}/json/requestReply.jsonl")
    request, push, answer = (
        next(one.command for one in frames if one.answers == answers and (answers or one.command.code) == code)
        for answers, code in ((None, REPLY_V2), (None, PUSH), (REPLY_V2, REPLY_V2))
    )
    client_id = parse_properties((request.ext or {})["i"])[names.REPLY_TO_CLIENT]

    async def main() -> None:
        async with served() as room:
            asker = await room.connect(client_id, producing("askers"))
            replier = await room.connect("replier")

            ours = await replier.peer.call(request, 600)

            (told,) = asker.told
            assert (told.code, told.body, _steady(told)) == (push.code, push.body, _steady(push))
            assert (ours.code, ours.remark, _steady(ours)) == (answer.code, answer.remark, _steady(answer))
            assert OffsetId.parse((ours.ext or {})["msgId"]).host.packed() == HOST

    run(main())
