"""Shared by the tests of statistics and maintenance: the tables of a broker over a small store, and an
administrator.
"""

from collections.abc import Iterator

from tests.broker.states import state_over
from tests.golden import Captured, captured
from tests.store.open_store import OpenStore

from pocketmq.broker.access import ACCESS
from pocketmq.broker.groups.consumer_group import ClientInfo
from pocketmq.broker.handlers.administration import GroupProgress, MaintenanceHandlers, StatisticsHandlers
from pocketmq.broker.handlers.message_queries import MessageQueryHandlers
from pocketmq.broker.handlers.offsets import OffsetHandlers
from pocketmq.broker.stats.runtime_info import RuntimeInfo
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.model.subscription import Subscription
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.net.server import Dispatcher
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.pending_calls import failure_reply

BROKER = "broker-a"
ADDRESS = "127.0.0.1:10911"


class Administrator(Peer):
    @property
    def address(self) -> Address:
        return Address("10.0.0.7", 40001)


class Desk:
    """Send a request of an administrator to a broker."""

    def __init__(self, opened: OpenStore | None = None) -> None:
        self.opened = opened or OpenStore.small()
        self.store, self.clock = self.opened.store, self.opened.clock
        self.state = state = state_over(self.opened)
        self.topics, self.groups, self.offsets = state.topics, state.groups, state.offsets
        self.members, self.stats = state.members, state.stats
        self.progress = GroupProgress(state)
        info = RuntimeInfo(self.store.facts, self.stats, self.clock)
        tables = (
            StatisticsHandlers(state, info, lambda: ADDRESS).table(),
            OffsetHandlers(state, lambda: b'{"offsetTable":{3:0}}').table(),
            MessageQueryHandlers(state).table(),
            MaintenanceHandlers(state).table(),
        )
        self._dispatcher = Dispatcher(tables, ACCESS)

    # asking

    async def ask(self, code: int, header: Fields | None = None) -> Command:
        """The answer, with any code."""
        return await self.answer(Command(code, None if header is None else header.encode()))

    async def done(self, code: int, header: Fields | None = None) -> Command:
        """The answer of success."""
        answer = await self.ask(code, header)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return answer

    async def answer(self, command: Command) -> Command:
        try:
            outcome = self._dispatcher.serve(Administrator(), command)
            return outcome if isinstance(outcome, Command) else await outcome
        except PocketMQError as error:
            return failure_reply(command, error)

    # what there is

    def make_topic(self, name: str, queues: int = 1, *, order: bool = False) -> None:
        self.topics.put([TopicConfig(name, queues, queues, order=order)], self.clock.now_ms())

    def make_group(self, *names: str) -> None:
        for name in names:
            self.groups.ensure(name, self.clock.now_ms())

    def join(self, group: str, *subscriptions: Subscription) -> None:
        """Add a member of the group with this subscription."""
        client = ClientInfo("connection", "client", "10.0.0.1:5000", "JAVA", 479)
        consumer = ConsumerData(group, subscription_data_set=subscriptions)
        self.members.heartbeat(client, HeartbeatData("client", (), (consumer,)), 0.0, 0)

    def sample(self) -> None:
        self.clock.advance_ms(10_000)
        self.stats.sample(self.clock.monotonic(), self.clock.now_ms(), self.store.facts.messages_accepted)


def real_answers(code: RequestCode, pattern: str = "**/5.3.3/**/*.jsonl") -> Iterator[tuple[Captured, Captured]]:
    """The captured requests with this code, and the answers of Apache's broker."""
    asked: dict[tuple[str, str, int], Captured] = {}
    for frame in captured(pattern):
        conversation, command = frame.name.partition(":")[0], frame.command
        key = conversation, frame.conn, command.opaque
        if not command.is_response and command.code == code:
            asked[key] = frame
        elif frame.answers == code and key in asked:
            yield asked.pop(key), frame
