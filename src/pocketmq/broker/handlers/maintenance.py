"""Maintenance: an administrator lets go what has expired, and asks after the replicas.

The store drops what has expired by itself; these requests only make it do so now.
"""

import logging

from pocketmq.codes import RequestCode
from pocketmq.net.request import Handler, Reply, Request
from pocketmq.protocol.bodies.replication import ReplicationStatus
from pocketmq.protocol.fields import NoFields
from pocketmq.protocol.java_json import write_body
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")


class MaintenanceHandlers:
    """Requests about the files of the store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.drop_log_files,
            RequestCode.GET_BROKER_HA_STATUS: self.replication,
        }

    def clean_queues(self, request: Request[NoFields]) -> Reply:
        """Queues let go of what is not in the log any more; a few at every tick, after the answer.

        Apache also forgets where a queue goes on whose messages have all expired, and begins at 0 again: offsets of groups
        would then point behind its end. Here it goes on.
        """
        self._store.drop_expired_entries()
        log.info("%s lets the queues follow the log", request.peer.address)
        return Reply()

    def drop_log_files(self, request: Request[NoFields]) -> Reply:
        """Log files older than the retention time go now, not only at their hour."""
        dropped = self._store.drop_expired()
        log.info("%s drops expired log files: %d", request.peer.address, dropped)
        return Reply()

    def replication(self, request: Request[NoFields]) -> Reply:
        """A broker has no replicas here, and is nobody's."""
        return Reply(body=write_body(ReplicationStatus(True, self._store.facts.log_end)))
