"""What the tests about clients share: a server in memory with the handlers for clients, and clients that connect to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.broker.states import state_over
from tests.net.talk import BRISK
from tests.store.open_store import OpenStore

from pocketmq.access.accounts import Access, Action, Resource
from pocketmq.broker.groups.members import Members
from pocketmq.broker.handlers.clients import ClientHandlers
from pocketmq.broker.handlers.destinations import Destinations
from pocketmq.broker.handlers.relays import RelayHandlers
from pocketmq.broker.handlers.replying import ReplyHandlers
from pocketmq.broker.handlers.resets import ResetHandlers
from pocketmq.broker.reads.arrivals import Arrivals, Record
from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.snapshots import Snapshots
from pocketmq.codes import Language, RequestCode, ResponseCode, Version
from pocketmq.model.subscription import Subscription
from pocketmq.net.address import Address
from pocketmq.net.connection import ConnectionSettings
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.net.server import Dispatcher, Server, ServerSettings
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData, MessageModel, ProducerData
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork

BROKER = Address("10.0.0.9", 10911)
CALL_S = 10.0
ALL = (Subscription("T", sub_version=1), Subscription("%RETRY%g", sub_version=1))
LASTING = PeerSettings(connection=ConnectionSettings(idle_s=86_400), silence_s=86_400)
"""A connection that neither side closes."""

Answer = Callable[[Command], Command | Coroutine[Any, Any, Command]]


class Client:
    """One end of a connection. `told` are the requests of the broker; `answers` are the replies to them, by code."""

    def __init__(self, client_id: str, version: int = Version.V5_3_3, language: Language = Language.JAVA) -> None:
        self.client_id = client_id
        self.version = version
        self.language = language
        self.told: list[Command] = []
        self.answers: dict[int, Answer] = {}
        self.peer = Peer(serve=self._serve, settings=LASTING)

    def _serve(self, peer: Peer, command: Command) -> Command | Coroutine[Any, Any, Command]:
        self.told.append(command)
        answer = self.answers.get(command.code)
        return command.reply() if answer is None else answer(command)

    async def ask(self, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> Command:
        """The answer, with any code."""
        ext = None if header is None else header.encode()
        command = Command(code, ext, body, version=self.version, language=self.language)
        return await self.peer.call(command, 600)

    async def done(self, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> Command:
        """The answer of success."""
        answer = await self.ask(code, header, body)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return answer

    async def beat(self, heartbeat: HeartbeatData) -> Command:
        return await self.done(
            RequestCode.HEART_BEAT, body=msgspec.structs.replace(heartbeat, client_id=self.client_id).encode()
        )

    def take_covered(self) -> list[Command]:
        told, self.told = self.told, []
        return told


def consuming(
    *groups: str,
    subscriptions: tuple[Subscription, ...] = ALL,
    model: MessageModel = MessageModel.CLUSTERING,
    fingerprint: int = 0,
    without_sub: bool = False,
    unit_mode: bool = False,
) -> HeartbeatData:
    data = tuple(
        ConsumerData(group, message_model=model, subscription_data_set=subscriptions, unit_mode=unit_mode)
        for group in groups
    )
    return HeartbeatData("", (), data, fingerprint, without_sub)


def producing(*groups: str) -> HeartbeatData:
    return HeartbeatData("", tuple(map(ProducerData, groups)))


class WatchedArrivals(Arrivals):
    """Also records which queues were woken."""

    def __init__(self, record: Record, *, max_waiting: int, skip_delay_s: float) -> None:
        super().__init__(record, max_waiting=max_waiting, skip_delay_s=skip_delay_s)
        self.woken: list[tuple[str, int]] = []

    def wake(self, topic: str, queue_id: int) -> None:
        self.woken.append((topic, queue_id))
        super().wake(topic, queue_id)


class WatchedSnapshots(Snapshots):
    """Counts the requests to save the offsets, and saves nothing."""

    saved = 0

    async def save_offsets(self) -> None:
        self.saved += 1


class Room:
    """The handlers for clients over their tables, and a server that has no others."""

    def __init__(self, flush: FlushMode = FlushMode.ASYNC, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.network = MemoryNetwork(weather=BRISK)
        self.clock = FakeClock(loop)
        now = BrokerSettings(**settings)
        self.disk = OpenStore.small(FaultyFiles(), self.clock, max_message_bytes=2048, flush=flush)
        self.store = self.disk.store
        self.state = state = state_over(self.disk, now)
        self.settings = state.settings
        self.topics, self.groups, self.offsets = state.topics, state.groups, state.offsets
        self.locks, self.subscriptions = state.locks, state.subscriptions
        self.members = state.members = Members(expiry=now.client_expiry_ms / 1000, max_subscriptions=20)
        self.arrivals = state.arrivals = WatchedArrivals(self.store.record, max_waiting=10, skip_delay_s=5)
        self.snapshots = state.snapshots = WatchedSnapshots(
            self.store.tables, self.clock, self.topics, self.groups, self.offsets
        )
        self.announced = 0
        self.clients = ClientHandlers(state, self._announce)
        self.notices = self.clients.notices
        self.replies = ReplyHandlers(state, Destinations(self.topics, self.settings, self.clock, self._announce))
        self.server = Server(
            BROKER,
            serve=self._dispatcher().serve,
            on_lost=lambda peer, _: self.clients.lost(peer),
            network=self.network,
            settings=ServerSettings(LASTING, drain_s=0.1),
        )

    def _dispatcher(self) -> Dispatcher:
        families = self.clients, RelayHandlers(self.state), ResetHandlers(self.state), self.replies
        tables = [family.table() for family in families]
        return Dispatcher(tables, dict.fromkeys(RequestCode, Access(Resource.CLUSTER, Action.GET)))

    def _announce(self) -> None:
        self.announced += 1

    def change(self, **settings: Any) -> None:
        """Change settings while the broker runs."""
        self.settings.now = msgspec.structs.replace(self.settings.now, **settings)

    def make_topic(self, name: str, queues: int = 2, *, order: bool = False) -> None:
        self.topics.put([TopicConfig(name, queues, queues, order=order)], 0)

    async def connect(
        self,
        client_id: str,
        heartbeat: HeartbeatData | None = None,
        *,
        version: int = Version.V5_3_3,
        language: Language = Language.JAVA,
    ) -> Client:
        """A client that has sent its heartbeat, if there is one."""
        client = Client(client_id, version, language)
        await self.network.connect(lambda: client.peer.connection, BROKER)
        if heartbeat is not None:
            await client.beat(heartbeat)
        return client


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Room]:
    """A network with a listening server."""
    room = Room(**settings)
    async with room.server:
        yield room
    room.store.close()


async def settled() -> None:
    """Wait until everything in transit has arrived."""
    await asyncio.sleep(0.1)
