"""One name server: what it knows of this broker, and the task that keeps it so.

    ┌──► connected ── knows nothing of us, or it is time ──► all topics ──┬─► known ── a few changed ──► each of these ─┐
    │        │        many topics changed meanwhile                       │     ▲                                       │
    │        └─ no connection ──────────────┐                             │     └───────────────────────────────────────┤
    │                                       ▼                             │                                             │
    └── a second, two, four … later ── unknown ◄── refused, no answer ────┘                                             │
    └── at once ◄────────── the line was lost: the name server forgot us with it ◄──────────────────────────────────────┘

Whatever fails, all topics are told next, so nothing that was to be told has to be remembered.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from pocketmq.broker.introduction import Introduction
from pocketmq.broker.settings import SettingsInUse
from pocketmq.errors import PocketMQError
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.net.pool import Pool
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.broker")

SECOND_TELLING_S: Final = 10.0
"""All is told again so soon after the first time, as RocketMQ does."""
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 10.0
"""How long after a failure it is tried again; each time twice as long, up to the second number."""
UNREGISTER_S: Final = 1.0
"""How long stopping waits for a name server, which also notices that the line is gone."""


class Registry:
    """A name server and its task.

    `locate(host)` says where clients find us, if this machine is `host` to the name server; `on_located` is called when `own`
    is another. `gather` brings what changed, by `note`: a version must not be told without a change that it stands for.
    """

    def __init__(
        self,
        address: Address,
        pool: Pool,
        introduction: Introduction,
        settings: SettingsInUse,
        *,
        locate: Callable[[str], Address],
        gather: Callable[[], None],
        on_located: "Callable[[Registry], None]",
    ) -> None:
        self.address = address
        self.own: Address | None = None
        """Where it tells clients to find us; None before it was reached."""
        self.tried = asyncio.Event()
        """Set when the first try is over, well or not."""
        self.rejected = 0
        """Topics of the last request to it that it has no space for."""
        self._pool = pool
        self._introduction = introduction
        self._settings = settings
        self._locate = locate
        self._gather = gather
        self._on_located = on_located
        self._peer: Peer | None = None
        self._known_by: Peer | None = None
        """The line by which it was told everything; None while something is missing."""
        self._changed: dict[str, TopicConfig] = {}
        self._all_changed = False
        self._due_at = 0.0
        self._failures = 0
        self._woken = asyncio.Event()
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def is_known(self) -> bool:
        """Whether it knows everything that it was to be told up to now."""
        return self._known_by is not None and self._known_by.is_open and not self._changed and not self._all_changed

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._keep_telling(), name=f"pocketmq registration with {self.address}")

    async def stop(self) -> None:
        """Say good-bye, if there is a line to say it by."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if self._peer is not None and self.own is not None and self._peer.is_open:
            try:
                await self._peer.call(self._introduction.unregister(self.own), UNREGISTER_S)
            except PocketMQError as error:
                log.info("name server %s was not told that this broker stops: %s", self.address, error)

    def note(self, changed: Iterable[TopicConfig], *, all_changed: bool = False) -> None:
        """These topics are to be told. After a failure it waits for its next try, which tells all of them."""
        self._changed.update((row.topic_name, row) for row in changed)
        self._all_changed |= all_changed
        if not self.is_known:
            self._answered.clear()
        if (self._changed or self._all_changed) and not self._failures:
            self._woken.set()

    @property
    def is_to_be_told(self) -> bool:
        """Whether it has still to answer to something that it is being told. One that failed last is not waited for."""
        return self._task is not None and not self._failures and not self.is_known

    async def wait_answered(self) -> None:
        """Wait until it has answered the newest registration, or has failed."""
        await self._answered.wait()

    async def connect(self) -> Peer:
        """The line to the name server. Where clients find us may follow from it."""
        peer = await self._pool.peer(self.address)
        own = self._locate(peer.line.own_address.host)
        if own != self.own:
            self.own = own
            self._on_located(self)
        if peer is not self._peer:
            self._peer = peer
            watch = asyncio.get_running_loop().create_task(peer.wait_lost())
            self._watches.add(watch)
            watch.add_done_callback(self._lost)
        return peer

    def _lost(self, watch: asyncio.Task[None]) -> None:
        self._watches.discard(watch)
        if not self._failures:
            self._woken.set()

    async def _keep_telling(self) -> None:
        while True:
            try:
                await self._tell()
            except Exception as error:
                self._fail(error)
            else:
                self._succeed()
            self.tried.set()
            if self.is_known or self._failures:
                self._answered.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._woken.wait()
            self._woken.clear()

    def _wait_s(self) -> float:
        if self._failures:
            return min(RETRY_S * 2.0 ** min(self._failures - 1, 62), RETRY_MAX_S)
        if not self.is_known:
            return 0.0  # something changed, or the line was lost, before the failure was over
        return max(self._due_at - asyncio.get_running_loop().time(), 0.0)

    async def _tell(self) -> None:
        peer = await self.connect()
        self._gather()
        is_due = peer is not self._known_by or asyncio.get_running_loop().time() >= self._due_at
        changed = list(self._changed.values())
        if is_due or self._all_changed or not self._introduction.may_tell_singly(len(changed)):
            await self._say(peer, ())
        elif changed:
            await self._say(peer, changed)
        if is_due:
            wait_s = self._settings.now.register_interval_ms / 1000 if self._due_at else SECOND_TELLING_S
            self._due_at = asyncio.get_running_loop().time() + wait_s

    async def _say(self, peer: Peer, changed: Iterable[TopicConfig]) -> None:
        """Tell these topics, or all when there are none."""
        assert self.own is not None, "it is known from the connection on"
        self._known_by, self._all_changed = None, False
        self._changed.clear()
        for command in self._introduction.register(self.own, changed):
            answer = await peer.call(command, self._settings.now.register_timeout_ms / 1000)
            if refusal := answer.error():
                raise refusal
            self._tell_rejected(self._introduction.take_answer(answer), answer)
        self._known_by = peer
        self._gather()

    def _tell_rejected(self, count: int, answer: Command) -> None:
        """It comes again with every registration, and is worth a line when it is another number."""
        if count > self.rejected:
            log.warning("name server %s gives no route to some topics of this broker: %s", self.address, answer.remark)
        self.rejected = count

    def _fail(self, error: Exception) -> None:
        self._known_by = None
        self._failures += 1
        if self._failures == 1:
            text = "name server %s cannot be told of this broker, and is tried again: %s"
            log.error(text, self.address, error, exc_info=None if isinstance(error, PocketMQError) else error)

    def _succeed(self) -> None:
        if self._failures:
            self._failures = 0
            log.info("name server %s knows this broker again", self.address)
