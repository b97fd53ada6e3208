"""taskiq's broker and result backend on a server, with taskiq's own receiver and worker."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from taskiq import AckableMessage, BrokerMessage, InMemoryBroker, SimpleRetryMiddleware, SmartRetryMiddleware
from taskiq.exceptions import ResultGetError, SendTaskError
from taskiq.message import TaskiqMessage
from taskiq.receiver import Receiver
from tests.integrations.programs import started

import pocketmq
from pocketmq.errors import UsageError
from pocketmq.integrations.taskiq import RocketBroker, RocketResults

PATIENCE_S = 30.0


def message_of(**labels: Any) -> BrokerMessage:
    return BrokerMessage(task_id=uuid4().hex, task_name="task", message=uuid4().bytes, labels=labels)


@asynccontextmanager
async def running(broker: RocketBroker) -> AsyncIterator[RocketBroker]:
    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


@asynccontextmanager
async def working(broker: RocketBroker) -> AsyncIterator[None]:
    """A worker in this process."""
    finish = asyncio.Event()
    receiver = Receiver(broker, run_startup=False, max_async_tasks=5, max_prefetch=0)
    listening = asyncio.create_task(receiver.listen(finish))
    try:
        yield
    finally:
        finish.set()
        await listening


async def next_of(broker: RocketBroker) -> AckableMessage:
    async with asyncio.timeout(PATIENCE_S):
        async for message in broker.listen():
            return message
    raise AssertionError("unreachable")


# the broker, as the tests of taskiq's other brokers


def test_a_kicked_message_is_received_and_not_again_after_its_ack(rocketmq: pocketmq.Server) -> None:
    async def main() -> None:
        sent = message_of()
        async with running(RocketBroker(rocketmq.name_server, lease_s=1)) as broker:
            await broker.kick(sent)
            got = await next_of(broker)
            assert got.data == sent.message
            ack: Any = got.ack
            await ack()
            second = message_of()
            await broker.kick(second)
            assert (await next_of(broker)).data == second.message

    asyncio.run(main())


def test_a_message_without_ack_returns(rocketmq: pocketmq.Server) -> None:
    async def main() -> None:
        sent = message_of()
        async with running(RocketBroker(rocketmq.name_server, lease_s=1)) as first:
            await first.kick(sent)
            assert (await next_of(first)).data == sent.message
        async with running(RocketBroker(rocketmq.name_server, lease_s=1)) as second:
            assert (await next_of(second)).data == sent.message

    asyncio.run(main())


def test_an_ack_while_the_broker_restarts_is_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncExitStack() as ending:
            async with pocketmq.Server(data=tmp_path) as first:
                ports = [int(each.rsplit(":", 1)[1]) for each in (first.name_server, first.broker_address)]
                broker = await ending.enter_async_context(running(RocketBroker(first.name_server, lease_s=30)))
                await broker.kick(message_of())
                taken = await next_of(broker)
            assert taken.ack is not None
            acking = asyncio.ensure_future(cast("Awaitable[None]", taken.ack()))
            async with asyncio.timeout(PATIENCE_S):
                while "cannot acknowledge task" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                async with pocketmq.Server(data=tmp_path, name_server_port=ports[0], broker_port=ports[1]) as second:
                    await acking
                    async with pocketmq.AsyncAdmin(second.name_server) as admin:
                        assert (await admin.offsets.lag("taskiq")).leased == 0

    asyncio.run(main())


def test_workers_of_a_group_share_tasks_and_other_groups_get_all(rocketmq: pocketmq.Server) -> None:
    async def main() -> None:
        sent = message_of()
        one, other = (RocketBroker(rocketmq.name_server, group=name) for name in ("one", "other"))
        async with running(one), running(other):
            await one.kick(sent)
            assert (await next_of(one)).data == (await next_of(other)).data == sent.message

    asyncio.run(main())


def test_a_delayed_message_arrives_later(rocketmq: pocketmq.Server) -> None:
    async def main() -> None:
        later, sooner = message_of(delay="1.5"), message_of(delay=0)
        async with running(RocketBroker(rocketmq.name_server)) as broker:
            await broker.kick(later)
            await broker.kick(sooner)
            assert [(await next_of(broker)).data for _ in range(2)] == [sooner.message, later.message]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({"priority": 5}, "task task has the label 'priority', but RocketMQ has no priorities; remove it"),
        ({"delay": "soon"}, "task task has the label delay='soon'; it must be a number of seconds"),
    ],
)
def test_a_label_that_cannot_work_is_refused(labels: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        asyncio.run(RocketBroker("127.0.0.1:1").kick(message_of(**labels)))


def test_a_task_that_cannot_be_encoded_is_one_sentence() -> None:
    broker = RocketBroker("127.0.0.1:1")

    @broker.task
    async def store(what: object) -> None: ...

    with pytest.raises(SendTaskError) as raised:
        asyncio.run(store.kiq(object()))

    assert isinstance(raised.value.__cause__, UsageError)
    assert "store cannot be sent, because an argument or label cannot be encoded" in str(raised.value.__cause__)


# tasks and results


def broker_with_results(server: pocketmq.Server) -> RocketBroker:
    broker = RocketBroker(server.name_server)
    return broker.with_result_backend(RocketResults(server.name_server))


def test_a_task_runs_and_its_result_returns(rocketmq: pocketmq.Server) -> None:
    broker = broker_with_results(rocketmq)

    @broker.task
    async def add(one: int, two: int) -> int:
        return one + two

    @broker.task
    def fail() -> None:
        raise ValueError("no price")

    @broker.task
    async def odd() -> object:
        return object()

    async def main() -> None:
        async with running(broker):
            task = await add.kiq(1, 2)
        async with running(broker), working(broker):
            result = await (await add.kiq(1, 2)).wait_result(timeout=PATIENCE_S)
            assert (result.return_value, result.is_err) == (3, False)
            before_the_restart = await task.wait_result(timeout=PATIENCE_S)
            assert before_the_restart.return_value == 3
            failed = await (await fail.kiq()).wait_result(timeout=PATIENCE_S)
            assert isinstance(failed.error, ValueError)
            strange = await (await odd.kiq()).wait_result(timeout=PATIENCE_S)
            assert "cannot be encoded" in str(strange.error)

    asyncio.run(main())


def test_a_result_that_is_not_there_is_not_ready(rocketmq: pocketmq.Server) -> None:
    async def main() -> None:
        results: RocketResults[int] = RocketResults(rocketmq.name_server)
        await results.startup()
        assert not await results.is_result_ready("unknown")
        with pytest.raises(ResultGetError):
            await results.get_result("unknown")
        await results.shutdown()

    asyncio.run(main())


@pytest.mark.parametrize(
    "middleware",
    [
        SimpleRetryMiddleware(default_retry_count=3),
        SmartRetryMiddleware(default_retry_count=3, default_delay=0.5, use_jitter=False),
    ],
)
def test_retries_of_taskiq_are_new_messages(
    rocketmq: pocketmq.Server, middleware: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    broker = broker_with_results(rocketmq)
    broker.add_middlewares(middleware)
    attempts: list[int] = []

    @broker.task(retry_on_error=True)
    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "done"

    async def main() -> None:
        async with running(broker), working(broker):
            task = await flaky.kiq()
            async with asyncio.timeout(PATIENCE_S):
                while len(attempts) < 3 or not await task.is_ready():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                while (await task.get_result()).is_err:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    asyncio.run(main())
    assert len(attempts) == 3


TASKS = """
import os, time
from pocketmq.integrations.taskiq import RocketBroker

broker = RocketBroker(os.environ["SERVERS"], lease_s=2)

@broker.task(task_name="slow")
def slow(number: int) -> None:
    print(f"task {number} begins", flush=True)
    if os.environ["DUTY"] == "hang":
        time.sleep(3600)
    print(f"task {number} ends", flush=True)
"""


def test_a_task_of_a_killed_worker_runs_again(
    rocketmq: pocketmq.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.setenv("SERVERS", rocketmq.name_server)

    async def kick() -> None:
        async with running(RocketBroker(rocketmq.name_server)) as broker:
            formatter = InMemoryBroker().formatter
            message = TaskiqMessage(task_id="1", task_name="slow", labels={}, args=[7], kwargs={})
            await broker.kick(formatter.dumps(message))

    asyncio.run(kick())
    command = [sys.executable, "-m", "taskiq", "worker", "--workers", "1", "tasks:broker"]
    monkeypatch.setenv("DUTY", "hang")
    with started(command, tmp_path) as first:
        first.wait_for("task 7 begins")
        first.kill()
    monkeypatch.setenv("DUTY", "work")
    with started(command, tmp_path) as second:
        second.wait_for("task 7 ends")
