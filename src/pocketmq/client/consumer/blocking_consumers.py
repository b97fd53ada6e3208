"""The blocking consumers. Each runs an async consumer on the shared loop thread, with the same methods and arguments.

    on, subscribe, unsubscribe, assign ──┬─ before the start: called at once; they do not wait for anything then
                                         └─ while running: on the loop thread, as all other methods

After a fork, a started consumer belongs to the parent process; the child gets an error and creates its own. A consumer that was created
but not started may be started in the child: the calls before the start are repeated there.

    consumer = PushConsumer("127.0.0.1:9876", group="billing")

    @consumer.on("orders", tags="paid || refunded")
    def handle(message: StoredMessage) -> None:
        ...

    consumer.run()                                  # until SIGINT or SIGTERM; or: with consumer: …

    with LitePullConsumer("127.0.0.1:9876", group="reports") as consumer:
        consumer.subscribe("orders", tags="paid")
        for message in consumer:                        # or: messages = consumer.poll()
            ...

    with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
        for queue in consumer.queues("orders"):
            result = consumer.pull(queue, consumer.committed(queue) or 0)
            ...
            consumer.commit({queue: result.next_offset})

    with SimpleConsumer("127.0.0.1:9876", group="billing") as consumer:
        consumer.subscribe("orders")
        for message in consumer:                        # or: messages = consumer.receive()
            ...
            consumer.ack(message)

The network has its own thread, plain listeners run in a pool of threads, and `async def` listeners on a separate event loop. So a slow
listener does not cost the consumer its queues. Only one thread at a time may poll a LitePullConsumer.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Concatenate, Final, Generic, Never, ParamSpec, Protocol, TypeVar, Unpack

from pocketmq.client.blocking import BlockingClient, blocking
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.leases import LeaseCounts
from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer, QueuesChanged
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer, Pauses
from pocketmq.client.consumer.settings import (
    GroupOptions,
    GroupSettings,
    LitePullOptions,
    LitePullSettings,
    PullOptions,
    PullSettings,
    PushOptions,
    PushSettings,
    SimpleOptions,
    SimpleSettings,
)
from pocketmq.client.consumer.simple_consumer import AsyncSimpleConsumer
from pocketmq.client.hooks import Hooks, checked_hooks
from pocketmq.client.running import run
from pocketmq.client.settings import checked_seconds
from pocketmq.errors import InvalidSetting
from pocketmq.model import MessageQueue, StoredMessage

C = TypeVar("C", bound=AsyncConsumer[Any, Any])
S = TypeVar("S", bound=GroupSettings)
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")


class BlockingConsumer(BlockingClient[C], Generic[C, S]):
    """Base of the blocking consumers."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._configured: list[Callable[[C], object]] = []

        def make_and_configure() -> C:
            core = make()
            for configure in self._configured:
                configure(core)
            return core

        super().__init__(make_and_configure, "consumer")
        self._over = threading.Event()

    def stop(self) -> None:
        """Stop pulling, wait for running listeners, commit offsets and leave the group. May be called twice, or without a start."""
        super().stop()
        self._over.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer is stopped; False after the timeout. Ctrl-C ends the wait."""
        return self._over.wait(checked_seconds(timeout_s))

    @property
    def settings(self) -> S:
        settings: S = self._core.settings
        return settings

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self.core().client_id

    def _configure_new(self, configure: Callable[[C], object]) -> bool:
        """Configure the core before the start; False after it."""
        with self._lock:
            if not self.is_new:
                return False
            self._renew_core()
            configure(self._core)
            self._configured.append(configure)
            return True

    def configure(self, work: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        """Configure the core, before the start or while running."""
        if not self._configure_new(lambda core: self._run_at_once(work(core))):
            self.call(work(self.core()))

    def _run_at_once(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that does not wait for anything, with or without a running event loop."""
        try:
            work.send(None)
        except StopIteration:
            return
        work.close()
        raise self._state.refusal(self._what, "`with`, or start()")

    def _replace_after_fork(self) -> None:
        self._require_same_process()


class Configurable(Protocol[A_co]):
    """A blocking consumer, as decorated methods see it."""

    def configure(self, work: Callable[[A_co], Coroutine[Any, Any, None]]) -> None: ...


