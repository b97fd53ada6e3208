"""What all blocking consumers are made of: an async one on the shared loop thread.

    on, subscribe, unsubscribe, assign ──┬─ before the start: told to the core at once, which waits for nothing yet
                                         └─ while running: on the loop thread, as everything else

After a fork a consumer belongs to the parent process, which goes on reading: the child is refused, and makes its own. One that was made
but not started before the fork may be started in the child: what it was told is told to the core there.

The push consumer for code that does not await: the same words as `AsyncPushConsumer`.

    consumer = PushConsumer("127.0.0.1:9876", group="billing")

    @consumer.on("orders", tags="paid || refunded")
    def handle(message: StoredMessage) -> None:
        ...

    consumer.run()                                  # until SIGINT or SIGTERM; or: with consumer: …

The network lives in a thread of its own, plain listeners in a pool of threads, `async def` ones on a loop of theirs. So whatever a
listener does, its queues stay with this client.

The pull consumer for code that does not await: the same words as `AsyncPullConsumer`.

with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
    for queue in consumer.queues("orders"):
        result = consumer.pull(queue, consumer.committed(queue) or 0)
        ...
        consumer.commit({queue: result.next_offset})

The lite pull consumer for code that does not await: the same words as `AsyncLitePullConsumer`.

    with LitePullConsumer("127.0.0.1:9876", group="reports") as consumer:
        consumer.subscribe("orders", tags="paid")
        for message in consumer:                        # or: messages = consumer.poll()
            ...

One thread at a time polls: what was handed out before counts as done then.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Concatenate, Final, Never, ParamSpec, Protocol, TypeVar, Unpack

from pocketmq.client.blocking import BlockingClient, blocking
from pocketmq.client.cluster.identity import generation, require_same_process
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.lite_pull_consumer import AsyncLitePullConsumer, QueuesChanged
from pocketmq.client.consumer.pull_consumer import AsyncPullConsumer
from pocketmq.client.consumer.push_consumer import LISTENER_ARGUMENTS, AsyncPushConsumer
from pocketmq.client.consumer.settings import (
    LitePullOptions,
    LitePullSettings,
    PullOptions,
    PullSettings,
    PushOptions,
    PushSettings,
)
from pocketmq.client.hooks import Hooks, checked_hooks
from pocketmq.client.running import run
from pocketmq.errors import WrongState
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import refuse_unknown
from pocketmq.model.queue import MessageQueue

C = TypeVar("C", bound=AsyncConsumer[Any, Any])
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")


class BlockingConsumer(BlockingClient[C]):
    """Base of the blocking consumers."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._told: list[Callable[[C], object]] = []

        def make_and_tell() -> C:
            core = make()
            for tell in self._told:
                tell(core)
            return core

        super().__init__(make_and_tell, "consumer")
        self._over = threading.Event()

    def stop(self) -> None:
        """Take no more messages, wait for those in work, leave the group. Harmless when done twice, or without a start."""
        super().stop()
        self._over.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the consumer was stopped, at once or before the time is up. Ctrl-C ends the waiting."""
        return self._over.wait(timeout_s)

    @property
    def client_id(self) -> str:
        """How brokers call this client."""
        return self.core().client_id

    def _tell_new(self, tell: Callable[[C], object]) -> bool:
        """Tell the core something before the start; False when it is too late for that."""
        with self._lock:
            if not self.is_new:
                return False
            if self._made_in != generation():
                self._replace_core()
            tell(self._core)
            self._told.append(tell)
            return True

    def tell(self, work: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        """Tell the core something, before the start or while running."""
        if not self._tell_new(lambda core: _at_once(work(core))):
            self.call(work(self.core()))

    def _begin_anew(self) -> None:
        require_same_process(self._made_in, "consumer")


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that has nothing to wait for, with or without a loop around."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise WrongState("this has to wait for others, which it can only once the consumer was started")


class Telling(Protocol[A_co]):
    """A blocking consumer, as its methods know it."""

    def tell(self, work: Callable[[A_co], Coroutine[Any, Any, None]]) -> None: ...


def telling(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Telling[A], P], None]:
    """As `blocking`, for what a consumer may be told before its start."""

    @wraps(method)
    def tell(self: Telling[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.tell(lambda core: method(core, *args, **kwargs))

    return tell


F = TypeVar("F", bound=Callable[..., Any])


class _Core(AsyncPushConsumer):
    """On the shared loop, where listeners must not run."""

    _listeners_run_here = False


class PushConsumer(BlockingConsumer[_Core]):
    """A member of a consumer group whose messages are brought to listeners. Options are those of `AsyncPushConsumer`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[PushOptions],
    ) -> None:
        hooks = checked_hooks(hooks)
        options["own_thread"] = False  # the shared loop is that thread
        super().__init__(lambda: _Core(name_servers, hooks=hooks, **options))

    @property
    def settings(self) -> PushSettings:
        return self._core.settings

    # what it listens to

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        batch_size: int | None = None,
        **unknown: Never,
    ) -> Callable[[F], F]:
        """Make a function the listener of `topic`, before the start; see `AsyncPushConsumer.on`."""
        refuse_unknown("on", unknown, LISTENER_ARGUMENTS)

        def register(function: F) -> F:
            if not self._tell_new(lambda core: core.on(topic, tags=tags, sql=sql, batch_size=batch_size)(function)):
                raise self._state.refusal(self._what, "subscribe()")
            return function

        return register

    subscribe = telling(AsyncPushConsumer.subscribe)
    unsubscribe = telling(AsyncPushConsumer.unsubscribe)

    def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, stop as `stop` does, and return: the last line of a program.

        `pocketmq.run` does it for several clients; a second signal ends the program. Returns also after a `stop` from
        another thread. WrongState outside the main thread.
        """
        run(self)

    # what it does

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is here is still handled. It stays a member, and keeps its queues."""
        self.core().pause()

    def resume(self) -> None:
        self.core().resume()

    set_workers = blocking(AsyncPushConsumer.set_workers)

    @property
    def at_work(self) -> int:
        """Calls of listeners, or runs of short ones, that are under way."""
        return self.core().at_work

    @property
    def pauses(self) -> dict[PauseCause, int]:
        """How often pulls had to wait, and why."""
        return self.core().pauses

    queues = blocking(AsyncPushConsumer.queues)
    running_info = blocking(AsyncPushConsumer.running_info)


