"""Notices: applies the results of a change among the members.

    notices ───► code 40 to every member of the group: rebalance
    conflicts ─► a log message for each report, and a count
    silent ────► the connection is closed

A notice is best effort: members rebalance every 20 s anyway. A connection that cannot accept one now is skipped and
counted, and no failure here affects the request that led to it.

If many members join at once, as after a restart, notifying all of them of each would grow with the square of their
number. So a large group is notified of the first change at once, and of later ones together after a pause.
"""

import asyncio
import logging
from typing import Final

import msgspec

from pocketmq.broker.groups.consumer_group import Conflict, peer_of
from pocketmq.broker.groups.members import Changes, Notice
from pocketmq.broker.settings import SettingsInUse
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectionLost, PocketMQError
from pocketmq.net import Peer
from pocketmq.protocol.api.messages import ForConsumerGroup
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.broker")

SMALL_GROUP: Final = 64
"""Groups of this size or smaller are notified of each change at once."""
NOTICE_INTERVAL_S: Final = 0.5
"""The least time between two notices to a larger group."""


class NoticeCounters(msgspec.Struct):
    """Counts since the start of the broker."""

    notified: int = 0
    skipped: int = 0
    """Notices that were not sent because the connection was full or closing."""
    conflicts: int = 0
    """Reports of different subscriptions in one group."""
    silent: int = 0
    """Connections closed because no heartbeat came."""


class Notices:
    """Applies `Changes` of `Members`."""

    def __init__(self, settings: SettingsInUse) -> None:
        self._settings = settings
        self._delayed: dict[str, Notice | None] = {}
        """Large groups that were notified recently, with the next notice, if any."""
        self.counters = NoticeCounters()

    def apply(self, changes: Changes) -> None:
        for conflict in changes.conflicts:
            self._report(conflict)
        for notice in changes.notices:
            self._notify_limited(notice)
        for connection in changes.silent:
            self._close(peer_of(connection))

    def _report(self, conflict: Conflict) -> None:
        if conflict.wanted:
            self.counters.conflicts += 1
            log.warning("%s", conflict)
        else:
            log.info("%s", conflict)

    def _notify_limited(self, notice: Notice) -> None:
        group = notice.group
        if group in self._delayed:
            self._delayed[group] = notice
            return
        self._notify(notice)
        if len(notice.connections) > SMALL_GROUP:
            self._delayed[group] = None
            asyncio.get_running_loop().call_later(NOTICE_INTERVAL_S, self._notify_delayed, group)

    def _notify_delayed(self, group: str) -> None:
        notice = self._delayed.pop(group)
        if notice is not None:
            self._notify_limited(notice)

    def _notify(self, notice: Notice) -> None:
        if not self._settings.now.notify_changes:
            return
        command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ForConsumerGroup(notice.group).encode())
        for connection in notice.connections:
            try:
                peer_of(connection).oneway(command)
            except PocketMQError as error:
                self.counters.skipped += 1
                log.debug("Cannot notify a member of group %s of a rebalance: %s", notice.group, error)
            else:
                self.counters.notified += 1

    def _close(self, peer: Peer) -> None:
        silence_s = self._settings.now.client_expiry_ms / 1000
        self.counters.silent += 1
        log.info("Closing the connection of %s: no heartbeat for %g s", peer.address, silence_s)
        peer.close(ConnectionLost(f"no heartbeat for {silence_s:g} s"))
