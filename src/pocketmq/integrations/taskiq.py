"""taskiq on RocketMQ: `RocketBroker` sends tasks and leases them to workers, `RocketResults` keeps their results.

broker = RocketBroker("127.0.0.1:9876").with_result_backend(RocketResults("127.0.0.1:9876"))

@broker.task
async def add(one: int, two: int) -> int: ...

task = await add.kicker().with_labels(delay=5).kiq(1, 2)

kick ──► topic, delayed by the broker ──► a worker leases the task ── ack ──► done
                                                    └── dies: the lease ends, and another worker gets the task
result ──► topic of results, with the id of the task as its key ──► found by this key
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from logging import getLogger
from typing import Final, Generic, TypeVar, Unpack

from pocketmq.integrations import require

require("taskiq")

from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage, TaskiqResult  # noqa: E402
from taskiq.abc.serializer import TaskiqSerializer  # noqa: E402
from taskiq.exceptions import ResultGetError  # noqa: E402
from taskiq.formatters.proxy_formatter import ProxyFormatter  # noqa: E402
from taskiq.message import TaskiqMessage  # noqa: E402
from taskiq.serializers import JSONSerializer  # noqa: E402

from pocketmq.client import AsyncAdmin, AsyncProducer, AsyncSimpleConsumer  # noqa: E402
from pocketmq.client.settings import ClientOptions  # noqa: E402
from pocketmq.errors import LeaseLost, NetworkError, PocketMQError, TopicNotFound, UsageError  # noqa: E402
from pocketmq.model import Message, StoredMessage  # noqa: E402

DELAY = "delay"
"""The label with the seconds until a worker may get a task, which taskiq's SmartRetryMiddleware sets too."""
PRIORITY = "priority"
ACK_RETRY_S: Final = 1.0
"""When a failed ack is repeated."""
R = TypeVar("R")
log = getLogger("pocketmq.taskiq")


class TaskFormatter(ProxyFormatter):
    """taskiq's own format. A task that cannot be encoded is reported with its name."""

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        try:
            return super().dumps(message)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"task {message.task_name} cannot be sent, because an argument or label cannot be encoded: {error}; give "
                "numbers, texts, lists, dicts or pydantic models, or another serializer with broker.with_serializer(…)"
            ) from error


class RocketBroker(AsyncBroker):
    """taskiq's broker. All workers of a `group` share the tasks of a `topic`. `options` are those of all clients.

    A worker leases a task for `lease_s` and extends the lease while the task runs, up to `max_run_s`. After that, or when the worker
    dies, another one gets the task. After the attempts of the group (16, unless you set `retryMaxTimes`) it is a dead letter.
    `prefetch` tasks at most wait in a worker.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        lease_s: float = 60,
        max_run_s: float = 3600,
        prefetch: int = 1,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self.formatter = TaskFormatter(self)
        self._topic = topic
        self._prefetch = prefetch
        self._make_producer = partial(AsyncProducer, name_servers, **options)
        self._make_consumer = partial(
            AsyncSimpleConsumer,
            name_servers,
            group=group,
            start_at="first",
            invisible_ms=round(lease_s * 1000),
            max_hold_ms=round(max_run_s * 1000),
            auto_renew=True,
            **options,
        )
        self._producer = self._make_producer()
        self._consumer = self._make_consumer()

    async def startup(self) -> None:
        """Start, also again after a `shutdown`."""
        await super().startup()
        if not self._producer.is_new:
            self._producer, self._consumer = self._make_producer(), self._make_consumer()
        await self._producer.start()

    async def shutdown(self) -> None:
        await super().shutdown()
        await self._consumer.stop()
        await self._producer.stop()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. The label `delay` is a number of seconds. RocketMQ has no priorities: UsageError for that label."""
        if PRIORITY in message.labels:
            raise UsageError(
                f"task {message.task_name} has the label {PRIORITY!r}, but RocketMQ has no priorities; remove it, and send urgent "
                "tasks with a RocketBroker of another topic and group"
            )
        delay_ms = _delay_ms(message)
        await self._producer.send(
            Message(self._topic, message.message, keys=message.task_id, delay_ms=delay_ms if delay_ms > 0 else None)
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks that are leased to this worker. Those that it has not begun go to other workers at the end."""
        if self._consumer.is_new:
            await self._consumer.subscribe(self._topic)
            await self._consumer.start()
        while True:
            leased = await self._consumer.receive(self._prefetch)
            try:
                while leased:
                    message = leased.pop(0)
                    yield AckableMessage(data=message.body, ack=partial(self._ack, message))
            finally:
                for message in leased:
                    with suppress(PocketMQError):  # otherwise the leases end by themselves
                        await self._consumer.change_invisible(message, 0)

    async def _ack(self, message: StoredMessage) -> None:
        """Acknowledge a task. If the broker is away, repeat it until the lease is over: a task that is done does not run again."""
        while True:
            try:
                await self._consumer.ack(message)
                break
            except LeaseLost:
                break  # the client has logged it: the task runs again
            except NetworkError as error:
                log.warning("cannot acknowledge task %s: %s; retrying", "".join(message.keys), error)
            await asyncio.sleep(ACK_RETRY_S)


def _delay_ms(message: BrokerMessage) -> int:
    delay = message.labels.get(DELAY, 0)
    try:
        return round(float(delay) * 1000)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"task {message.task_name} has the label {DELAY}={delay!r}; it must be a number of seconds, such as 2.5"
        ) from None


class RocketResults(AsyncResultBackend[R], Generic[R]):
    """Keeps the results of tasks in a topic, as long as its brokers keep messages (72 hours, unless you set `fileReservedTime`)."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq-results",
        serializer: TaskiqSerializer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._topic = topic
        self._serializer = serializer or JSONSerializer()
        self._make_producer = partial(AsyncProducer, name_servers, **options)
        self._make_admin = partial(AsyncAdmin, name_servers, **options)
        self._producer = self._make_producer()
        self._admin = self._make_admin()

    async def startup(self) -> None:
        if not self._producer.is_new:
            self._producer, self._admin = self._make_producer(), self._make_admin()
        await self._producer.start()
        await self._admin.start()

    async def shutdown(self) -> None:
        await self._producer.stop()
        await self._admin.stop()

    async def set_result(self, task_id: str, result: TaskiqResult[R]) -> None:
        """Store a result. One that cannot be encoded is stored as an error, which ends each wait for it."""
        try:
            body = self._encoded(result)
        except (TypeError, ValueError) as error:
            reason = UsageError(
                f"the result of task {task_id} cannot be encoded: {error}; return numbers, texts, lists, dicts or pydantic "
                "models, or give RocketResults(serializer=…)"
            )
            body = self._encoded(result.model_copy(update={"return_value": None, "error": reason, "is_err": True}))
        await self._producer.send(Message(self._topic, body, keys=task_id))

    async def is_result_ready(self, task_id: str) -> bool:
        return bool(await self._found(task_id))

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[R]:
        """The newest result of a task. Raises ResultGetError if there is none."""
        found = await self._found(task_id)
        if not found:
            raise ResultGetError
        result: TaskiqResult[R] = TaskiqResult.model_validate(self._serializer.loadb(found[-1].body))
        if not with_logs:
            result.log = None
        return result

    def _encoded(self, result: TaskiqResult[R]) -> bytes:
        return self._serializer.dumpb(result.model_dump(mode="json"))

    async def _found(self, task_id: str) -> list[StoredMessage]:
        try:
            return await self._admin.messages.by_key(self._topic, task_id)
        except TopicNotFound:
            return []
