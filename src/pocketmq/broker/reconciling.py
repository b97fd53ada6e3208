"""After a start the tables are brought into step with the log. Where they disagree, the log is right.

    a queue has messages, no table knows its topic ──► the topic is there again      made by sending to it, moments before a crash
    a group is ahead of the end of its queue ────────► it is set back to the end     a power loss took what it had consumed
    members are ahead of the end, and go on running ─► their next pull is set back   see `offsets`

A message that is acknowledged must be readable, and one that takes the place of a lost one must not be taken for consumed.
What an administrator has deleted stays deleted: the store gives no queues back of topics that are gone.
"""

import logging
from collections.abc import Sequence
from typing import Final

from pocketmq.broker.offsets import OffsetTable
from pocketmq.broker.topics import MAX_QUEUES, TopicTable
from pocketmq.model.names import LMQ_PREFIX, group_of
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("pocketmq.broker")

USUAL_QUEUES: Final = 4
"""What clients ask for when a topic is made by sending to it: they may know of queues that have no message yet."""
MAX_NAMED: Final = 10
"""Names in one line of the log."""


def adopt_topics(topics: TopicTable, store: MessageStore, now_ms: int) -> list[str]:
    """Give a row to every topic that has messages and none; their names. Light topics have queues and never a row."""
    adopted = []
    for topic, queues in store.topic_queues().items():
        if topic in topics or topic.startswith(LMQ_PREFIX):
            continue
        is_users_own = group_of(topic) is None and not topics.is_system(topic)
        count = min(max(queues, USUAL_QUEUES if is_users_own else 1), MAX_QUEUES)
        topics.ensure(TopicConfig(topic, count, count), now_ms)
        adopted.append(topic)
    if adopted:
        log.warning("topics with messages that no table knows are there again: %s", _names(adopted))
    return adopted


def lower_offsets(offsets: OffsetTable, store: MessageStore, *, clean: bool) -> list[str]:
    """Set groups back that are ahead of what there is; which, as `topic@group`. `clean`: no crash can have taken anything."""
    lowered = offsets.lower_to(store.max_offset)
    if not clean:
        offsets.bound_by(store.max_offset)
    if lowered:
        log.warning("groups were ahead of the end of the log, and are set back to it: %s", _names(lowered))
    return lowered


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