def configuring(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Configurable[A], P], None]:
    """As `blocking`, for methods that may be called before the start."""

    @wraps(method)
    def configure(self: Configurable[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.configure(lambda core: method(core, *args, **kwargs))

    return configure


def _use_shared_thread(options: GroupOptions) -> None:
    """All blocking clients of a process share one thread of the network."""
    if "own_thread" in options:
        raise InvalidSetting("option own_thread has no effect on a blocking consumer; only async consumers have it")
    options["own_thread"] = False


F = TypeVar("F", bound=Callable[..., Any])


class _PushCore(AsyncPushConsumer):
    """Runs on the shared event loop, where listeners must not run."""

    _listeners_run_here = False


class PushConsumer(BlockingConsumer[_PushCore, PushSettings]):
    """A member of a consumer group that calls listeners with messages. The options are those of `AsyncPushConsumer`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[PushOptions],
    ) -> None:
        hooks = checked_hooks(hooks)
        _use_shared_thread(options)
        super().__init__(lambda: _PushCore(name_servers, hooks=hooks, **options))

    # subscriptions

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        batch_size: int | None = None,
        **unknown: Never,
    ) -> Callable[[F], F]:
        """Decorator: make a function the listener of `topic` before the start; see `AsyncPushConsumer.on`."""

        def listen(core: AsyncPushConsumer) -> Callable[[F], F]:
            return core.on(topic, tags=tags, sql=sql, batch_size=batch_size, **unknown)

        listen(self._core)  # checks the arguments

        def register(function: F) -> F:
            if not self._configure_new(lambda core: listen(core)(function)):
                raise self._state.refusal(self._what, "subscribe()")
            return function

        return register

    subscribe = configuring(AsyncPushConsumer.subscribe)
    unsubscribe = configuring(AsyncPushConsumer.unsubscribe)

    def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, then stop and return: the last line of a program.

        Use `pocketmq.run` for several clients. A second signal ends the program. `run` also returns after a call of `stop` in another
        thread. Raises WrongState outside the main thread.
        """
        run(self)

    # control

    def pause(self) -> None:
        """Stop pulling until `resume`. Pulled messages are still consumed, and the queues stay assigned."""
        self.core().pause()

    def resume(self) -> None:
        self.core().resume()

    set_workers = blocking(AsyncPushConsumer.set_workers)

    @property
    def at_work(self) -> int:
        """Running calls of listeners; a run of short calls counts as one."""
        return self.core().at_work

    @property
    def pauses(self) -> Pauses:
        """How often pulls paused, by cause."""
        return self.core().pauses

    @property
    def leases(self) -> LeaseCounts:
        """Leased messages, and what became of former ones. All are 0 if the consumer pulls."""
        return self.core().leases

    queues = blocking(AsyncPushConsumer.queues)
    running_info = blocking(AsyncPushConsumer.running_info)


TASK_THREADS: Final = 20
"""Threads for scheduled tasks, as many as RocketMQ's scheduler has."""
BlockingPullTask = Callable[[MessageQueue], float | None]


class PullConsumer(BlockingConsumer[AsyncPullConsumer, PullSettings]):
    """A member of a consumer group whose user pulls. The options are those of `AsyncPullConsumer`.

    `on_queues_changed` listeners are called on the client's thread, and must not block it.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[PullOptions],
    ) -> None:
        hooks = checked_hooks(hooks)
        _use_shared_thread(options)
        super().__init__(lambda: AsyncPullConsumer(name_servers, hooks=hooks, **options))
        self._pool: ThreadPoolExecutor | None = None

    def stop(self) -> None:
        """Leave the group, and end scheduled tasks. May be called twice, or without a start."""
        super().stop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)  # without waiting: a task may call `stop`

    def _stopping(self) -> None:
        self.call(self._core.cancel_tasks())  # else a task that pulls now would be logged as failed

    # messages

    pull = blocking(AsyncPullConsumer.pull)
    pull_block_if_not_found = blocking(AsyncPullConsumer.pull_block_if_not_found)
    send_back = blocking(AsyncPullConsumer.send_back)

    # queues and offsets

    queues = blocking(AsyncPullConsumer.queues)
    min_offset = blocking(AsyncPullConsumer.min_offset)
    max_offset = blocking(AsyncPullConsumer.max_offset)
    offset_at = blocking(AsyncPullConsumer.offset_at)
    earliest_time_ms = blocking(AsyncPullConsumer.earliest_time_ms)
    committed = blocking(AsyncPullConsumer.committed)
    commit = blocking(AsyncPullConsumer.commit)
    on_queues_changed = blocking(AsyncPullConsumer.on_queues_changed)

    def schedule(self, topic: str, task: BlockingPullTask) -> None:
        """Call `task` repeatedly with each queue of `topic` that is allocated to this member; see `AsyncPullConsumer.schedule`.

        It runs in one of 20 threads, and may block.
        """
        core = self.core()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(TASK_THREADS, "pocketmq pull task")
            pool = self._pool

        async def call(queue: MessageQueue) -> float | None:
            return await asyncio.get_running_loop().run_in_executor(pool, task, queue)

        self.call(core.schedule(topic, call))


class LitePullConsumer(BlockingConsumer[AsyncLitePullConsumer, LitePullSettings]):
    """A member of a consumer group whose user polls. The options are those of `AsyncLitePullConsumer`.

    `on_queues_changed` is called on the client's thread, and must not block it.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        on_queues_changed: QueuesChanged | None = None,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[LitePullOptions],
    ) -> None:
        hooks = checked_hooks(hooks)
        _use_shared_thread(options)
        super().__init__(
            lambda: AsyncLitePullConsumer(name_servers, on_queues_changed=on_queues_changed, hooks=hooks, **options)
        )

    def __exit__(self, kind: object = None, *exc: object) -> None:
        if kind is None and self._core.is_running:
            core = self.core()
            self.call(core.finish_polled())
        self.stop()

    # subscriptions

    subscribe = configuring(AsyncLitePullConsumer.subscribe)
    unsubscribe = configuring(AsyncLitePullConsumer.unsubscribe)

    def assign(
        self, queues: Iterable[MessageQueue], *, tags: str | None = None, sql: str | None = None, **unknown: Never
    ) -> None:
        """Read these queues, without regard to other members, instead of the ones assigned before."""
        chosen = list(queues)
        self.configure(lambda core: core.assign(chosen, tags=tags, sql=sql, **unknown))

    queues_of = blocking(AsyncLitePullConsumer.queues_of)
    queues = blocking(AsyncLitePullConsumer.queues)

    # messages

    def poll(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages, all of one queue; an empty list after the timeout. The messages of the previous poll count as consumed."""
        core = self.core()
        polled = self.call(core.poll_messages(timeout_s))
        return [] if polled is None else polled.all_messages()

    def __iter__(self) -> Iterator[StoredMessage]:
        """The messages one by one, until the consumer is stopped. A message counts as consumed when you take the next one."""
        core = self.core()
        while core.is_running:
            polled = self.call(core.poll_messages())
            if polled is None:
                continue
            yield from polled.one_by_one()

    commit = blocking(AsyncLitePullConsumer.commit)

    # offsets

    position = blocking(AsyncLitePullConsumer.position)
    committed = blocking(AsyncLitePullConsumer.committed)
    offset_at = blocking(AsyncLitePullConsumer.offset_at)
    seek = blocking(AsyncLitePullConsumer.seek)
    seek_to_begin = blocking(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncLitePullConsumer.seek_to_end)
    seek_to_time = blocking(AsyncLitePullConsumer.seek_to_time)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop polling these queues until `resume`. They stay assigned."""
        core = self.core()
        self.call(core.pause(list(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        core = self.core()
        self.call(core.resume(list(queues)))

    running_info = blocking(AsyncLitePullConsumer.running_info)


class SimpleConsumer(BlockingConsumer[AsyncSimpleConsumer, SimpleSettings]):
    """A member of a consumer group to which brokers lease messages. The options are those of `AsyncSimpleConsumer`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[SimpleOptions],
    ) -> None:
        hooks = checked_hooks(hooks)
        _use_shared_thread(options)
        super().__init__(lambda: AsyncSimpleConsumer(name_servers, hooks=hooks, **options))

    subscribe = configuring(AsyncSimpleConsumer.subscribe)
    unsubscribe = configuring(AsyncSimpleConsumer.unsubscribe)
    receive = blocking(AsyncSimpleConsumer.receive)
    ack = blocking(AsyncSimpleConsumer.ack)
    change_invisible = blocking(AsyncSimpleConsumer.change_invisible)

    @property
    def leases(self) -> LeaseCounts:
        """Leased messages, and what became of former ones."""
        return self.core().leases

    @property
    def open_leases(self) -> int:
        """Received messages that are neither acknowledged nor over."""
        return self.core().open_leases

    def __iter__(self) -> Iterator[StoredMessage]:
        """The messages one by one, until the consumer is stopped. Acknowledge each of them."""
        core = self.core()
        while core.is_running:
            message = self.call(core.next_message())
            if message is not None:
                yield message
