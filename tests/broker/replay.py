"""A recorded conversation, replayed with our servers: a name server and a broker in memory, in virtual time.

    recording ── request at its time ──► our broker, our name server
        │           its log offsets put into our numbers
        ├── answer ───────────────────── ours, compared (`meaning`)
        └── what the broker asked ────── ours, in the same order on each connection

A request is sent at its recorded time, but not before all frames arrived that had arrived in the recording. So a slow answer of ours
delays the rest, as it would a real client, and what took minutes then takes milliseconds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from tests.access.kit import put_file
from tests.broker.meaning import HALF, RECORDS, SENDS, Agreement, meaning
from tests.broker.running import hold_while_the_store_works
from tests.golden import Captured

from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import BrokerSettings, TransactionSettings
from pocketmq.codes import RequestCode, TransactionState
from pocketmq.errors import PocketMQError
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import Address
from pocketmq.net.connection import Connection, ConnectionSettings
from pocketmq.protocol.bodies.clients import RequestMode
from pocketmq.protocol.bodies.registration import read_registration
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.record import decode_records
from pocketmq.protocol.signing import Credentials
from pocketmq.store.settings import MIB, StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork, Weather

NAME_SERVER = Address("127.0.0.1", 19000)
BROKER = Address("127.0.0.1", 19010)
PATIENCE_S = 6.0
"""How much later than the real broker ours may speak: as long as its longest rounds take."""
SETTINGS = BrokerSettings(
    port=BROKER.port,
    name_servers=(NAME_SERVER,),
    trace_topic=True,
    tick_ms=50,
    transaction=TransactionSettings(timeout_ms=2_000, check_interval_ms=4_000),
    store=StoreSettings(folder=Path("/data"), log_file_bytes=4 * MIB, prepared_files=1),
)
"""As the real brokers were set up for the recordings."""
FIRST_QUEUE_FIRST = 3
"""With this seed, the first pop begins at queue 0, as in the recording."""
OWN = Credentials("pocketAccess", "pocketSecret12")
"""By which the real brokers registered, where requests were signed."""
END_TRANSACTION, CHECK_TRANSACTION_STATE = RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE
CALM = Weather(delay_s=(0.0001, 0.0002), segment_bytes=(64 * 1024, 64 * 1024))


class Finding(NamedTuple):
    """One difference: its frame, its path, and both values."""

    frame: str
    path: str
    theirs: Any
    ours: Any
    request: Command | None
    """What is answered; None in what the broker asks by itself."""
    their_command: Command | None
    our_command: Command | None
    """What it was said in; None when nothing was said."""

    @property
    def release(self) -> str:
        return self.frame.split("/")[1]

    @property
    def name(self) -> str:
        """Of the field."""
        return self.path.rpartition(".")[2]

    @property
    def asked(self) -> int | None:
        return self.request.code if self.request else None

    @property
    def codes(self) -> tuple[int | None, int | None]:
        """Theirs and ours."""
        theirs, ours = self.their_command, self.our_command
        return theirs.code if theirs else None, ours.code if ours else None

    def __str__(self) -> str:
        return f"{self.frame} to {self.asked}: {self.path}: theirs {self.theirs!r}, ours {self.ours!r}"


class Caller:
    """One connection of a client: its requests go out as they are, answers wait by their number, questions in order."""

    def __init__(self) -> None:
        self.connection = Connection(self._turn, self._lost, settings=ConnectionSettings(idle_s=86_400))
        self._answers: dict[int, Command] = {}
        self._pushed: list[Command] = []
        self._heard = asyncio.Event()

    def _turn(self, line: Connection, frames: list[Frame]) -> None:
        for command in map(decode_command, frames):
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self._pushed.append(command)
        self._heard.set()

    def _lost(self, line: Connection, reason: PocketMQError) -> None:
        self._heard.set()

    def send(self, command: Command) -> None:
        self.connection.write(encode_command(command))

    async def answer(self, opaque: int, until: float) -> Command | None:
        """The answer with this number; None if it does not arrive."""
        while opaque not in self._answers:
            if not await self._hears(until):
                return None
        return self._answers.pop(opaque)

    async def pushed(self, until: float) -> Command | None:
        """The next request of the broker; None if none arrives."""
        while not self._pushed:
            if not await self._hears(until):
                return None
        return self._pushed.pop(0)

    def rest(self) -> list[Command]:
        """Frames that arrived and were not expected."""
        return [*self._answers.values(), *self._pushed]

    async def _hears(self, until: float) -> bool:
        self._heard.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._heard.wait()
        except TimeoutError:
            return False
        return self.connection.is_open


class Replay:
    """One conversation with servers that were started for it."""

    def __init__(self, frames: Iterable[Captured], network: MemoryNetwork) -> None:
        self._frames = list(_without_late_questions(frame for frame in frames if frame.link != "registration"))
        self._network = network
        self._callers: dict[str, Caller] = {}
        self._requests: dict[tuple[str, int], Command] = {}
        self._handles: dict[str, str] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._late_s = 0.0
        self._agreement = Agreement()
        self.findings: list[Finding] = []
        self.compared = 0

    async def run(self) -> None:
        last = {frame.conn: frame for frame in self._frames}
        for frame in self._frames:
            if frame.forward:
                await self._say(frame, frame.command)
            elif frame.command.is_response:
                await self._compare_answer(frame, frame.command)
            else:
                await self._compare_question(frame, frame.command)
            if frame is last[frame.conn]:
                self._abort(frame)

    # to our servers

    async def _say(self, frame: Captured, command: Command) -> None:
        caller = await self._caller(frame)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(frame.at + self._late_s - loop.time())
        self._late_s = max(self._late_s, loop.time() - frame.at)
        if command.is_response:  # to a question of the broker's own, or to none at all
            command.opaque = self._numbers.get((frame.conn, command.opaque), command.opaque)
        else:
            self._requests[frame.conn, command.opaque] = command
        caller.send(self._in_our_numbers(command))

    def _in_our_numbers(self, command: Command) -> Command:
        """Replace the positions of messages in the recording by those of this run."""
        ext = dict(command.ext or {})
        agreement = self._agreement
        if command.code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.VIEW_MESSAGE_BY_ID) and "offset" in ext:
            ext["offset"] = str(agreement.log.ours(int(ext["offset"])))
        if command.code == END_TRANSACTION:
            ext["commitLogOffset"] = str(agreement.log.ours(int(ext["commitLogOffset"])))
            ext["tranStateTableOffset"] = str(agreement.own[HALF].ours(int(ext["tranStateTableOffset"])))
        if command.code == RequestCode.RECALL_MESSAGE:
            ext["recallHandle"] = self._handles.get(ext["recallHandle"], ext["recallHandle"])
        return replace(command, ext=None if command.ext is None else ext)

    async def _caller(self, frame: Captured) -> Caller:
        if frame.conn not in self._callers:
            caller = self._callers[frame.conn] = Caller()
            address = NAME_SERVER if frame.link == "namesrv" else BROKER
            await self._network.connect(lambda: caller.connection, address)
        return self._callers[frame.conn]

    # from our servers

    async def _compare_answer(self, frame: Captured, theirs: Command) -> None:
        request = self._requests.get((frame.conn, theirs.opaque))
        if request is None:
            return  # asked before the recording began
        ours = await self._callers[frame.conn].answer(theirs.opaque, self._until(frame))
        self._compare(frame, theirs, ours, request)
        if ours and (handle := (theirs.ext or {}).get("recallHandle")):
            self._handles[handle] = (ours.ext or {}).get("recallHandle", handle)

    async def _compare_question(self, frame: Captured, theirs: Command) -> None:
        ours = await (await self._caller(frame)).pushed(self._until(frame))
        self._compare(frame, theirs, ours, None)
        if ours:
            self._numbers[frame.conn, theirs.opaque] = ours.opaque

    def _until(self, frame: Captured) -> float:
        return frame.at + self._late_s + PATIENCE_S

    def _compare(self, frame: Captured, theirs: Command, ours: Command | None, request: Command | None) -> None:
        self.compared += 1
        if ours is None:
            self.findings.append(Finding(frame.name, "", theirs, None, request, theirs, None))
            return
        found = self._agreement.differences(meaning(theirs, request), meaning(ours, request))
        self.findings += [Finding(frame.name, *difference, request, theirs, ours) for difference in found]

    def _abort(self, frame: Captured) -> None:
        """The recording of a connection has ended: no other frame may have arrived."""
        caller = self._callers[frame.conn]
        caller.connection.close()
        for command in caller.rest():
            request = self._requests.get((frame.conn, command.opaque)) if command.is_response else None
            self.findings.append(Finding(frame.name, "", None, command, request, None, command))


def _without_late_questions(frames: Iterable[Captured]) -> Iterator[Captured]:
    """Without requests about decided transactions: Apache's brokers record decisions late, and check once more."""
    decided: set[str] = set()
    for frame in frames:
        command, ext = frame.command, frame.command.ext or {}
        if not command.is_response and command.code in (CHECK_TRANSACTION_STATE, END_TRANSACTION):
            if ext["msgId"] in decided:
                continue
            if command.code == END_TRANSACTION and int(ext["commitOrRollback"]) != TransactionState.UNKNOWN:
                decided.add(ext["msgId"])
        yield frame


