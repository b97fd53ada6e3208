"""The listeners of one consumer, by topic, and the workers that call them."""

import asyncio
import pickle
from collections.abc import Callable

from pocketmq.client.jobs import Job
from pocketmq.client.listener import Listener
from pocketmq.client.send_backs import original_topic
from pocketmq.client.workers import Finished, LoopWorkers, ProcessWorkers, ThreadWorkers, Workers
from pocketmq.clock import Clock
from pocketmq.errors import UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import is_retry

Submit = Callable[[Job], None]


class Listeners:
    """By topic, as it is called on the wire. A message that comes again goes to the listener of its own topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Listener] = {}

    def __len__(self) -> int:
        return len(self._by_topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def put(self, topic: str, listener: Listener) -> None:
        self._by_topic[topic] = listener

    def remove(self, topic: str) -> None:
        self._by_topic.pop(topic, None)

    def require_movable(self) -> None:
        """UsageError for a plain listener that no other process could find."""
        for listener in self._by_topic.values():
            require_movable(listener)

    def of(self, message: StoredMessage) -> Listener | None:
        return self._by_topic.get(original_topic(message))

    def only(self, topic: str) -> Listener | None:
        """The listener of all messages of `topic`; None when that depends on the message."""
        if not is_retry(topic):
            return self._by_topic.get(topic)
        return next(iter(self._by_topic.values())) if len(self._by_topic) == 1 else None


def require_movable(listener: Listener) -> None:
    """UsageError for a plain listener that no other process could find."""
    if listener.is_async:
        return
    try:
        pickle.dumps(listener.function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{listener!r} cannot be called in another process: define it at the top of a module ({error})"
        ) from None


class ListenerWorkers:
    """Workers for each kind of listener, made when the first of the kind is called. To be made on the loop of its consumer."""

    def __init__(
        self,
        finished: Finished,
        clock: Clock,
        *,
        threads: tuple[int, int],
        processes: int | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._finished = finished
        self._clock = clock
        self._thread_range = threads
        self._process_count = processes
        self._loop = loop
        self._plain: Workers | None = None
        self._async: Workers | None = None

    @property
    def at_work(self) -> int:
        """Jobs that were submitted and are not finished."""
        return sum(workers.at_work for workers in (self._plain, self._async) if workers is not None)

    @property
    def least(self) -> int:
        """Threads that stay, once they were needed."""
        return self._thread_range[0]

    def resize(self, least: int, most: int) -> None:
        """How many threads there may be from now on."""
        self._thread_range = least, most
        if isinstance(self._plain, ThreadWorkers):
            self._plain.resize(least, most)

    def submit(self, job: Job) -> None:
        self._workers(job.listener).submit(job)

    async def close(self) -> None:
        for workers in (self._plain, self._async):
            if workers is not None:
                await workers.close()

    def _workers(self, listener: Listener) -> Workers:
        if listener.is_async:
            if self._async is None:
                self._async = LoopWorkers(self._loop, self._finished, self._clock)
            return self._async
        if self._plain is None:
            if self._process_count is not None:
                self._plain = ProcessWorkers(self._process_count, self._finished)
            else:
                self._plain = ThreadWorkers(*self._thread_range, self._finished, self._clock)
        return self._plain
