"""A query's progress as that of a consumer group, so that whoever watches lag sees the query.

The checkpoint is the truth, and this only its mirror: a failure is told in the log and never stops the query. Spark commits a batch
while it plans the one after the next, and the last one never; but when it asks what is new since an offset, all before it is done.
"""

import logging

from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.metadata import ClientMetadata
from pocketmq.spark.offsets import Places

log = logging.getLogger("pocketmq.spark")


class ProgressGroup:
    """Publishes for one query; without a group it does nothing."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._published: dict[MessageQueue, int] = {}
        self._done: dict[MessageQueue, int] = {}

    def publish(self, metadata: ClientMetadata, places: Places) -> None:
        """Tell brokers where the query is, of queues where that is new."""
        self._done |= places
        self.publish_rest(metadata)

    def publish_rest(self, metadata: ClientMetadata) -> None:
        """Tell them what they were not told yet: all of it is done, and telling it failed or was broken off."""
        changed = {queue: place for queue, place in self._done.items() if self._published.get(queue) != place}
        if self._group is None or not changed:
            return
        try:
            metadata.commit(self._group, changed)
        except PocketMQError as error:
            log.warning("the progress of the query could not be published to the group %s: %s", self._group, error)
            return
        self._published.update(changed)