def wall_ms(frames: Sequence[Captured]) -> int:
    """The time when the recording began: no frame arrived before its request was written."""
    return max(moment - round(frame.at * 1000) for frame in frames for moment in _written(frame, frame.command))


def _written(frame: Captured, command: Command) -> Iterator[int]:
    """The time at which the content of a frame was written, or somewhat before."""
    if not command.is_response and command.code in SENDS and command.ext:
        yield int(command.ext.get("g") or command.ext.get("bornTimestamp") or 0)
    if not command.is_response and command.code == RequestCode.REGISTER_BROKER:
        yield read_registration(command.body).topics.data_version.timestamp
    if command.is_response and frame.answers in RECORDS:
        yield from (message.store_ms for message in decode_records(command.body))


@asynccontextmanager
async def replay(
    frames: Sequence[Captured],
    topics: Sequence[TopicConfig] = (),
    *,
    modes: Sequence[RequestMode] = (),
    accounts: str | None = None,
    name_server_too: bool = False,
) -> AsyncIterator[Replay]:
    """Servers in the state at the start of the recording, with these topics and modes of groups, and the conversation that is
    not replayed yet.

    `accounts` is what the broker's file of accounts says.
    """
    clock = FakeClock(asyncio.get_running_loop(), start_ms=wall_ms(frames))
    network = MemoryNetwork(weather=CALM)
    files = FaultyFiles(clock=clock)
    file = None if accounts is None else put_file(files, accounts)
    guarded = NameServerSettings(port=NAME_SERVER.port, accounts=file if name_server_too else None)
    name_server = NameServer(guarded, network=network, clock=clock, files=files)
    settings = replace(SETTINGS, accounts=file, credentials=OWN if name_server_too else None)
    async with name_server, Broker(settings, network=network, clock=clock, files=files) as broker:
        hold_while_the_store_works(broker)
        broker.parts.state.topics.put(topics, clock.now_ms())
        broker.parts.chance.seed(FIRST_QUEUE_FIRST)
        for mode in modes:
            broker.parts.request_modes.put(mode)
        broker.parts.announce()
        await asyncio.sleep(0.1)
        yield Replay(frames, network)
