"""The producer's public methods: lifecycle, arguments, and refused messages."""

import asyncio
import logging
import re
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from tests.client.kit import cluster, properties_of, refuse, until

from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.queue_choice import Destination
from pocketmq.client.producer.results import SendResult
from pocketmq.codes import Compression, RequestCode, SysFlag
from pocketmq.errors import (
    CallTimedOut,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    NotFound,
    PartlySent,
    ProtocolError,
    RemoteError,
    TopicNotFound,
    UsageError,
    WrongState,
)
from pocketmq.model.message import Message
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.compression import decompress
from pocketmq.testing import run

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def test_a_sent_message_is_stored_and_its_offset_is_returned() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG") as producer:
            result = await producer.send("T", b"hello", keys="k1", tags="A")

            assert result.is_ok
            assert result.queue == MessageQueue("T", "broker-a", result.queue.queue_id)
            assert (result.queue_offset, len(result.message_id), len(result.offset_id)) == (0, 32, 32)
            assert result.transaction_id == result.message_id
            assert (result.region, result.trace_on, result.recall_handle) == ("DefaultRegion", True, None)
            assert c.broker.stored == [(result.queue.queue_id, b"hello")]

    run(main())


def test_a_message_sent_twice_is_two_messages() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            message = Message("T", b"x", tags="A")
            first, second = await producer.send(message), await producer.send(message)

            assert first.message_id != second.message_id
            assert message.properties == {"TAGS": "A"}
            assert len(c.broker.stored) == 2

    run(main())


def test_a_producer_can_be_started_and_stopped_once() -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer()
            with pytest.raises(WrongState, match="was not started: use `async with`"):
                await producer.send("T", b"x")
            await producer.start()
            with pytest.raises(WrongState, match="is running"):
                await producer.start()
            await producer.send("T", b"x")
            await producer.stop()
            await producer.stop()
            for call in (producer.send("T", b"x"), producer.flush(), producer.send_many([]), producer.queues("T")):
                with pytest.raises(WrongState, match="was stopped; create a new one"):
                    await call
            with pytest.raises(WrongState, match="was stopped"):
                producer.submit("T", b"x")
            with pytest.raises(WrongState, match="was stopped"):
                await producer.start()
            await c.new_producer().stop()

    run(main())


def test_starting_needs_no_server() -> None:
    async def main() -> None:
        async with cluster() as c:
            c.name_server.close()
            c.broker.close()
            async with c.producer():
                await asyncio.sleep(100)

    run(main())


def test_options_are_checked_by_the_constructor() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'group'"):
        AsyncProducer("a:9876", gruop="x")  # type: ignore[call-arg]
    for wrong, right in (
        ("timeout_ms", "send_timeout_ms"),
        ("hook", "hooks"),
        ("checks", "check"),
        ("name_server", "name_servers"),
    ):
        with pytest.raises(InvalidSetting, match=f"there is no option '{wrong}'; did you mean '{right}'"):
            AsyncProducer(**{wrong: 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="set check or listener, not both"):
        AsyncProducer("a:9876", group="x", check=lambda m: True, listener=object())  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="transactions need group="):
        AsyncProducer("a:9876", check=lambda m: True)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (("T", b""), "the body is empty"),
        (("T", b"x" * 101), "the body has 101 bytes, more than max_message_bytes"),
        (("T", object()), "a body of type object cannot be encoded as JSON"),
        (("SCHEDULE_TOPIC_XXXX", b"x"), "is a system topic; only brokers write to it"),
        (("T", None), "a message to topic 'T' needs a body"),
        ((Message("T", b"x", flag=2**31),), "the flag 2147483648 does not fit into 32 bits"),
    ],
)
def test_an_impossible_message_is_refused_before_it_is_sent(message: tuple[Any, ...], said: str) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_message_bytes=100, batch_bytes=100) as producer:
            with pytest.raises(UsageError, match=said):
                await producer.send(*message)
            with pytest.raises(UsageError, match=said):
                producer.submit(*message)
            assert producer.in_flight == 0
            await producer.send("T", b"x" * 100)
            assert len(c.broker.sends) == 1

    run(main())


