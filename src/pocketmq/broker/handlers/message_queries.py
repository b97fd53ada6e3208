"""Message queries: by key, by log offset, and the entries of a consume queue.

The key index follows the log with a delay. A query by key waits for it for a limited time; other requests are served
meanwhile.
"""

import asyncio
from typing import Final

from pocketmq.broker.reads.filters import Filter
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ImpossibleRequest, InvalidExpression, InvalidParameter
from pocketmq.model import Subscription
from pocketmq.net import Handler, Reply, Request, Steps
from pocketmq.protocol.api.messages import QueryConsumeQueue, QueryMessage, QueryMessageReply, ViewMessage
from pocketmq.protocol.bodies.topics import ConsumeQueueContent, ConsumeQueueEntry
from pocketmq.store.queues.consume_queue import Entry, is_message

INDEX_CHECK_S: Final = 0.01
"""Interval between two checks of the index."""
INDEX_CHECKS: Final = 200
"""Limit on these checks: two seconds, because callers time out after three."""
MAX_ENTRIES: Final = 1_000
"""Limit on queue entries in one answer."""

_NOT_FOUND: Final = "can not find message, maybe time range not correct"


class MessageQueryHandlers:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

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
        found = self._state.store.find_by_key(
            header.topic,
            header.key,
            max(header.max_num, 1),
            header.begin_timestamp,
            header.end_timestamp,
            unique=bool(header.unique_key),
        )
        records = [self._state.store.record(message.log_offset) or b"" for message in found]
        if not any(records):
            return Reply(QueryMessageReply(0, 0), code=ResponseCode.QUERY_NOT_FOUND, remark=_NOT_FOUND)
        return Reply(QueryMessageReply(*self._state.store.facts.last_indexed), b"".join(records))

    async def _index_caught_up(self) -> None:
        """Wait until the index contains everything in the log; it is built at the ticks of the store."""
        facts = self._state.store.facts
        end = facts.log_end
        for _ in range(INDEX_CHECKS):
            if facts.log_end - facts.behind_bytes >= end:
                break
            self._state.store.hurry_index()
            await asyncio.sleep(INDEX_CHECK_S)

    # by log offset

    def by_log_offset(self, request: Request[ViewMessage]) -> Reply:
        offset = request.header.offset
        record = self._state.store.record(offset)
        # Bytes inside a body may look like a record, but its own offset would differ.
        if record is None or (message := self._state.store.message(offset)) is None or message.log_offset != offset:
            raise ImpossibleRequest(f"can not find message by the offset, {offset}")
        return Reply(body=record)

    # queue entries

    async def queue_entries(self, request: Request[QueryConsumeQueue]) -> Reply:
        header = request.header
        topic, queue_id = header.topic or "", header.queue_id or 0
        queue = self._state.store.find_queue(topic, queue_id)
        if queue is None:
            raise ImpossibleRequest(f"{queue_id}@{topic} is not exist!")
        index, count = header.index or 0, header.count or 0
        if not 0 <= count <= MAX_ENTRIES:
            raise InvalidParameter(f"{count} entries requested; 0 to {MAX_ENTRIES} are allowed")
        if not queue.min_offset <= index <= queue.max_offset:
            raise ImpossibleRequest(f"Index {index} of {queue_id}@{topic} is not exist!")
        subscription, group_filter, filter_text = self._group_filter(header.consumer_group, topic)
        steps, entries = Steps(), []
        for entry in self._state.store.entries(queue, index, count):
            matches = group_filter is not None and self._matches(group_filter, entry)
            entries.append(ConsumeQueueEntry(*entry, eval=matches))
            await steps.pause()
        content = ConsumeQueueContent(subscription, filter_text, tuple(entries), queue.max_offset, queue.min_offset)
        return Reply(body=content.encode())

    def _group_filter(self, group: str | None, topic: str) -> tuple[Subscription | None, Filter | None, str | None]:
        """The group's subscription of the topic, its filter, and the text of the filter or of an error."""
        if group is None:
            return None, None, None
        members = self._state.members.group(group)
        wanted = members.subscriptions.get(topic) if members else None
        if wanted is None:
            return None, None, f"{group}@{topic} is not online!"
        try:
            group_filter = self._state.filters.of(wanted)
        except InvalidExpression as error:
            return wanted, None, str(error)
        return wanted, group_filter, None if wanted.is_tag else wanted.sub_string

    def _matches(self, group_filter: Filter, entry: Entry) -> bool:
        """Whether a pull with this filter would return the message."""
        if not is_message(entry) or (group_filter.tag_codes is not None and entry[2] not in group_filter.tag_codes):
            return False
        if group_filter.matches is None:
            return True
        record = self._state.store.record(entry[0])
        return record is not None and group_filter.matches(record)
