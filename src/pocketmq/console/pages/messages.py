"""Messages of a topic: browse by queue, search by id, key and time, and show one message with its trace.

Pages of a queue start at an offset, so that a link stays valid and a page of a long queue costs only its own rows.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from pocketmq.client.admin.messages import MessageTrace
from pocketmq.client.admin.topics import QueueState
from pocketmq.console.bodies import body_contains, preview, shown_body, whole_body
from pocketmq.console.rendering import read_field
from pocketmq.console.site import Page, Site, Visit
from pocketmq.errors import NotFound, PocketMQError, UsageError
from pocketmq.model import MessageQueue, OffsetId, StoredMessage
from pocketmq.model.human import parse_time, parse_whole, time_ms

MAX_FOUND: Final = 200
"""The limit of a search by key or time."""
DAY_MS: Final = 86_400_000


async def messages(site: Site, visit: Visit) -> Mapping[str, Any]:
    """The newest messages of all queues, one queue from an offset, or the result of a search."""
    topic, query = visit.parts["topic"], visit.query
    queues = await site.cache.get(("queues", topic), lambda: site.admin.topics.queues(topic))
    key = ("messages", visit.url())
    found, position = await site.cache.get(key, lambda: _found(site, visit, queues))
    text, tag = query.get("contains", "").encode(), query.get("tag", "")
    tagged = [message for message in found if not tag or message.tags == tag]
    shown = tagged if not text else await asyncio.to_thread(_containing, tagged, text)
    return {
        "topic": topic,
        "queues": queues,
        "messages": [(message, preview(message)) for message in shown],
        "searched": len(found),
        "position": position,
        "max_found": MAX_FOUND,
    }


def _containing(found: list[StoredMessage], text: bytes) -> list[StoredMessage]:
    return [message for message in found if body_contains(message, text)]


async def _found(
    site: Site, visit: Visit, queues: list[QueueState]
) -> tuple[list[StoredMessage], dict[str, Any] | None]:
    topic, query = visit.parts["topic"], visit.query
    if query.get("id"):
        return await by_any_id(site, topic, query["id"].strip()), None
    now_ms = site.clock.now_ms()
    begin_ms, end_ms = (
        time_ms(read_field(name, query[name], parse_time), now_ms) if query.get(name) else None
        for name in ("since", "until")
    )
    if query.get("key"):
        found = await site.admin.messages.by_key(
            topic, query["key"].strip(), begin_ms=begin_ms or 0, end_ms=end_ms or now_ms + DAY_MS
        )
        return list(reversed(found)), None
    if begin_ms is not None or end_ms is not None:
        begin_ms = begin_ms if begin_ms is not None else 0
        found = await site.admin.messages.in_time(topic, begin_ms, end_ms or now_ms + DAY_MS, limit=MAX_FOUND)
        return list(reversed(found)), None
    if query.get("queue"):
        return await _one_queue(site, visit, queues)
    return await _newest(site, queues), None


async def by_any_id(site: Site, topic: str, message_id: str) -> list[StoredMessage]:
    """Messages with this message id or offset id."""
    found = await site.admin.messages.by_id(topic, message_id)
    if found:
        return found
    try:
        OffsetId.parse(message_id)
        one = await site.admin.messages.by_offset_id(message_id, topic)
    except (UsageError, NotFound):
        return []
    return [one] if one.topic == topic else []


async def _one_queue(site: Site, visit: Visit, queues: list[QueueState]) -> tuple[list[StoredMessage], dict[str, Any]]:
    """A page of one queue, newest first, with the offsets of the next pages."""
    state = queue_named(visit.query["queue"], queues)
    many = site.settings.rows_per_page
    last = max(state.min_offset, state.max_offset - many)
    begin = read_field("offset", visit.query["offset"], parse_whole) if visit.query.get("offset") else last
    begin = min(max(begin, state.min_offset), state.max_offset)
    found = await site.admin.messages.in_queue(state.queue, begin, begin + many, limit=many)
    position = {
        "queue": state,
        "begin": begin,
        "end": min(begin + many, state.max_offset),
        "older": max(state.min_offset, begin - many) if begin > state.min_offset else None,
        "newer": begin + many if begin + many < state.max_offset else None,
    }
    return list(reversed(found)), position


async def _newest(site: Site, queues: list[QueueState]) -> list[StoredMessage]:
    """The newest messages of the queues with the latest writes, one page in total."""
    many = site.settings.rows_per_page
    filled = sorted((queue for queue in queues if queue.messages), key=lambda queue: -(queue.last_store_ms or 0))[:16]
    found: list[StoredMessage] = []
    for state in filled:
        share = -(-many // len(filled))
        begin = max(state.min_offset, state.max_offset - share)
        found += await site.admin.messages.in_queue(state.queue, begin, state.max_offset, limit=share)
    return sorted(found, key=lambda message: (message.store_ms, message.log_offset), reverse=True)[:many]


def queue_named(text: str, queues: list[QueueState]) -> QueueState:
    """`broker-a:0`."""
    for state in queues:
        if f"{state.queue.broker_name}:{state.queue.queue_id}" == text:
            return state
    raise UsageError(f"the topic has no queue {text!r}; queues have names such as broker-a:0")


async def message(site: Site, visit: Visit) -> Mapping[str, Any]:
    topic = visit.parts["topic"]
    one = await _message(site, visit)
    trace, trace_problem = await _trace(site, one.message_id)
    queue = MessageQueue(topic, visit.query.get("broker", ""), one.queue_id)
    consumers, consumers_problem = await _consumers(site, queue, one) if queue.broker_name else ({}, "")
    return {
        "topic": topic,
        "message": one,
        "body": shown_body(one, visit.query.get("form", ""), site.settings.body_preview_bytes),
        "trace": timeline(trace) if trace else [],
        "trace_problem": trace_problem,
        "consumers": consumers,
        "consumers_problem": consumers_problem,
    }


async def _message(site: Site, visit: Visit) -> StoredMessage:
    topic, message_id = visit.parts["topic"], visit.parts["message_id"]
    found = await site.cache.get(("message", topic, message_id), lambda: by_any_id(site, topic, message_id))
    if not found:
        raise NotFound(f"topic {topic} has no message {message_id}; it may have been deleted")
    return found[-1]


async def _trace(site: Site, message_id: str) -> tuple[MessageTrace | None, str]:
    """The trace of a message; NotFound means that no client has traced anything yet."""
    try:
        return await site.cache.get(("trace", message_id), lambda: site.admin.messages.trace(message_id)), ""
    except NotFound:
        return None, ""
    except PocketMQError as error:
        return None, f"cannot read the trace: {error}"


async def _consumers(site: Site, queue: MessageQueue, one: StoredMessage) -> tuple[dict[str, bool], str]:
    try:
        offset = one.queue_offset
        return await site.cache.get(("passed", queue, offset), lambda: site.admin.messages.passed_by(queue, offset)), ""
    except PocketMQError as error:
        return {}, f"cannot read the offsets of its consumer groups: {error}"


def timeline(trace: MessageTrace) -> list[tuple[int | None, str, str, bool]]:
    """Events of a message by time: time, text, group, and whether it succeeded."""
    events: list[tuple[int | None, str, str, bool]] = []
    for pub in trace.sent:
        text = f"sent in {pub.cost_ms} ms" if pub.success else f"send failed after {pub.cost_ms} ms"
        events.append((pub.time_ms, text, pub.group, pub.success))
    for attempt in trace.attempts:
        outcome = "still processing" if attempt.outcome is None else attempt.outcome.name.lower().replace("_", " ")
        took = "" if attempt.cost_ms is None else f" in {attempt.cost_ms} ms"
        again = f", attempt {attempt.retry_times + 1}" if attempt.retry_times else ""
        is_healthy = attempt.outcome is None or attempt.outcome == 0
        events.append((attempt.started_ms, f"consumed: {outcome}{took}{again}", attempt.group, is_healthy))
    events += [(one.time_ms, f"decided: {one.decision.value}", one.group, True) for one in trace.decided]
    events += [(one.time_ms, "recalled", one.group, one.success) for one in trace.recalled]
    return sorted(events, key=lambda event: event[0] or 0)


async def body(site: Site, visit: Visit) -> bytes:
    return await asyncio.to_thread(whole_body, await _message(site, visit))


PAGES: Final = [
    Page("/topics/{topic}/messages", "messages", messages, "topics"),
    Page("/topics/{topic}/messages/{message_id}", "message", message, "topics", is_live=False),
]
DOWNLOADS: Final = {"/topics/{topic}/messages/{message_id}/body": body}
