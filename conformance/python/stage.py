"""The context of an act: a cluster, clients for it, topics and groups of its own, and the flaws that were found.

    async def two_sends(stage: Stage) -> None:
        topic = await stage.topic(queues=1)
        async with stage.producer() as producer:
            first = await producer.send(topic, b"one")
        stage.same("offset of the first message", first.queue_offset, 0)

An act needs no feature that only one kind of broker has, unless `needs` of its declaration says so. Times are those of the
running loop, so a test may use virtual time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, TypeVar

from pocketmq.client import (
    AsyncAdmin,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncSimpleConsumer,
)
from pocketmq.client.cluster.instance import Dependencies
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import RETRY_PREFIX

T = TypeVar("T")

WAIT_S: Final = 60.0
"""For what should come soon: a machine may be busy."""
CALL_MS: Final = 20_000
_numbers: Final = count(1)


class Traits(NamedTuple):
    """What a broker can do."""

    timers: bool = True
    """Deliver at any time."""
    no_timers: bool = False
    recall: bool = True
    resets_itself: bool = True
    """Send running members to given offsets."""
    exact_times: bool = True
    """Find the first message at or after a time, and not one near it."""
    tells_new_groups: bool = True
    """Say that a group has no offset, when that is what a client wants to know, and not 0."""
    pops: bool = True
    """Lease messages."""
    no_pops: bool = False
    threads: bool = True
    """Time goes by itself, so that blocking clients can be used."""


class Stage:
    """One act's. `flaws` is what it found."""

    def __init__(self, name_server: str, traits: Traits, check_interval_s: float = 4) -> None:
        self.name_server = name_server
        self.traits = traits
        self.check_interval_s = check_interval_s
        """How often the broker looks for undecided transactions."""
        self.flaws: list[str] = []
        self.number = next(_numbers)
        self._clients = count(1)

    # clients

    def dependencies(self) -> Dependencies:
        """Clock, network and files of the clients."""
        return Dependencies()

    def options(self) -> dict[str, Any]:
        """The options of every client here. Each has its own name, as if it were in another program."""
        return {
            "client_ip": "127.0.0.1",
            "instance_name": f"act{self.number}-{next(self._clients)}",
            "call_timeout_ms": CALL_MS,
            "connect_timeout_ms": CALL_MS,
        }

    def consumer_options(self) -> dict[str, Any]:
        """The same for consumers alone."""
        return self.options()

    def producer(self, **options: Any) -> AsyncProducer:
        made = {**self.options(), "group": self.name("PG"), "send_timeout_ms": CALL_MS, **options}
        return AsyncProducer(self.name_server, dependencies=self.dependencies(), **made)

    def push(self, group: str, **options: Any) -> AsyncPushConsumer:
        """A push consumer that starts at the first message by default."""
        made = {**self.consumer_options(), "group": group, "start_at": "first", **options}
        return AsyncPushConsumer(self.name_server, dependencies=self.dependencies(), **made)

    def lite(self, group: str, **options: Any) -> AsyncLitePullConsumer:
        made = {**self.consumer_options(), "group": group, "start_at": "first", **options}
        return AsyncLitePullConsumer(self.name_server, dependencies=self.dependencies(), **made)

    def pull(self, group: str, **options: Any) -> AsyncPullConsumer:
        made = {**self.consumer_options(), "group": group, **options}
        return AsyncPullConsumer(self.name_server, dependencies=self.dependencies(), **made)

    def simple(self, group: str, **options: Any) -> AsyncSimpleConsumer:
        made = {**self.consumer_options(), "group": group, "start_at": "first", **options}
        return AsyncSimpleConsumer(self.name_server, dependencies=self.dependencies(), **made)

    def admin(self, **options: Any) -> AsyncAdmin:
        return AsyncAdmin(self.name_server, dependencies=self.dependencies(), **{**self.options(), **options})

    # names

    def name(self, word: str) -> str:
        """A name that no other act has."""
        return f"{word}_{self.number}"

    async def topic(self, word: str = "T", queues: int = 2) -> str:
        """A topic that no other act has."""
        async with self.admin() as admin:
            await admin.topics.create(self.name(word), queues=queues)
        return self.name(word)

    async def stored(self, topic: str, at_least: int = 0) -> list[StoredMessage]:
        """All messages of a topic, queue by queue. Apache's broker shows them a moment after it has acknowledged them."""
        async with self.pull(self.name("CG_reader")) as reader:
            queues = sorted(await reader.queues(topic))

            async def ends() -> list[int]:
                found = [await reader.max_offset(queue) for queue in queues]
                return found if sum(found) >= at_least else []

            found: list[StoredMessage] = []
            for queue, end in zip(queues, await self.comes(f"{at_least} messages", ends), strict=True):
                offset = 0
                while offset < end:
                    pulled = await reader.pull(queue, offset)
                    found += pulled.messages
                    offset = pulled.next_offset
            return found

    # times

    @property
    def now(self) -> float:
        """Seconds, to be compared with each other alone."""
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return self.dependencies().clock.now_ms()

    async def until(self, what: str, condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
        """Wait until the condition holds. TimeoutError ends the act with a flaw."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():  # noqa: ASYNC110 there is no event for the condition
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s") from None

    async def comes(self, what: str, ask: Callable[[], Awaitable[T]], timeout_s: float = WAIT_S) -> T:
        """Call `ask` until its answer is true. TimeoutError ends the act with a flaw."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := await ask()):  # noqa: ASYNC110 there is no event for the condition
                    await asyncio.sleep(0.1)
                return found
        except TimeoutError:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s") from None

    async def owns(self, consumer: AsyncPushConsumer, queues: int) -> None:
        """Wait until a consumer has so many queues of topics that are not its own retry topic."""

        async def has() -> bool:
            return len([one for one in await consumer.queues() if not one.topic.startswith(RETRY_PREFIX)]) == queues

        await self.comes(f"{queues} queues", has)

    @contextmanager
    def folder(self) -> Iterator[str]:
        """A folder for as long as it is needed."""
        with TemporaryDirectory() as name:
            yield name

    # judgement

    def same(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self.flaws.append(f"{what}: {found!r} instead of {expected!r}")

    def true(self, what: str, holds: object) -> None:
        if not holds:
            self.flaws.append(f"it is not so that {what}")

    def between(self, what: str, found: float, least: float, most: float) -> None:
        if not least <= found <= most:
            self.flaws.append(f"{what}: {found:.3f} is not between {least:g} and {most:g}")

    async def refused(self, what: str, kind: type[Exception], work: Awaitable[object]) -> None:
        """It must be refused, by this error."""
        try:
            came = await work
        except kind:
            return
        except Exception as error:
            self.flaws.append(f"{what}: {type(error).__name__} instead of {kind.__name__}: {error}")
        else:
            self.flaws.append(f"{what}: no {kind.__name__}, but {came!r}")


class Basket:
    """A listener that keeps messages and their times, and returns what `answer` returns."""

    def __init__(self, answer: Callable[[StoredMessage], Any] = lambda _: None) -> None:
        self.messages: list[StoredMessage] = []
        self.times: list[float] = []
        self._answer = answer

    async def __call__(self, message: StoredMessage) -> Any:
        self.messages.append(message)
        self.times.append(asyncio.get_running_loop().time())
        return self._answer(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def __len__(self) -> int:
        return len(self.messages)


def numbered(count_of: int, word: str = "m") -> list[bytes]:
    """Bodies that tell their numbers."""
    return [f"{word}{number}".encode() for number in range(count_of)]


Play = Callable[[Stage], Awaitable[None]]


class Act(NamedTuple):
    """Something to play. `check` is its row in the table."""

    check: str
    play: Play
    needs: str = ""
    """The trait that a broker must have; without it the act is not for it."""


class Programme:
    """Acts of one kind, in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acts: list[Act] = []

    def act(self, check: str, *, needs: str = "") -> Callable[[Play], Play]:
        def add(play: Play) -> Play:
            self.acts.append(Act(check, play, needs))
            return play

        return add

    def acts_for(self, traits: Traits) -> Sequence[Act]:
        return [act for act in self.acts if not act.needs or getattr(traits, act.needs)]


async def played(act: Act, stage: Stage, timeout_s: float) -> list[str]:
    """Play an act; what was wrong."""
    try:
        async with asyncio.timeout(timeout_s):
            await act.play(stage)
    except Exception as error:
        return [*stage.flaws, f"{type(error).__name__}: {error}"]
    return stage.flaws
