"""Dead letters: list them by group with the reasons, edit and resend one, or resend all of a group."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from pocketmq.client.admin.dead_letters import Letter
from pocketmq.client.received import DEAD_LETTER_REASON
from pocketmq.console.bodies import editable_text, shown_body, whole_body
from pocketmq.console.rendering import matching, read_field, rows
from pocketmq.console.site import Action, ActionResult, Page, Site, Visit
from pocketmq.errors import InvalidMessage, NotFound, UsageError
from pocketmq.model import Message, MessageQueue
from pocketmq.model import properties as names
from pocketmq.model.human import parse_whole

EDITABLE: Final = frozenset({names.TAGS, names.KEYS})
"""RocketMQ's properties that users can edit, besides their own."""


async def letters(site: Site, visit: Visit) -> Mapping[str, Any]:
    """Groups with dead letters, sorted by their number."""
    counts = site.collector.snapshot.letters
    groups = matching(sorted(counts, key=lambda group: (-counts[group], group)), visit.query.get("q", ""))
    return {
        "rows": rows(groups, visit.query.get("page", ""), site.settings.rows_per_page),
        "is_loaded": "letters" in site.collector.snapshot.updated_ms,
    }


async def of_group(site: Site, visit: Visit) -> Mapping[str, Any]:
    """One page, newest first. Dead letters of several brokers are paged together by their position in each queue."""
    group = visit.parts["group"]
    ranges = await site.cache.get(("ranges", group), lambda: site.admin.dead_letters.ranges(group))
    many = site.settings.rows_per_page
    total = sum(end - begin for _, begin, end in ranges)
    pages = max((-(-(end - begin) // many) for _, begin, end in ranges), default=1) or 1
    number = min(read_field("page", visit.query.get("page") or "1", partial(parse_whole, least=1)), pages)
    found = await site.cache.get(("letters", group, number), lambda: _page(site, group, ranges, number))
    return {
        "group": group,
        "letters": found,
        "total": total,
        "number": number,
        "pages": pages,
        "replays": site.replays.of_group(group),
    }


async def _page(site: Site, group: str, ranges: list[tuple[MessageQueue, int, int]], number: int) -> list[Letter]:
    many = site.settings.rows_per_page
    found: list[Letter] = []
    for queue, begin, end in ranges:
        last = end - (number - 1) * many
        first = max(begin, last - many)
        if first < last:
            found += await site.admin.dead_letters.in_queue(group, queue, first, last)
    return sorted(found, key=lambda letter: letter.died_ms, reverse=True)


async def letter(site: Site, visit: Visit) -> Mapping[str, Any]:
    one = await _letter(site, visit)
    properties = own_properties(one)
    return {
        "group": one.group,
        "letter": one,
        "body": shown_body(one.message, visit.query.get("form", ""), site.settings.body_preview_bytes),
        "body_text": editable_text(one.message, site.settings.form_bytes // 4),
        "properties": properties,
        "properties_text": "\n".join(f"{name}={value}" for name, value in properties.items()),
        "all_properties": one.message.properties,
    }


def own_properties(one: Letter) -> dict[str, str]:
    """Properties of the original message, without those of its retries."""
    return {
        name: value
        for name, value in one.message.properties.items()
        if (name in EDITABLE or name not in names.RESERVED) and name != DEAD_LETTER_REASON
    }


async def _letter(site: Site, visit: Visit) -> Letter:
    """The dead letter at `broker-a:0:17`."""
    group, position = visit.parts["group"], visit.parts["position"]
    broker, _, rest = position.partition(":")
    queue_id, _, offset = rest.partition(":")
    at = read_field("offset", offset, parse_whole)
    queue = MessageQueue(f"%DLQ%{group}", broker, read_field("queue", queue_id, partial(parse_whole, most=2**31 - 1)))
    found = await site.admin.dead_letters.in_queue(group, queue, at, at + 1)
    if not found:
        raise NotFound(f"group {group} has no dead letter at {position}; it may have been deleted")
    return found[0]


async def body(site: Site, visit: Visit) -> bytes:
    return await asyncio.to_thread(whole_body, (await _letter(site, visit)).message)


async def resend(site: Site, visit: Visit) -> ActionResult:
    """Send a dead letter again, with the edited body, topic and properties."""
    one, form = await _letter(site, visit), visit.form
    edited = parse_properties_text(form.get("properties", ""))

    def edit(_: Letter, message: Message) -> Message:
        if "body" in form:
            message.body = form["body"].encode()
        for name in own_properties(one):
            message.properties.pop(name, None)
        checked = Message(message.topic, b"", properties={n: v for n, v in edited.items() if n not in EDITABLE})
        message.properties |= checked.properties | {n: v for n, v in edited.items() if n in EDITABLE}
        return message

    outcome = await site.admin.dead_letters.resend([one], topic=form.get("topic", "").strip() or None, edit=edit)
    if outcome.failed:
        raise UsageError(f"the message was not sent: {outcome.failed[0][1]}")
    [(_, result)] = outcome.sent
    return ActionResult(
        f"/letters/{quote(one.group, safe='')}", f"Sent the dead letter again as message {result.message_id}."
    )


def parse_properties_text(text: str) -> dict[str, str]:
    """Properties, one `name=value` per line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not name.strip() or not equals:
            raise InvalidMessage(f"invalid property {line!r}; expected name=value")
        found[name.strip()] = value
    return found


async def replay(site: Site, visit: Visit) -> ActionResult:
    group = visit.parts["group"]
    started = await site.replays.begin(group, visit.form.get("topic", "").strip() or None)
    return ActionResult(f"/letters/{quote(group, safe='')}", f"Sending {started.total:,} dead letters again.")


async def stop_replay(site: Site, visit: Visit) -> ActionResult:
    group = visit.parts["group"]
    site.replays.end(read_field("number", visit.form.get("number", ""), parse_whole))
    return ActionResult(f"/letters/{quote(group, safe='')}", "Stopping the replay.")


PAGES: Final = [
    Page("/letters", "letters", letters, "letters"),
    Page("/letters/{group}", "letters_of_group", of_group, "letters"),
    Page("/letters/{group}/{position}", "letter", letter, "letters", is_live=False),
]
ACTIONS: Final = [
    Action("/letters/{group}/replay", replay, "/letters/{group}"),
    Action("/letters/{group}/stop", stop_replay, "/letters/{group}"),
    Action("/letters/{group}/{position}", resend, "/letters/{group}/{position}"),
]
DOWNLOADS: Final = {"/letters/{group}/{position}/body": body}