def test_names_and_properties_are_checked_before_anything_is_sent() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            with pytest.raises(InvalidName):
                await producer.send("bad topic", b"x")
            with pytest.raises(InvalidMessage, match="is reserved by RocketMQ"):
                await producer.send("T", b"x", properties={"UNIQ_KEY": "1"})
            with pytest.raises(InvalidMessage, match=r"have 40\d\d\d bytes, more than the limit of 32767"):
                await producer.send("T", b"x", properties={"a": "ü" * 20_000})
            with pytest.raises(UsageError, match="with a Message, set tags on the Message"):
                await producer.send(Message("T", b"x"), tags="A")
            with pytest.raises(UsageError, match="set body on the Message"):
                await producer.send(Message("T", b"x"), b"y")
            assert not c.broker.heard

    run(main())


def test_bytes_like_bodies_are_accepted() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await producer.send("T", bytearray(b"x"))
            await producer.send("T", memoryview(b"y"))

            assert [body for _, body in c.broker.stored] == [b"x", b"y"]

    run(main())


@pytest.mark.parametrize(("size", "compressed"), [(4095, False), (4096, True), (4097, True)])
@pytest.mark.parametrize("kind", list(Compression))
def test_bodies_from_4_kib_on_are_compressed(size: int, compressed: bool, kind: Compression) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(compression=kind) as producer:
            await producer.send("T", b"x" * size)

            (command,) = c.broker.sends
            flag = int((command.ext or {})["f"])
            assert bool(flag & SysFlag.COMPRESSED) is compressed
            assert decompress(command.body, flag) == b"x" * size

    run(main())


def test_many_messages_are_sent_in_batches_and_keep_their_order() -> None:
    async def main() -> None:
        async with cluster(topics=("T", "U")) as c, c.producer() as producer:
            messages = [Message("T" if n % 3 else "U", b"%d" % n) for n in range(30)]
            messages.insert(7, Message("T", b"later", delay_level=3))
            messages.insert(9, Message("T", b"x" * 5000))

            results = await producer.send_many(messages)

            assert [result.queue.topic for result in results] == [message.topic for message in messages]
            assert len(c.broker.requests(BATCH)) == 2
            assert len(c.broker.requests(SEND)) == 2
            assert len({result.message_id for result in results}) == 32
            batch = [result for at, result in enumerate(results) if messages[at].topic == "U"]
            assert [result.queue_offset for result in batch] == list(range(10))
            assert await producer.send_many([]) == []

    run(main())


def test_a_batch_of_one_is_a_message() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            (result,) = await producer.send_many([Message("T", b"x", tags="A")])

            assert result.is_ok
            assert properties_of(c.broker.requests(SEND)[0])["TAGS"] == "A"

    run(main())


def test_large_batches_are_split_and_sent_one_after_the_other() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_message_bytes=10_000, batch_bytes=10_000) as producer:
            queue = MessageQueue("T", "broker-a", 2)
            results = await producer.send_many([Message("T", b"x" * 900) for _ in range(30)], queue=queue)

            assert [result.queue_offset for result in results] == list(range(30))
            assert len(c.broker.requests(BATCH)) == 3
            assert all(len(command.body) <= 10_000 for command in c.broker.requests(BATCH))

    run(main())


def test_when_a_later_batch_fails_the_error_has_the_stored_results() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_message_bytes=10_000, batch_bytes=10_000) as producer:
            c.broker.script(BATCH, c.broker.store, refuse(13))

            with pytest.raises(PartlySent, match="10 of 15 messages were stored") as caught:
                await producer.send_many([Message("T", b"x" * 900) for _ in range(15)])

            assert [result is not None for result in caught.value.results] == [True] * 10 + [False] * 5
            assert isinstance(caught.value.__cause__, RemoteError)

            c.broker.script(BATCH, refuse(13))
            with pytest.raises(RemoteError):
                await producer.send_many([Message("T", b"x" * 900) for _ in range(15)])

    run(main())


def test_all_messages_are_checked_before_the_first_is_sent() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            with pytest.raises(InvalidMessage, match="empty"):
                await producer.send_many([Message("T", b"x"), Message("T", b"")])

            assert not c.broker.sends

    run(main())


def test_the_writable_queues_of_a_topic_are_returned() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            assert await producer.queues("T") == [MessageQueue("T", "broker-a", number) for number in range(4)]
            with pytest.raises(TopicNotFound):
                await producer.queues("U")

    run(main())


