"""The push consumer for code that does not await: the same words as `AsyncPushConsumer`.

    consumer = PushConsumer("127.0.0.1:9876", group="billing")

    @consumer.on("orders", tags="paid || refunded")
    def handle(message: StoredMessage) -> None:
        ...

    consumer.run()                                  # until SIGINT or SIGTERM; or: with consumer: …

The network lives in a thread of its own, plain listeners in a pool of threads, `async def` ones on a loop of theirs. So whatever a
listener does, its queues stay with this client.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Never, TypeVar, Unpack

from pocketmq.client.blocking_consumer import BlockingConsumer
from pocketmq.client.consumer_settings import PushOptions, PushSettings, Workers
from pocketmq.client.flow_limits import PauseCause
from pocketmq.client.hooks import Hooks
from pocketmq.client.push_consumer import LISTENER_ARGUMENTS, AsyncPushConsumer
from pocketmq.client.running import run
from pocketmq.model.queue import MessageQueue
from pocketmq.model.suggesting import refuse_unknown
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo

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
        hooks = tuple(hooks)
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

    def subscribe(
        self,
        topic: str,
        listener: Callable[..., Any],
        *,
        tags: str | None = None,
        sql: str | None = None,
        batch_size: int | None = None,
        **unknown: Never,
    ) -> None:
        """Give the messages of `topic` to `listener`; as `on`, but also while running, and also instead of another."""
        refuse_unknown("subscribe", unknown, LISTENER_ARGUMENTS)
        self._tell(lambda core: core.subscribe(topic, listener, tags=tags, sql=sql, batch_size=batch_size))

    def unsubscribe(self, topic: str) -> None:
        """Get no more messages of `topic`."""
        self._tell(lambda core: core.unsubscribe(topic))

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

    def set_workers(self, workers: Workers) -> None:
        """Make so many calls of listeners at the same time from now on: a number, or the least and the most of the threads."""
        core = self.core()
        self.call(core.set_workers(workers))

    @property
    def at_work(self) -> int:
        """Calls of listeners, or runs of short ones, that are under way."""
        return self.core().at_work

    @property
    def pauses(self) -> dict[PauseCause, int]:
        """How often pulls had to wait, and why."""
        return self.core().pauses

    def queues(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        core = self.core()
        return self.call(core.queues())

    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What an administrator would be told about this consumer."""
        core = self.core()
        return self.call(core.running_info(stacks=stacks))
