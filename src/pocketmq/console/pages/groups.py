"""Consumer groups: lag, members and queue owners; create, delete, and reset offsets with a preview."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from pocketmq.client.admin.groups import GroupState, Owners
from pocketmq.client.admin.lag import GroupLag
from pocketmq.client.admin.offsets import ResetTo
from pocketmq.console.rendering import matching, read_field, rows
from pocketmq.console.site import Action, ActionResult, Page, Site, Visit
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model import is_internal_group
from pocketmq.model.human import count, parse_time

MAX_LAG_ROWS: Final = 200
"""The limit on queues of one group on its page, those with the largest lag first."""


async def groups(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    show_all = visit.query.get("all") == "1"
    names = [name for name in {*snapshot.groups, *snapshot.lags} if show_all or not is_internal_group(name)]
    shown = matching(names, visit.query.get("q", ""))
    if visit.query.get("sort") == "name":
        shown.sort()
    else:
        shown.sort(key=lambda name: (-snapshot.lagging.get(name, 0), name))
    return {
        "rows": rows(shown, visit.query.get("page", ""), site.settings.rows_per_page),
        "is_loaded": "tables" in snapshot.updated_ms,
        "sort": visit.query.get("sort", "lag"),
        "show_all": show_all,
    }


async def group(site: Site, visit: Visit) -> Mapping[str, Any]:
    name = visit.parts["group"]
    state = await site.cache.get(("group", name), lambda: site.admin.groups.describe(name))
    lag, lag_problem = await _lag(site, name)
    owners = await site.cache.get(("owners", name), lambda: _owners(site, name, state), cache_s=10.0)
    queues = sorted(lag.queues, key=lambda one: (-(one.messages or 0), one.queue)) if lag else []
    return {
        "group": name,
        "state": state,
        "config": next(iter(state.configs.values()), None),
        "lag": lag,
        "lag_problem": lag_problem,
        "queues": queues[:MAX_LAG_ROWS],
        "queue_count": len(queues),
        "owners": owners,
        "topics": sorted({one.queue.topic for one in queues} | set(state.subscriptions)),
        "letters": site.collector.snapshot.letters.get(name),
    }


async def _lag(site: Site, name: str) -> tuple[GroupLag | None, str]:
    try:
        return await site.cache.get(("lag", name), lambda: site.admin.offsets.lag(name)), ""
    except PocketMQError as error:
        return None, str(error)


async def _owners(site: Site, name: str, state: GroupState) -> Owners:
    """Queue owners. Members that do not answer take seconds, so the result is cached longer."""
    if not state.members:
        return Owners(queues={}, silent={})
    return await site.admin.groups.owners(name)


async def reset_preview(site: Site, visit: Visit) -> Mapping[str, Any]:
    """The plan of a reset, queue by queue."""
    name, query = visit.parts["group"], {**visit.query, **visit.form}
    topic = query.get("topic", "").strip()
    lag, _ = await _lag(site, name)
    topics = sorted({one.queue.topic for one in lag.queues}) if lag else []
    plan, problem = None, ""
    if topic:
        try:
            plan = await site.admin.offsets.reset(name, topic, reset_target(query), dry_run=True)
        except UsageError as error:
            problem = str(error)
    return {"group": name, "topics": topics, "chosen": query, "plan": plan, "plan_problem": problem}


def reset_target(query: Mapping[str, str]) -> ResetTo:
    """The target of a reset: earliest, latest, or a time."""
    match query.get("to", "earliest"):
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case "time":
            return read_field("time", query.get("time", ""), parse_time)
        case other:
            raise UsageError(f"cannot reset to {other!r}: choose earliest, latest or a time")


async def reset(site: Site, visit: Visit) -> ActionResult:
    name, topic = visit.parts["group"], visit.form.get("topic", "")
    done = await site.admin.offsets.reset(name, topic, reset_target(visit.form))
    again, skipped = sum(row.again for row in done.queues), sum(row.skipped for row in done.queues)
    site.collector.refresh_soon()
    text = (
        f"Reset group {name} in {topic}: {count(again, 'message')} will be consumed again, "
        f"{count(skipped, 'message')} will be skipped."
    )
    return ActionResult(f"/groups/{quote(name, safe='')}", text)


async def delete(site: Site, visit: Visit) -> ActionResult:
    name = visit.parts["group"]
    if visit.form.get("confirm", "").strip() != name:
        raise UsageError(f"To delete the group with its retries and dead letters, enter its name, {name}")
    await site.admin.groups.delete(name)
    await site.collector.refresh_now("tables", "lags")
    return ActionResult("/groups", f"Deleted group {name}.")


async def create(site: Site, visit: Visit) -> ActionResult:
    name = visit.form.get("name", "").strip()
    await site.admin.groups.create(name)
    await site.collector.refresh_now("tables")
    return ActionResult(f"/groups/{quote(name, safe='')}", f"Created group {name}.")


PAGES: Final = [
    Page("/groups", "groups", groups, "groups"),
    Page("/groups/{group}", "group", group, "groups"),
    Page("/groups/{group}/reset", "reset", reset_preview, "groups", is_live=False),
]
ACTIONS: Final = [
    Action("/groups", create, "/groups"),
    Action("/groups/{group}/reset", reset, "/groups/{group}/reset"),
    Action("/groups/{group}/delete", delete, "/groups/{group}"),
]