TASK_THREADS: Final = 20
"""Threads that call scheduled tasks, as RocketMQ's scheduler has."""
BlockingPullTask = Callable[[MessageQueue], float | None]


class PullConsumer(BlockingConsumer[AsyncPullConsumer]):
    """A member of a consumer group that pulls by itself. Options are those of `AsyncPullConsumer`.

    Listeners of `on_queues_changed` are called on the client's own thread, and must not block it.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        **options: Unpack[PullOptions],
    ) -> None:
        hooks = checked_hooks(hooks)
        options["own_thread"] = False  # the shared loop is that thread
        super().__init__(lambda: AsyncPullConsumer(name_servers, hooks=hooks, **options))
        self._pool: ThreadPoolExecutor | None = None

    def stop(self) -> None:
        """Leave the group, and call scheduled tasks no more. Harmless when done twice, or without a start."""
        super().stop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)  # a task may be the one that stops it

    @property
    def settings(self) -> PullSettings:
        return self._core.settings

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
        """Call `task` with each queue of this member's share of `topic`, again and again; see `AsyncPullConsumer.schedule`.

        It is called in one of 20 threads, and may block.
        """
        core = self.core()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(TASK_THREADS, "pocketmq pull task")
            pool = self._pool

        async def call(queue: MessageQueue) -> float | None:
            return await asyncio.get_running_loop().run_in_executor(pool, task, queue)

        self.call(core.schedule(topic, call))


class LitePullConsumer(BlockingConsumer[AsyncLitePullConsumer]):
    """A member of a consumer group that is polled. Options are those of `AsyncLitePullConsumer`.

    `on_queues_changed` is called on the client's own thread, and must not block it.
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
        options["own_thread"] = False  # the shared loop is that thread
        super().__init__(
            lambda: AsyncLitePullConsumer(name_servers, on_queues_changed=on_queues_changed, hooks=hooks, **options)
        )

    def __exit__(self, kind: object = None, *exc: object) -> None:
        if kind is None and self._core.is_running:
            core = self.core()
            self.call(core.finish_polled())
        self.stop()

    @property
    def settings(self) -> LitePullSettings:
        return self._core.settings

    # what it reads

    subscribe = telling(AsyncLitePullConsumer.subscribe)
    unsubscribe = telling(AsyncLitePullConsumer.unsubscribe)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = None, sql: str | None = None) -> None:
        """Read these queues, whoever else reads them, instead of those that were assigned before."""
        chosen = list(queues)
        self.tell(lambda core: core.assign(chosen, tags=tags, sql=sql))

    queues_of = blocking(AsyncLitePullConsumer.queues_of)
    queues = blocking(AsyncLitePullConsumer.queues)

    # messages

    def poll(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages, of one queue; none when none come in time. Those of the last poll are done with."""
        core = self.core()
        polled = self.call(core.poll_messages(timeout_s))
        return [] if polled is None else polled.at_once()

    def __iter__(self) -> Iterator[StoredMessage]:
        """Messages one by one, until the consumer is stopped. Each is done with when the next one is asked for."""
        core = self.core()
        while core.is_running:
            polled = self.call(core.poll_messages())
            if polled is None:
                continue
            yield from polled.one_by_one()

    commit = blocking(AsyncLitePullConsumer.commit)

    # where it is

    position = blocking(AsyncLitePullConsumer.position)
    committed = blocking(AsyncLitePullConsumer.committed)
    offset_at = blocking(AsyncLitePullConsumer.offset_at)
    seek = blocking(AsyncLitePullConsumer.seek)
    seek_to_begin = blocking(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncLitePullConsumer.seek_to_end)
    seek_to_time = blocking(AsyncLitePullConsumer.seek_to_time)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Get nothing of these queues until `resume`. They stay this member's."""
        core = self.core()
        self.call(core.pause(list(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        core = self.core()
        self.call(core.resume(list(queues)))

    running_info = blocking(AsyncLitePullConsumer.running_info)
