"""A complete broker in virtual time, with a disk and a network in memory: shared by the tests of its hot path.

Its threads are real; while one is at work time stands still, unless the test stalls it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, cast

from msgspec.structs import replace
from tests.net.talk import BRISK
from tests.store.kit import messages_in

from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import BrokerSettings
from pocketmq.codes import HeaderEncoding, PullFlag, RequestCode, ResponseCode
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.model.subscription import Subscription
from pocketmq.net.connection import ConnectionSettings
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.protocol.api.messages import (
    PullMessage,
    QueryConsumerOffset,
    SendMessage,
    SendMessageV2,
    UpdateConsumerOffset,
)
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData, MessageModel
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tools.findings import Finding, Severity
from pocketmq.store.tools.verify import Verification
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork, VirtualLoop, run
from pocketmq.testing.disk.faults import Stall

P = ParamSpec("P")

CALL_S = 600.0
LASTING = PeerSettings(connection=ConnectionSettings(idle_s=86_400), silence_s=86_400)
"""A client that never hangs up by itself."""

SMALL_STORE = StoreSettings(
    folder=Path("/store"),
    log_file_bytes=64 * 1024,
    prepared_files=4,
    queue_file_entries=100,
    index_slots=100,
    index_entries=400,
    max_message_bytes=8 * 1024,
    pool_buffers=4,
    pool_buffer_bytes=8 * 1024,
    memory_bytes=1 << 30,
    slow_write_ms=60_000,  # a clock that ticks must not make the disk look slow
)


STALLING = {"max_unsynced_bytes": 1_000, "flush_interval_ms": 10, "flush_least_pages": 0}
"""A store that is busy as soon as it has written a little that is not synced."""


class TickingClock(FakeClock):
    """The time of the loop, plus some time for every reading, if the test requests it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.skip_delay_s = 0.0
        self._passed_s = 0.0

    def monotonic(self) -> float:
        self._passed_s += self.skip_delay_s
        return super().monotonic() + self._passed_s


class Client:
    """One connection to the broker."""

    def __init__(self) -> None:
        self.told: list[Command] = []
        self.peer = Peer(serve=self._serve, settings=LASTING)

    def _serve(self, peer: Peer, command: Command) -> Command:
        self.told.append(command)
        return command.reply()

    async def ask(
        self, code: int, header: Fields | None = None, body: bytes = b"", *, binary: bool = False, **ext: str
    ) -> Command:
        """The answer, with any code."""
        return await self.peer.call(request(code, header, body, binary=binary, **ext), CALL_S)

    def tell(self, code: int, header: Fields | None = None, body: bytes = b"") -> None:
        """Ask for something, and for no answer."""
        self.peer.oneway(request(code, header, body))

    async def send(self, body: bytes = b"body", *, binary: bool = False, **fields: Any) -> Command:
        return await self.ask(RequestCode.SEND_MESSAGE_V2, sending(**fields), body, binary=binary)

    async def sent(self, body: bytes = b"body", **fields: Any) -> Command:
        """The answer to a send, which succeeded."""
        answer = await self.send(body, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def pull(self, offset: int = 0, **fields: Any) -> Command:
        return await self.ask(RequestCode.PULL_MESSAGE, pulling(offset, **fields))

    async def beat(
        self, group: str = "G", *subscriptions: Subscription, model: MessageModel = MessageModel.CLUSTERING
    ) -> None:
        data = ConsumerData(group, message_model=model, subscription_data_set=subscriptions or (Subscription("T"),))
        answer = await self.ask(RequestCode.HEART_BEAT, body=HeartbeatData("client", (), (data,)).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def offset(self, group: str = "G", topic: str = "T", queue_id: int = 0, zero: bool | None = None) -> Command:
        return await self.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(group, topic, queue_id, set_zero_if_not_found=zero)
        )

    async def commit(self, offset: int, group: str = "G", topic: str = "T", queue_id: int = 0) -> Command:
        return await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(group, topic, queue_id, offset))


def request(code: int, header: Fields | None = None, body: bytes = b"", *, binary: bool = False, **ext: str) -> Command:
    encoding = HeaderEncoding.ROCKETMQ if binary else HeaderEncoding.JSON
    fields = {**header.encode(), **ext} if header is not None else ext or None
    return Command(code, fields, body, encoding=encoding)


def sending(
    topic: str = "T",
    queue_id: int = 0,
    properties: str | dict[str, str] | None = None,
    *,
    key: str = "K",
    template: str = "TBW102",
    queues: int = 4,
    sys_flag: int = 0,
    born_ms: int = 1_700_000_000_123,
    flag: int = 0,
    **more: Any,
) -> SendMessageV2:
    """The header of a send. `properties` are used unchanged if they are a text; otherwise UNIQ_KEY is added."""
    if not isinstance(properties, str):
        properties = format_properties({"UNIQ_KEY": key} | (properties or {}))
    return SendMessageV2("PG", topic, template, queues, queue_id, sys_flag, born_ms, flag, properties, **more)


def long_names(header: SendMessageV2) -> SendMessage:
    """The same header for code 10."""
    return SendMessage(*(getattr(header, name) for name in SendMessage.__struct_fields__))


