"""A query's progress as that of a consumer group, so that whoever watches lag sees the query.

The checkpoint is the truth, and this only its mirror: a failure is told in the log and never stops the query. Spark commits a batch
while it plans the one after the next, and the last one never; but when it asks what is new since an offset, all before it is done.
"""

import logging
from collections.abc import Collection

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

    def note(self, places: Places) -> None:
        """All before these places is done."""
        self._done = dict(places)

    def publish(self, metadata: ClientMetadata, present: Collection[MessageQueue] | None = None) -> None:
        """Tell brokers what they were not told yet: because it is new, or telling it failed or was broken off.

        Of `present` queues alone, if these are known: a place of one that is gone can be told to nobody, and must not be in the way.
        """
        changed = {
            queue: place
            for queue, place in self._done.items()
            if self._published.get(queue) != place and (present is None or queue in present)
        }
        if self._group is None or not changed:
            return
        try:
            metadata.commit(self._group, changed)
        except PocketMQError as error:
            log.warning("the progress of the query could not be published to the group %s: %s", self._group, error)
            return
        self._published.update(changed)