def test_only_brokers_see_a_namespace() -> None:
    async def main() -> None:
        async with cluster(topics=("NS%T",)) as c, c.producer(namespace="NS", group="PG") as producer:
            queues = await producer.queues("T")
            result = await producer.send("T", b"x", queue=queues[1])
            chosen = await producer.send("T", b"x", selector=lambda found, message, key: found[2])
            (many,) = await producer.send_many([Message("T", b"y")], queue=queues[3])
            await asyncio.sleep(0.1)

            assert queues[0] == MessageQueue("T", "broker-a", 0)
            assert (result.queue, chosen.queue, many.queue) == (queues[1], queues[2], queues[3])
            assert {(command.ext or {})["b"] for command in c.broker.sends} == {"NS%T"}
            assert {(command.ext or {})["a"] for command in c.broker.sends} == {"NS%PG"}
            assert properties_of(c.broker.sends[0])["INSTANCE_ID"] == "NS"
            assert c.broker.heartbeats[0].producer_data_set[0].group_name == "NS%PG"

    run(main())


def test_a_timed_message_is_recalled_by_its_handle() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG") as producer:
            handle = str(RecallHandle("T", "broker-a", 1_700_000_000_001, "A" * 32))
            c.broker.answers[RequestCode.RECALL_MESSAGE] = lambda command: command.reply(ext={"msgId": "A" * 32})

            assert await producer.recall("T", handle) == "A" * 32
            (command,) = c.broker.requests(RequestCode.RECALL_MESSAGE)
            assert command.ext == {"topic": "T", "recallHandle": handle, "producerGroup": "PG", "bname": "broker-a"}

            with pytest.raises(ProtocolError, match="recall handle"):
                await producer.recall("T", "nonsense")
            c.broker.answers[RequestCode.RECALL_MESSAGE] = refuse(22)
            with pytest.raises(NotFound):
                await producer.recall("T", handle)

    run(main())


def test_producers_of_one_loop_share_connections_and_stop_separately() -> None:
    async def main() -> None:
        async with cluster() as c:
            async with c.producer(group="A") as a:
                async with c.producer(group="B") as b:
                    await asyncio.gather(a.send("T", b"x"), b.send("T", b"y"))
                    assert len(c.broker.peers) == 1
                await a.send("T", b"z")
                assert [(e.ext or {}).get("producerGroup") for e in c.broker.requests(35)] == ["B"]
            await until(lambda: not c.network.connections)

    run(main())