def pulling(
    offset: int = 0,
    *,
    group: str = "G",
    topic: str = "T",
    queue_id: int = 0,
    most: int = 32,
    flags: int = PullFlag.SUBSCRIPTION,
    wait_ms: int = 0,
    commit: int = 0,
    version: int = 0,
    expression: str | None = "*",
    kind: str | None = "TAG",
) -> PullMessage:
    """The header of a pull; it is held if it has a time to wait."""
    flags |= PullFlag.SUSPEND if wait_ms else 0
    return PullMessage(group, topic, queue_id, offset, most, flags, commit, wait_ms, version, expression, kind)


class RunningBroker:
    """A running broker with its environment."""

    def __init__(self, broker: Broker, disk: FaultyFiles, network: MemoryNetwork, clock: TickingClock) -> None:
        self.broker, self.disk, self.network, self.clock = broker, disk, network, clock
        self.parts = broker.parts
        self.store = broker.parts.state.store
        self.turns = broker.parts.turns

    async def connect(self, host: str = "10.1.0.1") -> Client:
        client = Client()
        await self.network.at(host).connect(lambda: client.peer.connection, self.broker.address)
        return client

    def peer_of(self, client: Client) -> Peer:
        """The broker's end of a client's connection."""
        peers = self.broker._started_server.peers
        (peer,) = (one for one in peers if one.address == client.peer.connection.own_address)
        return peer

    def serve_now(self, client: Client, *commands: Command) -> "list[asyncio.Future[Command]]":
        """Serve these requests as one turn now; deferred requests have not started when this returns."""
        frames, answers = self.frames_of(client, *commands)
        self.peer_of(client).connection._turn(frames)
        self.turns.handle_deferred()
        return answers

    def frames_of(self, client: Client, *commands: Command) -> "tuple[list[Frame], list[asyncio.Future[Command]]]":
        """These requests as the broker would read them, and the answers that the client waits for."""
        frames: list[Frame] = []

        def taken(command: Command) -> Callable[[int], bytes]:
            def encode(number: int) -> bytes:
                frames.extend(split_frames(encode_command(replace(command, opaque=number))))
                return b""

            return encode

        answers = [client.peer.ask_encoded(command.code, taken(command), CALL_S) for command in commands]
        return frames, answers

    def stall_syncs(self) -> Stall:
        """From now on the log is not synced, until this is released."""
        return self.disk.stall("sync", "*commitlog*", times=None)

    def stall_writes(self) -> Stall:
        """From now on the log accepts no write, until this is released."""
        return self.disk.stall("write", "*commitlog*", times=None)

    def make_topic(self, name: str = "T", queues: int = 4, perm: int = 6, *, order: bool = False) -> None:
        self.parts.state.topics.put([TopicConfig(name, queues, queues, perm, order=order)], 0)

    def change(self, **settings: Any) -> None:
        """Change settings while the broker runs."""
        self.parts.state.settings.now = replace(self.parts.state.settings.now, **settings)

    def stored(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        """Every message of a queue, as readers get them."""
        return messages_in(self.store, topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.stored(topic, queue_id)]


@asynccontextmanager
async def running(
    *, store: dict[str, Any] | None = None, disk: FaultyFiles | None = None, host: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[RunningBroker]:
    """A broker that serves; `store` are settings of its store."""
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    clock = TickingClock(loop)
    disk = disk or FaultyFiles(clock=clock)
    network = MemoryNetwork(weather=BRISK)
    chosen = BrokerSettings(host=host, store=replace(SMALL_STORE, **(store or {})), **settings)
    broker = Broker(chosen, clock=clock, network=network, files=disk)
    loop.count_stalled(disk.stalled)
    async with broker:
        hold_while_the_store_works(broker)
        await settled()  # the first files of the log are made
        try:
            yield RunningBroker(broker, disk, network, clock)
        finally:
            disk.heal()


class Busy(Protocol):
    @property
    def busy(self) -> bool: ...


def workers_of(broker: Broker) -> list[Busy]:
    """The owners of its store's threads."""
    parts = broker.parts.state.store._parts
    workers = (parts.flusher, parts.preparer, parts.pool, parts.writer, parts.queue_writer)
    return [worker for worker in workers if worker is not None]


def hold_while_the_store_works(broker: Broker) -> None:
    """Virtual time stops while a thread of its store works. Otherwise a write seems to take as long as the next jump of the clock."""
    loop = cast("VirtualLoop", asyncio.get_running_loop())
    for worker in workers_of(broker):
        loop.hold_while(lambda worker=worker: broker._ticking is not None and worker.busy)  # type: ignore[misc]


def damage(disk: FaultyFiles, log_file_bytes: int = SMALL_STORE.log_file_bytes) -> list[Finding]:
    """What `store verify` finds wrong with the store of a stopped broker."""
    known = KnownSizes(
        log_file_bytes=log_file_bytes,
        queue_file_entries=SMALL_STORE.queue_file_entries,
        index_slots=SMALL_STORE.index_slots,
        index_entries=SMALL_STORE.index_entries,
    )
    events = Verification(disk, find_layout(disk, SMALL_STORE.folder, known)).run()
    return [event for event in events if isinstance(event, Finding) and event.severity is not Severity.NOTE]


def offsets_of(answer: Command) -> tuple[int, int, int]:
    """The next offset of a pull, and the first and last offset of its queue."""
    assert answer.ext is not None
    return int(answer.ext["nextBeginOffset"]), int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on the virtual loop."""

    @wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return run_test


async def settled() -> None:
    """Wait until everything in transit has arrived."""
    await asyncio.sleep(0.01)
