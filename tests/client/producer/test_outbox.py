"""Plain messages are sent together at the end of a turn, with the same result as alone."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.client.kit import Answer, after, cluster, ignore, properties_of, refuse, until

from pocketmq.client.hooks import Hooks, SendEvent
from pocketmq.client.producer.outbox import MAX_BUFFERS
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.results import SendResult, SendStatus
from pocketmq.client.producer.send_frames import MAX_TEMPLATES
from pocketmq.codes import HeaderEncoding, RequestCode
from pocketmq.errors import (
    CallTimedOut,
    InvalidMessage,
    PocketMQError,
    SystemBusy,
    TooManyCalls,
    UsageError,
    WrongState,
)
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.testing import run

SEND = RequestCode.SEND_MESSAGE_V2


class Watching(Hooks):
    """Makes a producer take the long way."""

    def after_send(self, event: SendEvent) -> None: ...


async def warm(producer: AsyncProducer, topic: str = "T") -> None:
    """Route and connection exist afterwards."""
    await producer.send(topic, b"first")


def is_at_rest(producer: AsyncProducer) -> bool:
    return (producer._limit.count, producer._limit.bytes) == (0, 0)


def counted_writes(producer: AsyncProducer) -> list[int]:
    """Grows by the size of each write to a broker."""
    (line,) = {peer.connection for peer in producer.member.instance.brokers._peers.values()}
    transport, sizes = line._transport, []
    write = transport.write

    def counted(data: bytes) -> None:
        sizes.append(len(data))
        write(data)

    transport.write = counted  # type: ignore[method-assign,assignment]
    return sizes


def test_messages_of_one_loop_iteration_are_one_write_and_use_queues_in_turn() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await warm(producer)
            sizes = counted_writes(producer)

            futures = [producer.submit("T", b"%d" % number) for number in range(8)]
            awaited = asyncio.gather(*(producer.send("T", b"a%d" % number) for number in range(8)))
            results = [*await asyncio.gather(*futures), *await awaited]

            assert len(sizes) == 2  # submitted at once, awaited when their tasks began
            assert sorted(result.queue.queue_id for result in results[:8]) == sorted([0, 1, 2, 3] * 2)
            assert [body for _, body in c.broker.stored[1:9]] == [b"%d" % number for number in range(8)]
            ids = [properties_of(command)["UNIQ_KEY"] for command in c.broker.sends]
            assert len(set(ids)) == 17
            assert {result.message_id for result in results} == set(ids[1:])
            assert is_at_rest(producer)

    run(main())


@given(
    topic=some.sampled_from(["T", "NS_T", "a-b"]),
    namespace=some.sampled_from([None, "NS"]),
    group=some.sampled_from(["PG", "a-b"]),
    properties=some.dictionaries(
        some.text('ab%"\\ü\n', min_size=1, max_size=3), some.text('xy%d"\\ü\t', min_size=1, max_size=3), max_size=3
    ),
    tags=some.sampled_from([None, "new", "50%d"]),
    body=some.binary(min_size=1, max_size=50),
)
def test_batched_writes_have_the_same_bytes_as_single_sends(
    topic: str, namespace: str | None, group: str, properties: dict[str, str], tags: str | None, body: bytes
) -> None:
    """All but the id and the time of birth, which no two sends share."""

    def still(command: Command) -> tuple[Any, ...]:
        ext = dict(command.ext or {})
        own = properties_of(command)
        ext["i"] = ext["i"].replace(own["UNIQ_KEY"], "id")
        return command.code, ext | {"g": "then"}, list(ext), command.body, command.flag, command.version

    async def sent(hooks: tuple[Hooks, ...]) -> list[tuple[Any, ...]]:
        wire = topic if namespace is None else f"{namespace}%{topic}"
        async with cluster(topics=[wire]) as c:
            c.add_topic(wire, queues=1)
            async with c.producer(group=group, namespace=namespace, hooks=hooks) as producer:
                await producer.send(topic, body)
                await producer.send(topic, body)
                await producer.send(Message(topic, body, tags=tags, properties=properties, keys=["k1", "k2"]))
                await producer.send(topic, body, queue=(await producer.queues(topic))[0])
                await producer.send(topic, body, sharding_key="s", delay_level=3)
                assert producer.member.outbox._has_plain is not bool(hooks)
                return [still(command) for command in c.broker.sends]

    assert run(sent(())) == run(sent((Watching(),)))


UNUSUAL: dict[str, Callable[[Command], Answer]] = {
    "stored": lambda command: stored(command),
    "another queue": lambda command: stored(command, queueId="9"),
    "more fields": lambda command: stored(command, mine="1", recallHandle="h", TRACE_ON="false"),
    "no id": lambda command: stored(command, msgId=None),
    "no offset": lambda command: stored(command, queueOffset=None),
    "strange offset": lambda command: stored(command, queueOffset=" 7 "),
    "no number": lambda command: stored(command, queueOffset="x"),
    "no number for a queue": lambda command: stored(command, queueId="x"),
    "no fields": lambda command: command.reply(),
    "with a body": lambda command: stored(command, body=b"?"),
    "with a remark": lambda command: stored(command, remark="said"),
    "binary": lambda command: stored(command, encoding=HeaderEncoding.ROCKETMQ),
    "flush": lambda command: stored(command, code=10),
    "slave": lambda command: stored(command, code=11),
    "refused": lambda command: command.reply(13, "illegal"),
    "busy": lambda command: command.reply(2, "[REJECTREQUEST]busy"),
    "gone": lambda command: command.reply(17, "no such topic"),
    "unknown": lambda command: command.reply(4711, None),
}


def stored(
    command: Command,
    *,
    code: int = 0,
    body: bytes = b"",
    remark: str | None = None,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
    **changes: str | None,
) -> Command:
    fields = {"msgId": "7F01", "queueId": "1", "queueOffset": "5", "transactionId": "t", "MSG_REGION": "R"} | changes
    reply = command.reply(code, remark, {name: value for name, value in fields.items() if value is not None}, body)
    command.encoding = encoding  # the answer is written as the request was
    return reply


@pytest.mark.parametrize("kind", UNUSUAL)
@pytest.mark.parametrize("way", ["send", "submit"])
def test_answers_have_the_same_meaning_as_for_single_sends(kind: str, way: str) -> None:
    async def outcome(hooks: tuple[Hooks, ...]) -> tuple[Any, ...]:
        async with cluster() as c, c.producer(hooks=hooks, retries=1) as producer:
            await warm(producer)
            c.broker.answers[SEND] = UNUSUAL[kind]
            queue = MessageQueue("T", "broker-a", 1)
            try:
                result = await getattr(producer, way)("T", b"x", queue=queue)
            except PocketMQError as error:
                found: tuple[Any, ...] = (type(error), str(error))
            else:
                assert result.message_id == properties_of(c.broker.sends[-1])["UNIQ_KEY"]
                fields = {name: getattr(result, name) for name in SendResult.__struct_fields__}
                found = (fields | {"message_id": ""},)
            assert is_at_rest(producer)
            return *found, len(c.broker.sends)

    assert run(outcome(())) == run(outcome((Watching(),)))


def test_irregular_messages_do_not_overtake_waiting_ones() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            c.add_topic("One", queues=1)
            await warm(producer, "One")
            queue = MessageQueue("One", "broker-a", 0)

            sending: list[asyncio.Future[Any]] = [
                producer.submit("One", b"1"),
                producer.submit("One", b"2", wait_stored=False),
                producer.submit("One", b"3"),
                producer.submit("One", b"4", queue=queue),
                producer.submit("One", b"5", sharding_key="k"),
                producer.submit("One", b"6", timeout_s=2.0),
                producer.submit("One", b"7"),
                asyncio.ensure_future(producer.send_many([Message("One", b"8")])),
            ]
            await asyncio.gather(*sending)

            assert [body for _, body in c.broker.stored[1:]] == [b"%d" % number for number in range(1, 9)]

    run(main())


def test_messages_are_distributed_over_brokers_and_retried_elsewhere_with_the_same_id() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            await asyncio.gather(*(producer.send("T", b"first") for _ in range(8)))
            c.brokers["broker-b"].answers[SEND] = ignore

            sending = [producer.submit("T", b"%d" % number) for number in range(8)]
            await until(lambda: len(c.brokers["broker-b"].sends) == 8)
            c.brokers["broker-b"].close()
            results = await asyncio.gather(*sending)

            assert {result.queue.broker_name for result in results} == {"broker-a"}
            stored = [properties_of(command)["UNIQ_KEY"] for command in c.brokers["broker-a"].sends[4:]]
            tried = [properties_of(command)["UNIQ_KEY"] for command in c.brokers["broker-b"].sends[4:]]
            assert sorted(stored) == sorted(result.message_id for result in results)
            assert set(tried) < set(stored)
            assert is_at_rest(producer)

    run(main())


def test_a_refusal_is_retried_for_send_and_not_for_submit() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b") as c, c.producer() as producer:
            await warm(producer)
            for broker in c.brokers.values():
                broker.script(SEND, refuse(1))

            with pytest.raises(PocketMQError):
                await producer.submit("T", b"x")
            assert (await producer.send("T", b"x")).is_ok
            assert is_at_rest(producer)

    run(main())


def test_a_timeout_fails_all_unanswered_messages_of_a_write() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(send_timeout_ms=1000, retries=0) as producer:
            await warm(producer)
            c.broker.script(SEND, ignore, c.broker.store, ignore)

            began = asyncio.get_running_loop().time()
            outcomes = await asyncio.gather(
                *(producer.submit("T", b"%d" % number) for number in range(3)), return_exceptions=True
            )

            assert [type(one) for one in outcomes] == [CallTimedOut, SendResult, CallTimedOut]
            assert "no response to request 310 within 1.0 s" in str(outcomes[0])
            assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.01)
            assert is_at_rest(producer)

    run(main())


def test_a_cancelled_send_counts_as_in_flight_until_its_response() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await warm(producer)
            c.broker.answers[SEND] = after(0.5, c.broker.store)

            submitted, sending = producer.submit("T", b"x"), asyncio.ensure_future(producer.send("T", b"y"))
            await asyncio.sleep(0.1)
            submitted.cancel()
            sending.cancel()
            await asyncio.sleep(0.1)

            assert producer.in_flight == 2
            await asyncio.sleep(0.5)
            assert is_at_rest(producer)

    run(main())


def test_a_message_cancelled_before_the_connection_exists_is_never_sent() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await warm(producer)
            producer.member.instance.brokers._peers.clear()  # as if none had been made yet

            kept, given_up = producer.submit("T", b"kept"), producer.submit("T", b"given up")
            given_up.cancel()
            await kept

            assert [body for _, body in c.broker.stored] == [b"first", b"kept"]
            assert is_at_rest(producer)

    run(main())


def test_calls_above_the_limit_of_a_connection_wait() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_in_flight_calls=4) as producer:
            await warm(producer)

            outcomes = await asyncio.gather(
                *(producer.send("T", b"%d" % number) for number in range(9)), return_exceptions=True
            )

            assert sum(isinstance(one, SendResult) for one in outcomes) >= 4
            assert all(isinstance(one, SendResult | TooManyCalls) for one in outcomes)
            assert len(c.broker.stored) == 1 + sum(isinstance(one, SendResult) for one in outcomes)
            assert is_at_rest(producer)

    run(main())


def test_the_in_flight_limit_holds_and_send_waits_for_it() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(max_in_flight_messages=3) as producer:
            await warm(producer)
            submitted = [producer.submit("T", b"%d" % number) for number in range(3)]

            with pytest.raises(TooManyCalls, match="3 messages"):
                producer.submit("T", b"x")
            with pytest.raises(TooManyCalls):
                producer.submit(Message("T", b"x", tags="t"))
            waiting = [producer.send("T", b"y"), producer.send(Message("T", b"z", tags="t"))]
            await asyncio.gather(*submitted, *waiting)

            assert len(c.broker.stored) == 6
            assert is_at_rest(producer)

    run(main())


def test_stopping_waits_for_the_outbox_and_accepts_no_more() -> None:
    async def main() -> None:
        async with cluster() as c:
            producer = c.new_producer(max_in_flight_messages=1)
            await producer.start()
            await warm(producer)
            last = producer.submit("T", b"last")
            waiting = asyncio.ensure_future(producer.send("T", b"waits for room"))
            await asyncio.sleep(0)

            await producer.stop()

            assert last.result().status is SendStatus.SEND_OK
            with pytest.raises(WrongState):
                await waiting
            with pytest.raises(WrongState):
                producer.submit("T", b"late")
            with pytest.raises(WrongState):
                await producer.send("T", b"late")
            assert is_at_rest(producer)

    run(main())


def test_an_invalid_message_is_refused_after_valid_ones_to_the_topic() -> None:
    async def main() -> None:
        async with (
            cluster() as c,
            c.producer(max_message_bytes=5000, compress_over_bytes=6000, batch_bytes=4000) as producer,
        ):
            await warm(producer)

            for body in (b"", b"x" * 5001, object(), None):
                with pytest.raises(PocketMQError):
                    producer.submit("T", body)
            with pytest.raises(InvalidMessage):
                producer.submit(Message("T", b"x", keys="a\x01b"))
            with pytest.raises(InvalidMessage):
                producer.submit("T", b"x", keys="k" * 40_000)
            await producer.submit("T", b"x" * 5000)

            assert len(c.broker.sends) == 2
            assert is_at_rest(producer)

    run(main())


def test_a_busy_broker_is_an_error_and_frees_the_in_flight_limit() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            await warm(producer)
            c.broker.answers[SEND] = refuse(2, "[REJECTREQUEST]")

            outcomes = await asyncio.gather(*(producer.submit("T", b"x") for _ in range(5)), return_exceptions=True)

            assert [type(one) for one in outcomes] == [SystemBusy] * 5
            assert len(c.broker.sends) == 6
            assert is_at_rest(producer)

    run(main())


def test_a_changed_route_is_used_and_a_removed_topic_is_queried_again() -> None:
    async def main() -> None:
        async with cluster("broker-a", "broker-b", topics=[]) as c:
            c.add_topic("T", brokers=["broker-a"])
            async with c.producer() as producer:
                await warm(producer)
                c.add_topic("T", brokers=["broker-b"])
                await producer.member.instance.routes.refresh("T")

                assert (await producer.send("T", b"x")).queue.broker_name == "broker-b"
                producer.member.topic_forgotten("T")
                producer.member.instance.routes._known.clear()
                assert producer._buffers == {}
                assert (await producer.send("T", b"x")).queue.broker_name == "broker-b"

    run(main())


def test_caches_are_limited() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer() as producer:
            outbox = producer.member.outbox
            buffer = outbox.plain_buffer(Message("T", b"x"))
            for number in range(MAX_TEMPLATES + 3):
                outbox.target(buffer, MessageQueue("T", "broker-a", number))
            assert len(buffer.targets_by_queue) == 3

            producer._buffers.clear()
            for number in range(MAX_BUFFERS + 2):
                outbox.plain_buffer(Message(f"T{number}", b"x"))

            assert len(producer._buffers) == 3
            assert c.broker.sends == []

    run(main())


@pytest.mark.parametrize("options", [{"linger_ms": 1}, {"avoid_slow_brokers": True}, {"retry_when_not_stored": True}])
def test_hooks_and_special_options_disable_the_plain_path(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(**options) as producer:
            await warm(producer)

            assert (await producer.send("T", b"x")).is_ok
            assert producer._buffers == {}

    run(main())


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_an_unencodable_queue_fails_only_its_own_message(linger_ms: int) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(linger_ms=linger_ms) as producer:
            await warm(producer)
            sent = [producer.submit("T", b"before"), producer.submit("T", b"after", timeout_s=1.0)]
            bad = MessageQueue("T", "half\ud800", 0)
            unnamed = [producer.submit("T", b"x", queue=bad), producer.submit("T", b"x", queue=bad, timeout_s=1.0)]

            assert [(await asyncio.wait_for(future, 5)).is_ok for future in sent] == [True, True]
            for future in unnamed:
                with pytest.raises(UsageError, match="unpaired surrogate"):
                    await asyncio.wait_for(future, 5)
            assert is_at_rest(producer)

    run(main())
