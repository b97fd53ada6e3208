"""Topics: list them, show configuration and queues, create, change and delete them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from pocketmq.client.admin.topics import QueueState
from pocketmq.console.rendering import is_user_topic, matching, read_field, rows
from pocketmq.console.site import Action, ActionResult, Page, Site, Visit
from pocketmq.errors import TopicNotFound, UsageError
from pocketmq.model import is_internal_group
from pocketmq.model.human import parse_perm, parse_whole

MAX_QUEUES: Final = 1_024
"""The limit in forms of the console; a larger number is probably a mistake."""
CACHE_S: Final = 10.0
"""How long message counts are cached: a page sends a request for each of its rows."""
STATISTICS: Final = {
    "TOPIC_PUT_NUMS": "messages stored",
    "TOPIC_PUT_SIZE": "bytes stored",
}


async def topics(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    show_all = visit.query.get("all") == "1"
    names = sorted(snapshot.topics) if show_all else snapshot.user_topics
    page = rows(matching(names, visit.query.get("q", "")), visit.query.get("page", ""), site.settings.rows_per_page)
    return {
        "rows": page,
        "configs": snapshot.topics,
        "message_counts": await site.cache.get(
            ("counts", *page.shown), lambda: _message_counts(site, page.shown), cache_s=CACHE_S
        ),
        "show_all": show_all,
        "is_loaded": "tables" in snapshot.updated_ms,
        "max_queues": MAX_QUEUES,
    }


async def _message_counts(site: Site, names: Sequence[str]) -> dict[str, tuple[int, float | None]]:
    """Message counts and skew of the topics on one page, without topics whose query failed."""
    configs = site.collector.snapshot.topics
    found = await site.admin.topics.queues_of_many({name: list(configs[name]) for name in names if name in configs})
    return {name: (sum(queue.messages for queue in queues), skew(queues)) for name, queues in found.items()}


def skew(queues: list[QueueState]) -> float | None:
    """The fullest queue relative to the average: 1 is even. None without messages."""
    total = sum(queue.messages for queue in queues)
    return max(queue.messages for queue in queues) * len(queues) / total if total else None


async def topic(site: Site, visit: Visit) -> Mapping[str, Any]:
    name = visit.parts["topic"]
    state = await site.cache.get(("topic", name), lambda: site.admin.topics.describe(name))
    groups = await site.cache.get(("groups", name), lambda: site.admin.topics.readers(name))
    shown = groups if visit.query.get("all") == "1" else [group for group in groups if not is_internal_group(group)]
    fullest = max((queue.messages for queue in state.queues), default=0)
    statistics = await site.cache.get(("statistics", name), lambda: _statistics(site, name, list(state.configs)))
    return {
        "topic": name,
        "state": state,
        "config": next(iter(state.configs.values()), None),
        "groups": shown,
        "hidden_groups": len(groups) - len(shown),
        "lags": site.collector.snapshot.lags,
        "fullest": fullest,
        "skew": skew(list(state.queues)),
        "statistics": statistics,
        "is_internal": not is_user_topic(name),
        "max_queues": MAX_QUEUES,
    }


async def _statistics(site: Site, topic_name: str, brokers: list[str]) -> list[tuple[str, float, int, int]]:
    """Rates of the last minute and totals of the last hour and day, summed over all brokers."""
    found = []
    for name, label in STATISTICS.items():
        per_s, hour, day = 0.0, 0, 0
        for broker in brokers:
            data = await site.admin.cluster.statistic(broker, name, topic_name)
            if data is not None:
                per_s += data.stats_minute.tps
                hour, day = hour + data.stats_hour.sum, day + data.stats_day.sum
        found.append((label, per_s, hour, day))
    return found


async def create(site: Site, visit: Visit) -> ActionResult:
    name = visit.form.get("name", "").strip()
    await site.admin.topics.create(
        name,
        queues=_queues("queues", visit.form.get("queues", "8")),
        perm=parse_perm(visit.form.get("perm", "rw")),
        ordered=visit.form.get("ordered") == "1",
    )
    await site.collector.refresh_now("tables")
    return ActionResult(_url(name), f"Created topic {name}.")


async def alter(site: Site, visit: Visit) -> ActionResult:
    name, form = visit.parts["topic"], visit.form
    await site.admin.topics.alter(
        name,
        read_queues=_queues("read queues", form.get("read_queues", "")),
        write_queues=_queues("write queues", form.get("write_queues", "")),
        perm=parse_perm(form.get("perm", "")),
        ordered=form.get("ordered") == "1",
    )
    await site.collector.refresh_now("tables")
    return ActionResult(_url(name), f"Changed topic {name}.")


async def delete(site: Site, visit: Visit) -> ActionResult:
    name = visit.parts["topic"]
    if visit.form.get("confirm", "").strip() != name:
        raise UsageError(f"To delete the topic with all its messages, enter its name, {name}")
    await site.admin.topics.delete(name)
    await site.collector.refresh_now("tables")
    return ActionResult("/topics", f"Deleted topic {name}.")


async def send(site: Site, visit: Visit) -> ActionResult:
    name, form = visit.parts["topic"], visit.form
    if not await site.admin.topics.exists(name):
        raise TopicNotFound(f"topic {name} does not exist")
    result = await site.producer.send(
        name, form.get("body", "").encode(), tags=form.get("tag") or None, keys=form.get("key") or ""
    )
    return ActionResult(f"{_url(name)}/messages", f"Sent message {result.message_id}.")


def _queues(name: str, text: str) -> int:
    return read_field(name, text, partial(parse_whole, least=1, most=MAX_QUEUES))


def _url(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


PAGES: Final = [
    Page("/topics", "topics", topics, "topics"),
    Page("/topics/{topic}", "topic", topic, "topics"),
]
ACTIONS: Final = [
    Action("/topics", create, "/topics"),
    Action("/topics/{topic}/alter", alter, "/topics/{topic}"),
    Action("/topics/{topic}/delete", delete, "/topics/{topic}"),
    Action("/topics/{topic}/send", send, "/topics/{topic}/messages"),
]
