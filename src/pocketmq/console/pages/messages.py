"""Messages of a topic: browsing queue by queue, searching by id, key and time, and one of them whole, with its trace.

Places are offsets, so that a page of a queue of millions costs what its rows cost, and a link to it stays right.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from pocketmq.client.admin.messages import MessageTrace
from pocketmq.client.admin.topics import QueueState
from pocketmq.console.bodies import first_line, holds, shown_body, whole_body
from pocketmq.console.rendering import read_field
from pocketmq.console.site import Page, Site, Visit
from pocketmq.errors import NotFound, PocketMQError, UsageError
from pocketmq.model.human import parse_time, parse_whole, time_ms
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import OffsetId
from pocketmq.model.queue import MessageQueue

MAX_FOUND: Final = 200
"""By key or time."""
DAY_MS: Final = 86_400_000


async def messages(site: Site, visit: Visit) -> Mapping[str, Any]:
    """The newest of all queues; or one queue from an offset on; or what was searched for."""
    topic, query = visit.parts["topic"], visit.query
    queues = await site.answers.ask(("queues", topic), lambda: site.admin.topics.queues(topic))
    key = ("messages", visit.url())
    found, place = await site.answers.ask(key, lambda: _found(site, visit, queues))
    wanted, tag = query.get("contains", "").encode(), query.get("tag", "")
    tagged = [message for message in found if not tag or message.tags == tag]
    shown = tagged if not wanted else await asyncio.to_thread(_holding, tagged, wanted)
    return {
        "topic": topic,
        "queues": queues,
        "messages": [(message, first_line(message)) for message in shown],
        "looked_at": len(found),
        "place": place,
        "max_found": MAX_FOUND,
    }


def _holding(found: list[StoredMessage], wanted: bytes) -> list[StoredMessage]:
    return [message for message in found if holds(message, wanted)]


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
    """The id that a producer got, or the broker's own, which says where it lies."""
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
    """A page of one queue, newest first, and where the pages beside it begin."""
    state = queue_named(visit.query["queue"], queues)
    many = site.settings.rows_per_page
    last = max(state.min_offset, state.max_offset - many)
    begin = read_field("offset", visit.query["offset"], parse_whole) if visit.query.get("offset") else last
    begin = min(max(begin, state.min_offset), state.max_offset)
    found = await site.admin.messages.in_queue(state.queue, begin, begin + many, limit=many)
    place = {
        "queue": state,
        "begin": begin,
        "end": min(begin + many, state.max_offset),
        "older": max(state.min_offset, begin - many) if begin > state.min_offset else None,
        "newer": begin + many if begin + many < state.max_offset else None,
    }
    return list(reversed(found)), place


async def _newest(site: Site, queues: list[QueueState]) -> list[StoredMessage]:
    """The last few of the queues that were written to last, as many as a page holds."""
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
    raise UsageError(f"there is no queue {text!r} in this topic; queues are named as broker-a:0")


async def message(site: Site, visit: Visit) -> Mapping[str, Any]:
    topic = visit.parts["topic"]
    one = await _message(site, visit)
    trace, trace_problem = await _trace(site, one.message_id)
    queue = MessageQueue(topic, visit.query.get("broker", ""), one.queue_id)
    readers, readers_problem = await _readers(site, queue, one) if queue.broker_name else ({}, "")
    return {
        "topic": topic,
        "message": one,
        "body": shown_body(one, visit.query.get("form", ""), site.settings.body_preview_bytes),
        "trace": timeline(trace) if trace else [],
        "trace_problem": trace_problem,
        "readers": readers,
        "readers_problem": readers_problem,
    }


async def _message(site: Site, visit: Visit) -> StoredMessage:
    topic, message_id = visit.parts["topic"], visit.parts["message_id"]
    found = await site.answers.ask(("message", topic, message_id), lambda: by_any_id(site, topic, message_id))
    if not found:
        raise NotFound(f"there is no message {message_id} in topic {topic}, or not any more")
    return found[-1]


async def _trace(site: Site, message_id: str) -> tuple[MessageTrace | None, str]:
    """Nobody may have traced at all: then there is no trace topic."""
    try:
        return await site.answers.ask(("trace", message_id), lambda: site.admin.messages.trace(message_id)), ""
    except NotFound:
        return None, ""
    except PocketMQError as error:
        return None, f"its trace could not be read: {error}"


async def _readers(site: Site, queue: MessageQueue, one: StoredMessage) -> tuple[dict[str, bool], str]:
    try:
        offset = one.queue_offset
        return await site.answers.ask(
            ("passed", queue, offset), lambda: site.admin.messages.passed_by(queue, offset)
        ), ""
    except PocketMQError as error:
        return {}, f"who has read it is unknown: {error}"


def timeline(trace: MessageTrace) -> list[tuple[int | None, str, str, bool]]:
    """What happened to a message, in the order of time: when, what, by whom, and whether it went well."""
    events: list[tuple[int | None, str, str, bool]] = []
    for pub in trace.sent:
        words = f"sent in {pub.cost_ms} ms" if pub.success else f"send failed after {pub.cost_ms} ms"
        events.append((pub.time_ms, words, pub.group, pub.success))
    for attempt in trace.attempts:
        outcome = "still being handled" if attempt.outcome is None else attempt.outcome.name.lower().replace("_", " ")
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
