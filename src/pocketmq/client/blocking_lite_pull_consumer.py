"""The lite pull consumer for code that does not await: the same words as `AsyncLitePullConsumer`.

    with LitePullConsumer("127.0.0.1:9876", group="reports") as consumer:
        consumer.subscribe("orders", tags="paid")
        for message in consumer:                        # or: messages = consumer.poll()
            ...

One thread at a time polls: what was handed out before counts as done then.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Never, Unpack

from pocketmq.client.blocking_consumer import BlockingConsumer
from pocketmq.client.consumer_settings import LitePullOptions, LitePullSettings
from pocketmq.client.hooks import Hooks
from pocketmq.client.lite_pull_consumer import AsyncLitePullConsumer, QueuesChanged
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.model.suggesting import refuse_unknown
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo


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
        hooks = tuple(hooks)
        options["own_thread"] = False  # the shared loop is that thread
        super().__init__(
            lambda: AsyncLitePullConsumer(name_servers, on_queues_changed=on_queues_changed, hooks=hooks, **options)
        )

    def __exit__(self, kind: object = None, *exc: object) -> None:
        if kind is None and self._core.is_running:
            core = self.core()
            self.call(core.finish_handed())
        self.stop()

    @property
    def settings(self) -> LitePullSettings:
        return self._core.settings

    # what it reads

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None, **unknown: Never) -> None:
        """Read `topic` together with the other members of the group."""
        refuse_unknown("subscribe", unknown, ("tags", "sql"))
        self._tell(lambda core: core.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._tell(lambda core: core.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue], *, tags: str | None = None, sql: str | None = None) -> None:
        """Read these queues, whoever else reads them, instead of those that were assigned before."""
        chosen = list(queues)
        self._tell(lambda core: core.assign(chosen, tags=tags, sql=sql))

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; TopicNotFound when it does not exist."""
        core = self.core()
        return self.call(core.queues_of(topic))

    def queues(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        core = self.core()
        return self.call(core.queues())

    # messages

    def poll(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages, of one queue; none when none come in time. Those of the last poll are done with."""
        core = self.core()
        handed = self.call(core.hand_out(timeout_s))
        return [] if handed is None else handed.at_once()

    def __iter__(self) -> Iterator[StoredMessage]:
        """Messages one by one, until the consumer is stopped. Each is done with when the next one is asked for."""
        core = self.core()
        while core.is_running:
            handed = self.call(core.hand_out())
            if handed is None:
                continue
            yield from handed.one_by_one()

    def commit(self) -> None:
        """Everything that you got so far is done: let the group know, now."""
        core = self.core()
        self.call(core.commit())

    # where it is

    def position(self, queue: MessageQueue) -> int:
        """The offset of the first message that is not done with; those of the last poll are with the next one."""
        core = self.core()
        return self.call(core.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is; None when it never was in this queue."""
        core = self.core()
        return self.call(core.committed(queue))

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message that was stored at that time or later."""
        core = self.core()
        return self.call(core.offset_at(queue, time_ms))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in one of this member's queues."""
        core = self.core()
        self.call(core.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        core = self.core()
        self.call(core.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        core = self.core()
        self.call(core.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """To the first message that was stored at that time or later."""
        core = self.core()
        self.call(core.seek_to_time(queue, time_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Get nothing of these queues until `resume`. They stay this member's."""
        core = self.core()
        self.call(core.pause(list(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        core = self.core()
        self.call(core.resume(list(queues)))

    def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What an administrator would be told about this consumer."""
        core = self.core()
        return self.call(core.running_info(stacks=stacks))
