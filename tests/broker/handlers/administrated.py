"""Shared by the tests of topics and groups: their handlers over a store, and the captured requests with Apache's
answers.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, cast

from tests.broker.states import state_over
from tests.golden import captured
from tests.store.open_store import OpenStore

from pocketmq.broker.access import ACCESS
from pocketmq.broker.groups.consumer_group import ClientInfo
from pocketmq.broker.handlers.groups import GroupHandlers
from pocketmq.broker.handlers.topics import TopicHandlers
from pocketmq.broker.settings import BrokerSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.model.subscription import Subscription
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.net.server import Dispatcher
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.java_json import read_json
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.testing import FakeClock, FaultyFiles, VirtualLoop

ADDRESS = Address("127.0.0.1", 19010)
"""Where the captured broker was."""


class Administrated:
    """A broker of which only topics and groups can be administrated."""

    def __init__(self, disk: FaultyFiles | None = None, *, auto_create_group: bool = True) -> None:
        self.clock = FakeClock()
        self.opened = OpenStore.small(disk, self.clock)
        self.store = self.opened.store
        self.state = state = state_over(self.opened, BrokerSettings(auto_create_group=auto_create_group))
        self.topics, self.groups, self.offsets = state.topics, state.groups, state.offsets
        self.members, self.subscriptions = state.members, state.subscriptions
        self.arrivals, self.snapshots = state.arrivals, state.snapshots
        self.announced = 0
        self.snapshots.load()
        handlers = TopicHandlers(state, self._announce), GroupHandlers(state, lambda: ADDRESS)
        self._dispatcher = Dispatcher([family.table() for family in handlers], ACCESS)
        self._peer = Peer()

    def _announce(self) -> None:
        self.announced += 1

    @property
    def disk(self) -> FaultyFiles:
        return self.opened.disk

    async def serve(self, command: Command) -> Command:
        """The answer that the peer would get, including errors."""
        try:
            outcome = self._dispatcher.serve(self._peer, command)
            return outcome if isinstance(outcome, Command) else await outcome
        except PocketMQError as error:
            return failure_reply(command, error)

    async def ask(self, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> Command:
        return await self.serve(Command(code, None if header is None else header.encode(), body))

    async def done(self, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> Command:
        """The answer of success."""
        answer = await self.ask(code, header, body)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return answer

    async def replay(self, code: RequestCode, version: str) -> list[tuple[Command, Command, Command]]:
        """Each captured request with Apache's answer and ours; without those that Apache did not support yet."""
        triples = [(asked, theirs, await self.serve(asked)) for asked, theirs in conversations(code, version)]
        unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        known = [(asked, theirs, ours) for asked, theirs, ours in triples if theirs.code != unknown]
        assert known or version == "4.9.7", f"no captured request with code {code}"
        return known

    def join(self, group: str, *topics: str) -> None:
        """Add a member of a group that subscribes to these topics."""
        wanted = tuple(Subscription(topic, sub_version=1) for topic in topics)
        heartbeat = HeartbeatData("me", (), (ConsumerData(group, subscription_data_set=wanted),))
        client = ClientInfo(group, "me", "127.0.0.1:5000", "JAVA", 479)
        self.members.heartbeat(client, heartbeat, 0.0, 0)

    def after_crash(self) -> "Administrated":
        """Another broker on the disk after a power loss that kept only the safe bytes."""
        return Administrated(self.disk.crash(Random(0), survives="nothing"))


def let_time_pass_while_stalled(disk: FaultyFiles) -> None:
    cast("VirtualLoop", asyncio.get_running_loop()).count_stalled(disk.stalled)


def conversations(code: RequestCode, version: str) -> Iterator[tuple[Command, Command]]:
    """The captured requests with `code` to Apache's broker of this version, by mqadmin and by hand, with its
    answers.
    """
    asked: dict[tuple[str, str, int], Command] = {}
    for pattern in (f"mqadmin/{version}/wire/*.jsonl", f"wire/{version}/json/raw.jsonl"):
        for heard in captured(pattern):
            command = heard.command
            key = heard.name.partition(":")[0], heard.conn, command.opaque
            if not command.is_response and command.code == code:
                asked[key] = command
            elif heard.answers == code and key in asked:
                yield asked.pop(key), command


def json_of(command: Command) -> Any:
    return read_json(command.body)
