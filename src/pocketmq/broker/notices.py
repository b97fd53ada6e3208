"""Notices: what follows from a change among the members is carried out.

    notices ───► code 40 to every member of the group: share the queues out again
    conflicts ─► a line in the log for each report, and a count
    silent ────► the line is closed

A notice is a courtesy: members share out again every 20 s anyway. So a line that cannot take one now is skipped and counted,
and nothing here ever fails the request or the loss that led to it.
"""

import logging

import msgspec

from pocketmq.broker.asking import peer_of
from pocketmq.broker.consumer_group import Conflict
from pocketmq.broker.members import Changes, Notice
from pocketmq.broker.settings import SettingsInUse
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectionLost, PocketMQError
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.clients import NotifyConsumerIdsChanged
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import write_fields

log = logging.getLogger("pocketmq.broker")


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
        self.counters = NoticeCounters()

    def carry_out(self, changes: Changes) -> None:
        """All of it, at once."""
        for conflict in changes.conflicts:
            self._report(conflict)
        if self._settings.now.notify_changes:
            for notice in changes.notices:
                self._tell(notice)
        for connection in changes.silent:
            self._close(peer_of(connection))

    def _report(self, conflict: Conflict) -> None:
        if conflict.wanted:
            self.counters.conflicts += 1
            log.warning("%s", conflict)
        else:
            log.info("%s", conflict)

    def _tell(self, notice: Notice) -> None:
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
