"""Notices: what follows from a change among the members is carried out.

    notices ───► code 40 to every member of the group: share the queues out again
    conflicts ─► a line in the log for each report, and a count
    silent ────► the line is closed

A notice is a courtesy: members share out again every 20 s anyway. So a line that cannot take one now is skipped and counted,
and nothing here ever fails the request or the loss that led to it.

Each of many members that come at once, as after a restart, would have all others told: that grows with the square of them. So a
large group is told of the first change at once, and of those that follow together, after a rest.

Asking clients: over the connection that the client itself has opened, in the other direction.

The tables of a broker take any token for a connection; here it is the peer at its other end.
"""

import asyncio
import logging
from collections.abc import Hashable
from typing import Final

import msgspec

from pocketmq.broker.groups.consumer_group import ClientInfo, Conflict
from pocketmq.broker.groups.members import Changes, Notice
from pocketmq.broker.settings import SettingsInUse
from pocketmq.codes import RequestCode, Version
from pocketmq.errors import ConnectionLost, ImpossibleRequest, PocketMQError
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.clients import NotifyConsumerIdsChanged
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, write_fields


def peer_of(connection: Hashable) -> Peer:
    """The peer that stands behind a connection of the tables."""
    assert isinstance(connection, Peer), "whoever sends a heartbeat to a broker is a peer"
    return connection


async def ask(connection: Hashable, code: RequestCode, header: Fields, body: bytes, timeout_ms: int) -> Command:
    """The client's answer, whatever its code. CallTimedOut or another NetworkError when there is none."""
    return await peer_of(connection).call(Command(code, write_fields(header), body), timeout_ms / 1000)


def require_version(client: ClientInfo, oldest: Version) -> None:
    """Refuse to ask a client what it would not understand."""
    if client.version < oldest:
        raise ImpossibleRequest(
            f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, "
            f"please upgrade it to {oldest.name}"
        )


log = logging.getLogger("pocketmq.broker")

FEW_MEMBERS: Final = 64
"""A group of so many is told of each change by itself."""
REST_S: Final = 0.5
"""How long a larger one is not told again."""


class NoticeCounters(msgspec.Struct):
    """What was carried out since the broker started."""

    told: int = 0
    skipped: int = 0
    """Not told: the line was full or ending."""
    conflicts: int = 0
    """Reports of members that want different things."""
    silent: int = 0
    """Connections that were closed because their client said nothing any more."""


class Notices:
    """Does what `Members` says has to be done."""

    def __init__(self, settings: SettingsInUse) -> None:
        self._settings = settings
        self._resting: dict[str, Notice | None] = {}
        """Large groups that were told just now; what to tell them next, if there is something."""
        self.counters = NoticeCounters()

    def carry_out(self, changes: Changes) -> None:
        """All of it, at once."""
        for conflict in changes.conflicts:
            self._report(conflict)
        for notice in changes.notices:
            self._tell_in_time(notice)
        for connection in changes.silent:
            self._close(peer_of(connection))

    def _report(self, conflict: Conflict) -> None:
        if conflict.wanted:
            self.counters.conflicts += 1
            log.warning("%s", conflict)
        else:
            log.info("%s", conflict)

    def _tell_in_time(self, notice: Notice) -> None:
        group = notice.group
        if group in self._resting:
            self._resting[group] = notice
            return
        self._tell(notice)
        if len(notice.connections) > FEW_MEMBERS:
            self._resting[group] = None
            asyncio.get_running_loop().call_later(REST_S, self._rested, group)

    def _rested(self, group: str) -> None:
        notice = self._resting.pop(group)
        if notice is not None:
            self._tell_in_time(notice)

    def _tell(self, notice: Notice) -> None:
        if not self._settings.now.notify_changes:
            return
        command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, write_fields(NotifyConsumerIdsChanged(notice.group)))
        for connection in notice.connections:
            try:
                peer_of(connection).oneway(command)
            except PocketMQError as error:
                self.counters.skipped += 1
                log.debug("a member of group %s is not told that the group changed: %s", notice.group, error)
            else:
                self.counters.told += 1

    def _close(self, peer: Peer) -> None:
        silence_s = self._settings.now.client_expiry_ms / 1000
        self.counters.silent += 1
        log.info("closing the connection of %s: no heartbeat for %g s", peer.address, silence_s)
        peer.close(ConnectionLost(f"no heartbeat for {silence_s:g} s"))
