"""What a slave copies besides the log: it asks its master every few seconds, as RocketMQ's slaves do.

    topics, groups            replace those of the slave, if their version differs; the queues of deleted topics are removed
    offsets of groups         are added to those of the slave, which never deletes any by itself
    delays, timed messages    how far the master has delivered
    request modes             are added to those of the slave

Each table is requested by itself: one that fails does not stop the others, and is requested again in the next round.

`MetadataHandlers` answers the requests that only slaves of RocketMQ send: the progress of timed messages.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pocketmq.broker.delivery.delays import Delays
from pocketmq.broker.delivery.timer_progress import TimerCheck
from pocketmq.broker.delivery.timers import Timers
from pocketmq.broker.pop.assignment import RequestModeTable
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError
from pocketmq.model import parse_topic
from pocketmq.net import (
    ConnectionSettings,
    Handler,
    Network,
    Peer,
    PeerSettings,
    PlainRequest,
    Pool,
    PoolSettings,
    Reply,
)
from pocketmq.protocol.bodies.clients import GroupTable, RequestModes
from pocketmq.protocol.bodies.topics import ConsumerOffsets, DelayOffsets, MappedTopicTable, TimerMetrics
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import signed_fields

log = logging.getLogger("pocketmq.broker")

CALL_S: Final = 10.0


class Metadata:
    """Copies the tables of the master."""

    def __init__(
        self, state: BrokerState, delays: Delays, timers: Timers, modes: RequestModeTable, network: Network | None
    ) -> None:
        self._state = state
        self._delays, self._timers, self._modes = delays, timers, modes
        tls = state.settings.now.name_server_tls
        peer = PeerSettings(connection=ConnectionSettings(pause_reading=False), silence_s=CALL_S / 2)
        self._pool = Pool(network=network, tls=tls.load(), settings=PoolSettings(peer=peer))
        self._failures: dict[str, str] = {}

    async def copy(self) -> None:
        """Ask for all tables once."""
        address = self._state.master.address
        if address is None:
            return
        steps: dict[str, Callable[[Peer], Awaitable[None]]] = {
            "topics": self._copy_topics,
            "groups": self._copy_groups,
            "offsets": self._copy_offsets,
            "progress of delays": self._copy_delays,
            "request modes": self._copy_modes,
            "progress of timed messages": self._copy_timers,
        }
        try:
            peer = await self._pool.peer(address)
        except PocketMQError as error:
            self._log("tables", str(error))
            return
        self._log("tables", "")
        for what, step in steps.items():
            try:
                await step(peer)
            except PocketMQError as error:
                self._log(what, str(error))
            else:
                self._log(what, "")

    async def stop(self) -> None:
        await self._pool.close()

    async def _ask(self, peer: Peer, code: RequestCode) -> bytes:
        credentials = self._state.settings.now.credentials
        ext = signed_fields({}, b"", credentials) if credentials else None
        answer = await peer.call(Command(code, ext), CALL_S)
        if refusal := answer.error():
            raise refusal
        return bytes(answer.body)

    async def _copy_topics(self, peer: Peer) -> None:
        state, now_ms = self._state, self._state.clock.now_ms()
        table = MappedTopicTable.decode(await self._ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG))
        if table.data_version == state.topics.version:
            return
        for name in [row.topic_name for row in state.topics]:
            if name not in table.topic_config_table and not state.topics.is_system(name):
                state.topics.delete(name, now_ms)
                state.store.delete_topic(parse_topic(name))
                state.offsets.delete_topic(name)
                state.forget_topic(name)
                log.info("Deleted topic %s, as the master did", name)
        state.topics.restore(table)
        state.snapshots.save_soon()

    async def _copy_groups(self, peer: Peer) -> None:
        state, now_ms = self._state, self._state.clock.now_ms()
        table = GroupTable.decode(await self._ask(peer, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        if table.data_version == state.groups.version:
            return
        for name in [row.group_name for row in state.groups]:
            if name not in table.subscription_group_table:
                state.groups.delete(name, now_ms)
        state.groups.restore(table)
        state.snapshots.save_soon()

    async def _copy_offsets(self, peer: Peer) -> None:
        table = ConsumerOffsets.decode(await self._ask(peer, RequestCode.GET_ALL_CONSUMER_OFFSET))
        self._state.offsets.follow(table)

    async def _copy_delays(self, peer: Peer) -> None:
        self._delays.follow(DelayOffsets.decode(await self._ask(peer, RequestCode.GET_ALL_DELAY_OFFSET)))

    async def _copy_modes(self, peer: Peer) -> None:
        modes = RequestModes.decode(await self._ask(peer, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        for of_topic in modes.message_request_mode_map.values():
            for mode in of_topic.values():
                if self._modes.get(mode.topic, mode.consumer_group) != mode:
                    self._modes.put(mode)

    async def _copy_timers(self, peer: Peer) -> None:
        self._timers.follow(TimerCheck.parse(await self._ask(peer, RequestCode.GET_TIMER_CHECK_POINT)))

    def _log(self, what: str, failure: str) -> None:
        """Every round may fail in the same way, so it is logged only if it changes."""
        if failure and self._failures.get(what) != failure:
            log.warning("Cannot copy the %s of the master; retrying: %s", what, failure)
        elif not failure and self._failures.get(what):
            log.info("Copied the %s of the master again", what)
        self._failures[what] = failure


class MetadataHandlers:
    """A master's answers about timed messages."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.check_point,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def check_point(self, request: PlainRequest) -> Reply:
        return Reply(body=self._timers.check().encode())

    def metrics(self, request: PlainRequest) -> Reply:
        """RocketMQ counts waiting messages by topic. Here they are counted together, in the metrics."""
        return Reply(body=TimerMetrics().encode())
