"""Looking at messages: by key, by where they lie in the log, and at the entries of a queue.

A key is found once the index has come to its message. That happens behind the writers, so a look-up waits for it, for a while;
meanwhile others are served.
"""

import asyncio
from typing import Final

from pocketmq.broker.groups.members import Members
from pocketmq.broker.reads.filters import Filter, Filters
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ImpossibleRequest, InvalidExpression, InvalidParameter
from pocketmq.model.subscription import Subscription
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.net.loops import Steps
from pocketmq.protocol.api.pulling import QueryConsumeQueue, QueryMessage, QueryMessageReply, ViewMessage
from pocketmq.protocol.bodies.stats import ConsumeQueueContent, ConsumeQueueEntry
from pocketmq.protocol.java_json import write_body
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import Entry, is_message
from pocketmq.store.readable_store import MAX_KEY_RESULTS

LOOK_SECONDS: Final = 0.01
"""Between two looks at the index."""
INDEX_LOOKS: Final = 200
"""How often a look-up looks whether the index is there: for two seconds, as callers give up after three."""
MAX_ENTRIES: Final = 1_000
"""Entries of a queue that one answer shows."""

_NOT_FOUND: Final = "can not find message, maybe time range not correct"


class MessageQueryHandlers:
    """Requests that show messages and queue entries."""

    def __init__(self, store: MessageStore, members: Members, filters: Filters) -> None:
        self._store = store
        self._members = members
        self._filters = filters

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_log_offset,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue_entries,
        }

    # by key

    async def by_key(self, request: Request[QueryMessage]) -> Reply:
        header = request.header
        await self._index_caught_up()
        found = self._store.find_by_key(
            header.topic,
            header.key,
            min(max(header.max_num, 1), MAX_KEY_RESULTS),
            header.begin_timestamp,
            header.end_timestamp,
            unique=bool(header.unique_key),
        )
        records = [self._store.record(message.log_offset) or b"" for message in found]
        if not any(records):
            return Reply(QueryMessageReply(0, 0), code=ResponseCode.QUERY_NOT_FOUND, remark=_NOT_FOUND)
        return Reply(QueryMessageReply(*self._store.facts.last_indexed), b"".join(records))

    async def _index_caught_up(self) -> None:
        """Wait until the index has come to where the log ends now; it is made at the ticks of the store."""
        facts = self._store.facts
        end = facts.log_end
        for _ in range(INDEX_LOOKS):
            if facts.log_end - facts.behind_bytes >= end:
                break
            self._store.hurry_index()
            await asyncio.sleep(LOOK_SECONDS)

    # by place

    def by_log_offset(self, request: Request[ViewMessage]) -> Reply:
        offset = request.header.offset
        record = self._store.record(offset)
        # What lies inside a body may look like a record, but it would not say that it lies here.
        if record is None or (message := self._store.message(offset)) is None or message.log_offset != offset:
            raise ImpossibleRequest(f"can not find message by the offset, {offset}")
        return Reply(body=record)

    # a queue

    async def queue_entries(self, request: Request[QueryConsumeQueue]) -> Reply:
        header = request.header
        topic, queue_id = header.topic or "", header.queue_id or 0
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            raise ImpossibleRequest(f"{queue_id}@{topic} is not exist!")
        index, count = header.index or 0, header.count or 0
        if not 0 <= count <= MAX_ENTRIES:
            raise InvalidParameter(f"{count} entries are asked for; an answer shows 0 to {MAX_ENTRIES}")
        if not queue.min_offset <= index <= queue.max_offset:
            raise ImpossibleRequest(f"Index {index} of {queue_id}@{topic} is not exist!")
        subscription, judge, told = self._judged_by(header.consumer_group, topic)
        steps, entries = Steps(), []
        for entry in self._store.entries(queue, index, count):
            takes = judge is not None and self._takes(judge, entry)
            entries.append(ConsumeQueueEntry(*entry, eval=takes))
            await steps.pause()
        content = ConsumeQueueContent(subscription, told, tuple(entries), queue.max_offset, queue.min_offset)
        return Reply(body=write_body(content))

    def _judged_by(self, group: str | None, topic: str) -> tuple[Subscription | None, Filter | None, str | None]:
        """What the group wants of the topic, the filter that decides, and what there is to say about it."""
        if group is None:
            return None, None, None
        members = self._members.group(group)
        wanted = members.subscriptions.get(topic) if members else None
        if wanted is None:
            return None, None, f"{group}@{topic} is not online!"
        try:
            judge = self._filters.of(wanted)
        except InvalidExpression as error:
            return wanted, None, str(error)
        return wanted, judge, None if wanted.is_tag else wanted.sub_string

    def _takes(self, judge: Filter, entry: Entry) -> bool:
        """Whether a pull by this filter would bring the message."""
        if not is_message(entry) or (judge.tag_codes is not None and entry[2] not in judge.tag_codes):
            return False
        if judge.matches is None:
            return True
        record = self._store.record(entry[0])
        return record is not None and judge.matches(record)