def test_a_crash_of_a_broker_and_a_name_server_is_survived(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b", seed=3) as c, c.producer() as producer:
            sent = 0
            for step in range(120):
                if step == 20:
                    c.brokers["broker-a"].close()
                if step == 40:
                    c.name_server.close()
                if step == 60:
                    await c.brokers["broker-a"].start()
                    await c.name_server.start()
                assert (await producer.send("T", b"%d" % step)).is_ok
                sent += 1
                await asyncio.sleep(1)

            stored = [body for broker in c.brokers.values() for _, body in broker.stored]
            assert sent == 120
            assert set(stored) >= {b"%d" % step for step in range(120)}
            assert len(c.brokers["broker-a"].peers) == 2

    caplog.set_level(logging.WARNING, "pocketmq")
    run(main())
    assert len(caplog.records) < 12, "each thing is said once"


@pytest.mark.parametrize("options", [{}, {"linger_ms": 5}], ids=str)
def test_objects_as_bodies_are_encoded_by_every_method(options: dict[str, int]) -> None:
    body, sent = {"n": 5}, b'{"n":5}'

    async def main() -> None:
        async with cluster() as c, c.new_producer(group="g", check=lambda _: None, **options) as producer:
            for _ in range(2):  # also when the topic is known
                await producer.send("T", body)
                await producer.send("T", body, keys="k")
                await producer.send("T", body, queue=MessageQueue("T", "broker-a", 1))
                await producer.submit("T", body)
                await producer.send_one_way("T", body)
                await producer.send(Message("T", body))
                await producer.send_many([Message("T", body), Message("T", body)])
                async with producer.transaction("T") as tx:
                    await tx.send(body)
                    await tx.send("text", tags="a")
            with pytest.raises(CallTimedOut):
                await producer.request("T", body, timeout_s=0.1)
            await until(lambda: len(c.broker.stored) >= 21)

            assert [stored for _, stored in c.broker.stored].count(b"text") == 2
            assert {stored for _, stored in c.broker.stored} == {sent, b"text"}

    run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tag": "a"}, "send has no argument 'tag'; did you mean 'tags'?"),
        ({"key": "a"}, "did you mean 'keys'?"),
        ({"timeout_ms": 500}, "did you mean 'timeout_s'?"),
        ({"timeout": 500}, "did you mean 'timeout_s'?"),
        ({"headers": {}}, "did you mean 'properties'?"),
        (
            {"properties": {"n": 5}},
            "the value of property 'n' is int, not str; properties are strings: give '5'",
        ),
        ({"properties": {5: "n"}}, "the name of property 5 is int, not str"),
        ({"properties": [("a", "b")]}, "properties must be a dict of str, not list"),
        ({"keys": 42}, "keys = 42 is int, not str; give '42'"),
        ({"keys": [42]}, "a key = 42 is int, not str; give '42'"),
        ({"queue": 3}, "queue = 3 must be a MessageQueue(topic, broker_name, queue_id)"),
        ({"tags": ["a"]}, "tags = ['a'] is list, not str; a message has one tag"),
        ({"sharding_key": 42}, "sharding_key = 42 is int, not str; give '42'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_with_a_correct_example(arguments: dict[str, Any], words: str) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            for send in (producer.send, producer.submit, producer.send_one_way):
                with pytest.raises(UsageError, match=re.escape(words)):
                    await send("T", b"x", **arguments)
            if words.startswith("send has"):
                with pytest.raises(UsageError, match=re.escape(words)):
                    await producer.send(Message("T", b"x"), **arguments)
                with pytest.raises(UsageError, match="Message has no argument 'tag'; did you mean 'tags'"):
                    Message("T", b"x", **arguments)
            with pytest.raises(UsageError, match=r"send_many has no argument 'timeout_ms'; did you mean 'timeout_s'"):
                await producer.send_many([], timeout_ms=5)  # type: ignore[arg-type]

    run(main())


def test_topics_and_messages_of_another_kind_are_refused() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            for send in (producer.send, producer.submit, producer.send_one_way):
                for given in ((b"x", "T"), (b"x",)):
                    with pytest.raises(InvalidName, match="the topic name b'x' is bytes, not text"):
                        await send(*given)
            for queue in (None, MessageQueue("T", "broker-a", 0)):
                with pytest.raises(UsageError, match="item 1 is dict, not a Message"):
                    await producer.send_many([Message("T", b"x"), {"a": 1}], queue=queue)  # type: ignore[list-item]

    run(main())


QUEUE = MessageQueue("T", "broker-a", 0)


def handed_over(producer: AsyncProducer, bodies: Iterable[bytes]) -> list[Future[SendResult]]:
    """As a thread does: all in one turn of the loop."""
    futures: list[Future[SendResult]] = []
    for body in bodies:
        future: Future[SendResult] = Future()
        assert future.set_running_or_notify_cancel()
        producer.submit_from_thread(Message("T", body), Destination(QUEUE), None, future)
        futures.append(future)
    return futures


BODIES = [b"a" * 600, b"b" * 600, b"c", b"d" * 600, b"e"]
"""Where a large one has to wait for the limit, a small one could still go."""


def test_messages_of_threads_keep_their_order_at_the_in_flight_limit() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_in_flight_bytes=1000) as producer:
            await producer.send("T", b"first")
            futures = handed_over(producer, BODIES)
            gives_up = asyncio.create_task(producer.send("T", b"never", queue=QUEUE))
            last = asyncio.create_task(producer.send("T", b"last", queue=QUEUE))
            await asyncio.sleep(0)
            gives_up.cancel()
            await last

            assert all(future.result(0).is_ok for future in futures)
            assert [body for _, body in c.broker.stored] == [b"first", *BODIES, b"last"]
            assert producer.in_flight == 0

    run(main())


def test_stopping_completes_the_messages_of_threads() -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer(max_in_flight_bytes=1000)
            await producer.start()
            await producer.send("T", b"first")
            futures = handed_over(producer, BODIES)
            waits = asyncio.create_task(producer.send("T", b"last", queue=QUEUE))
            await asyncio.sleep(0)
            await producer.stop()

            assert futures[0].result(0).is_ok
            assert [type(future.exception(0)) for future in futures[1:]] == [WrongState] * 4
            with pytest.raises(WrongState):
                await waits
            assert producer.in_flight == 0

    run(main())


@pytest.mark.parametrize("timeout_s", ["3", float("nan"), float("inf")])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused(timeout_s: Any) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG") as producer:
            for call in (
                partial(producer.send, "T", b"1"),
                partial(producer.submit, "T", b"1"),
                partial(producer.send_many, [Message("T", b"1")]),
                partial(producer.recall, "T", "handle"),
                partial(producer.request, "T", b"1"),
            ):
                with pytest.raises(UsageError, match=r"timeout_s = .* must be a number of seconds"):
                    await call(timeout_s=timeout_s)

    run(main())
