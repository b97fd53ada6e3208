"""Recalls over a connection, down to the store; and recall handles."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.broker.handlers.client_talk import BROKER, LASTING, Client
from tests.broker.life import Life, life_with, with_timer
from tests.broker.states import state_over
from tests.golden import captured, needs_golden
from tests.net.talk import BRISK, until

from pocketmq.access.accounts import Access, Action, Resource
from pocketmq.broker.handlers.recalling import RecallHandlers, recall_handle_for
from pocketmq.broker.messages import Draft
from pocketmq.broker.settings import BrokerSettings, TimerSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.model.properties import parse_properties
from pocketmq.net.server import Dispatcher, Server, ServerSettings
from pocketmq.protocol.api.messages import RecallMessage
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing import MemoryNetwork, run
from pocketmq.testing.fake_clock import START_MS

BROKER_NAME = BrokerSettings().broker_name


@asynccontextmanager
async def asking(life: Life) -> AsyncIterator[Client]:
    """A client of a broker that does nothing but recall."""
    network = MemoryNetwork(weather=BRISK)
    state = state_over(life.opened)
    state.settings, state.appender = life.settings, life.appender
    state.topics.put([TopicConfig("T"), TopicConfig("U")], 0)
    handlers = RecallHandlers(state)
    dispatcher = Dispatcher([handlers.table()], dict.fromkeys(RequestCode, Access(Resource.TOPIC, Action.PUB)))
    server = Server(BROKER, serve=dispatcher.serve, network=network, settings=ServerSettings(LASTING, drain_s=0.1))
    async with server:
        client = Client("c")
        await network.connect(lambda: client.peer.connection, BROKER)
        yield client


def timed(life: Life, body: bytes, unique_key: str, wait_s: int = 4) -> str:
    """Send a timed message; its recall handle."""
    draft = life.draft(body, TIMER_DELAY_SEC=wait_s, UNIQ_KEY=unique_key)
    life.appender.append(draft)
    handle = recall_handle_for(draft, BROKER_NAME)
    assert handle is not None
    return handle


async def recall(client: Client, handle: str, topic: str = "T") -> Command:
    return await client.ask(RequestCode.RECALL_MESSAGE, RecallMessage(topic, handle, "PG"))


# recalling


def test_a_recalled_message_is_never_delivered() -> None:
    life = Life()
    timed(life, b"kept", "A")
    handle = timed(life, b"recalled", "B")

    async def main() -> None:
        async with asking(life) as client:
            answer = await recall(client, handle)

            assert (answer.code, answer.remark) == (0, "not set any response code")
            assert answer.ext == {"msgId": "B", "MSG_REGION": "DefaultRegion"}

    run(main())
    life.pass_ms(5000)

    assert life.bodies() == [b"kept"]


@needs_golden
def test_the_answer_is_that_of_apache() -> None:
    (theirs,) = [
        frame.command
        for frame in captured("wire/5.3.3/json/timer.jsonl")
        if frame.answers == RequestCode.RECALL_MESSAGE
    ]
    life = Life()
    assert theirs.ext is not None
    handle = timed(life, b"recalled", theirs.ext["msgId"])

    async def main() -> None:
        async with asking(life) as client:
            ours = await recall(client, handle)

            assert (ours.code, ours.remark, ours.ext, ours.body) == (theirs.code, theirs.remark, theirs.ext, b"")

    run(main())


def test_a_recall_is_a_timed_message_that_names_the_recalled_one() -> None:
    life = Life()
    handle = timed(life, b"recalled", "B")

    async def main() -> None:
        async with asking(life) as client:
            await recall(client, handle)

    run(main())

    target, recalling = life.got(TIMER_TOPIC)
    assert recalling.properties["TIMER_DEL_UNIQKEY"] == "T+B"
    assert recalling.properties["TIMER_OUT_MS"] == target.properties["TIMER_OUT_MS"]
    assert recalling.properties["UNIQ_KEY"] == "B"
    assert recalling.body


@pytest.mark.parametrize(
    ("handle", "topic", "code", "remark"),
    [
        ("not base64!", "T", ResponseCode.ILLEGAL_OPERATION, "recall failed, decode handle error"),
        ("AAAA", "T", ResponseCode.ILLEGAL_OPERATION, "recall failed, decode handle error"),
        (RecallHandle("T", BROKER_NAME, START_MS + 5000, "U"), "U", 604, "recall failed, topic not match"),
        (RecallHandle("T", "other", START_MS + 5000, "U"), "T", 604, "recall failed, broker service not available"),
        (RecallHandle("T", BROKER_NAME, START_MS, "U"), "T", 604, "recall failed, timestamp invalid"),
        (RecallHandle("T", BROKER_NAME, START_MS + 10**9, "U"), "T", 604, "recall failed, timestamp invalid"),
        (RecallHandle("N", BROKER_NAME, START_MS + 5000, "U"), "N", 17, "recall failed, the topic[N] not exist"),
    ],
)
def test_an_invalid_handle_is_refused(handle: str | RecallHandle, topic: str, code: int, remark: str) -> None:
    life = Life()

    async def main() -> None:
        async with asking(life) as client:
            answer = await recall(client, str(handle), topic)

            assert answer.code == code
            assert remark in (answer.remark or "")

    run(main())
    assert life.store.end == 0


def test_recalls_can_be_switched_off() -> None:
    life = Life()
    handle = timed(life, b"kept", "A")
    with_timer(life, recall_enabled=False)

    async def main() -> None:
        async with asking(life) as client:
            answer = await recall(client, handle)

            assert answer.code == ResponseCode.NO_PERMISSION
            assert "recall failed, operation is forbidden" in (answer.remark or "")

    run(main())


def test_a_broker_without_write_permission_recalls_nothing() -> None:
    life = Life()
    handle = timed(life, b"kept", "A")
    life.settings.now = BrokerSettings(permission=4, timer=TimerSettings())

    async def main() -> None:
        async with asking(life) as client:
            assert (await recall(client, handle)).code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(main())


def test_a_recall_is_answered_after_its_sync_or_reports_the_timeout() -> None:
    life = life_with(flush=FlushMode.SYNC)
    first, second = timed(life, b"recalled", "A"), timed(life, b"recalled too", "B")

    async def main() -> None:
        async with asking(life) as client:
            begun = life.store.end
            answering = asyncio.create_task(recall(client, first))
            await until(lambda: life.store.end > begun)
            assert not answering.done()
            life.opened.run_workers()
            assert (await answering).code == ResponseCode.SUCCESS

            begun = life.store.end
            answering = asyncio.create_task(recall(client, second))
            await until(lambda: life.store.end > begun)
            life.clock.advance_ms(life.store.settings.sync_timeout_ms)
            life.store.tick()
            answer = await answering
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert answer.ext == {"msgId": "B", "MSG_REGION": "DefaultRegion"}

    run(main())


# handles


@needs_golden
def test_a_handle_equals_that_of_apache_for_the_same_message() -> None:
    frames = [frame.command for frame in captured("wire/5.3.3/json/timer.jsonl") if frame.link == "broker"]
    sends = {command.opaque: command for command in frames if command.code == RequestCode.SEND_MESSAGE_V2}
    answers = [
        (sends[command.opaque], command) for command in frames if command.is_response and command.opaque in sends
    ]
    given = 0
    for send, answer in answers:
        assert send.ext is not None
        assert answer.ext is not None
        theirs = answer.ext.get("recallHandle")
        properties = parse_properties(send.ext["i"])
        draft = Draft(
            topic=send.ext["b"],
            queue_id=0,
            body=send.body,
            properties=properties,
            born_ms=0,
            born_host=b"",
        )
        if theirs is not None:
            given += 1
            draft.properties |= {
                "REAL_TOPIC": draft.topic,
                "REAL_QID": "0",
                "TIMER_OUT_MS": str(RecallHandle.parse(theirs).deliver_ms - 1),
            }
            draft.topic = TIMER_TOPIC

        assert recall_handle_for(draft, "broker-a") == theirs

    assert given == 4


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("T", {"UNIQ_KEY": "A"}),
        ("T", {"UNIQ_KEY": "A", "DELAY": 3}),
        ("T", {"UNIQ_KEY": "A", "TIMER_DELAY_SEC": 0}),
        ("T", {"UNIQ_KEY": "with blank", "TIMER_DELAY_SEC": 1}),
        ("T", {"TIMER_DELAY_SEC": 1}),
        ("T", {"UNIQ_KEY": "A", "TIMER_DELAY_SEC": 1, "TIMER_DEL_UNIQKEY": "T+A"}),
        ("%RETRY%g", {"UNIQ_KEY": "A", "TIMER_DELAY_SEC": 1}),
        (TIMER_TOPIC, {"UNIQ_KEY": "A"}),
    ],
)
def test_a_message_that_cannot_be_recalled_has_no_handle(topic: str, properties: dict[str, str | int]) -> None:
    life = Life()
    draft = life.draft(b"body", topic)
    draft.properties = {name: str(value) for name, value in properties.items()}
    life.appender.append(draft)

    assert recall_handle_for(draft, BROKER_NAME) is None
