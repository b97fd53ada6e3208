"""Rows are sent in batches, concurrently, and retried in place only if that is safe."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from pocketmq.client import AsyncProducer, SendStatus
from pocketmq.errors import ConnectFailed, ConnectionLost, NoPermission, PartlySent, PocketMQError, SystemBusy
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.options.write_options import WriteOptions, parse_write_options
from pocketmq.spark.write.sink_sending import Sends, may_repeat
from pocketmq.testing.virtual_loop import run

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def sink(**given: str) -> WriteOptions:
    return parse_write_options({"nameServer": "any:9876", "topic": "orders", **given}, streaming=True, environ={})


class FakeProducer:
    """Fails a chosen number of times, then stores."""

    def __init__(self, failures: Sequence[PocketMQError] = ()) -> None:
        self.settings = SimpleNamespace(compress_over_bytes=4096)
        self.calls: list[tuple[MessageQueue | None, list[bytes]]] = []
        self._failures = list(failures)

    async def send_many(
        self, messages: Sequence[Message], *, queue: MessageQueue | None, timeout_s: float
    ) -> list[Any]:
        self.calls.append((queue, [message.body for message in messages]))
        if self._failures:
            raise self._failures.pop(0)
        return [SimpleNamespace(status=SendStatus.SEND_OK) for _ in messages]


def send_all(
    producer: FakeProducer,
    options: WriteOptions,
    messages: Sequence[Message],
    queues: Sequence[MessageQueue] = QUEUES,
) -> None:
    def start(work: Coroutine[Any, Any, None]) -> "Future[None]":
        future: Future[None] = Future()
        try:
            future.set_result(run(work))
        except PocketMQError as error:
            future.set_exception(error)
        return future

    sends = Sends(cast("AsyncProducer", producer), options, start, lambda _topic: queues)
    sends.add(messages)
    sends.finish()


def test_messages_share_batches_except_long_and_delayed_ones() -> None:
    producer = FakeProducer()
    small = [Message("orders", b"x" * 500) for _ in range(4)]

    send_all(producer, sink(sendBatchBytes="1024"), [*small, Message("orders", b"y" * 5000)])
    send_all(producer, sink(), [Message("orders", b"z", delay_level=1), Message("orders", b"z", delay_level=1)])

    assert [len(bodies) for _, bodies in producer.calls] == [2, 2, 1, 1, 1]


def test_the_same_sharding_key_selects_the_same_queue() -> None:
    producer = FakeProducer()
    messages = [Message("orders", b"x", sharding_key=key) for key in ("a", "b", "a")]

    send_all(producer, sink(), messages)

    assert [(queue in QUEUES, len(bodies)) for queue, bodies in producer.calls] == [(True, 2), (True, 1)]


def test_a_topic_without_writable_queues_is_reported() -> None:
    producer = FakeProducer()

    with pytest.raises(NoPermission, match="'orders' has no writable queue"):
        send_all(producer, sink(), [Message("orders", b"x", sharding_key="a")], queues=[])

    assert producer.calls == []


@pytest.mark.parametrize(
    ("failure", "once", "again"),
    [
        (ConnectionLost("no answer"), False, True),
        (ConnectFailed("nothing sent"), True, True),
        (SystemBusy("refused"), True, True),
        (NoPermission("never"), False, False),
    ],
)
def test_possibly_stored_messages_are_not_sent_again_with_effectively_once(
    failure: PocketMQError, once: bool, again: bool
) -> None:
    assert may_repeat(failure, sink()) is once
    assert may_repeat(failure, sink(deliveryGuarantee="at-least-once")) is again


def test_waiting_for_a_busy_broker_can_be_switched_off() -> None:
    assert not may_repeat(SystemBusy("refused"), sink(retryWhenBusy="false"))


def test_a_temporary_failure_is_retried() -> None:
    producer = FakeProducer([ConnectFailed("a"), SystemBusy("b")])

    send_all(producer, sink(), [Message("orders", b"x")])

    assert len(producer.calls) == 3


@pytest.mark.parametrize("failures", [[ConnectionLost("a")], [ConnectFailed("a")] * 10])
def test_a_permanent_failure_fails_the_task(failures: list[PocketMQError]) -> None:
    with pytest.raises(PocketMQError):
        send_all(FakeProducer(failures), sink(sendRetries="2"), [Message("orders", b"x")])


def test_only_the_unsent_rest_of_a_batch_is_sent_again() -> None:
    partly = PartlySent((object(), None))
    partly.__cause__ = ConnectFailed("nothing sent")
    producer = FakeProducer([partly])

    send_all(producer, sink(), [Message("orders", b"a"), Message("orders", b"b")])

    assert [bodies for _, bodies in producer.calls] == [[b"a", b"b"], [b"b"]]


def test_batches_of_one_queue_are_sent_in_order() -> None:
    order: list[str] = []

    class Slow(FakeProducer):
        async def send_many(
            self, messages: Sequence[Message], *, queue: MessageQueue | None, timeout_s: float
        ) -> list[Any]:
            order.append("begin")
            await asyncio.sleep(1)
            order.append("end")
            return await super().send_many(messages, queue=queue, timeout_s=timeout_s)

    async def both() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []

        def start(work: Coroutine[Any, Any, None]) -> "Future[None]":
            tasks.append(loop.create_task(work))
            done: Future[None] = Future()
            done.set_result(None)
            return done

        sends = Sends(cast("AsyncProducer", Slow()), sink(sendBatchBytes="1024"), start, lambda _topic: QUEUES)
        sends.add([Message("orders", b"x" * 1000, sharding_key="a") for _ in range(2)])
        await asyncio.gather(*tasks)

    run(both())

    assert order == ["begin", "end", "begin", "end"]


def test_a_failed_task_waits_for_batches_in_flight() -> None:
    under_way: list[Future[None]] = []

    def start(work: Coroutine[Any, Any, None]) -> "Future[None]":
        work.close()
        under_way.append(Future())
        return under_way[-1]

    sends = Sends(cast("AsyncProducer", FakeProducer()), sink(sendTimeoutMs="60000"), start, lambda _topic: QUEUES)
    sends.add([Message("orders", b"x" * 5000)])
    answer = threading.Timer(0.05, under_way[0].set_result, (None,))
    answer.start()

    sends.abandon()

    assert under_way[0].done()
    assert not under_way[0].cancelled()


def test_a_failed_task_waits_for_answers_up_to_the_send_timeout() -> None:
    future: Future[None] = Future()

    def start(work: Coroutine[Any, Any, None]) -> "Future[None]":
        work.close()
        return future

    sends = Sends(cast("AsyncProducer", FakeProducer()), sink(sendTimeoutMs="1"), start, lambda _topic: QUEUES)
    sends.add([Message("orders", b"x" * 5000)])

    sends.abandon()

    assert future.cancelled()
