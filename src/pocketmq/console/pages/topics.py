"""Topics: which there are, how they are set up, what lies in their queues; making, changing and deleting them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from pocketmq.client.admin.topics import QueueState
from pocketmq.console.rendering import is_ordinary, matching, read_field, rows
from pocketmq.console.site import Action, Done, Page, Site, Visit
from pocketmq.console.users import Session
from pocketmq.errors import TopicNotFound, UsageError
from pocketmq.model.human import parse_perm, parse_whole
from pocketmq.model.names import is_internal_group

MAX_QUEUES: Final = 1_024
"""That a form of the console takes; more is surely a slip."""
HELD_S: Final = 10.0
"""How long the counts of a list are good: a page of it is a question for each of its rows."""
STATISTICS: Final = {
    "TOPIC_PUT_NUMS": "messages stored",
    "TOPIC_PUT_SIZE": "bytes stored",
}


async def topics(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    show_all = visit.query.get("all") == "1"
    names = sorted(snapshot.topics) if show_all else snapshot.ordinary
    page = rows(matching(names, visit.query.get("q", "")), visit.query.get("page", ""), site.settings.rows_per_page)
    return {
        "rows": page,
        "configs": snapshot.topics,
        "held": await site.answers.ask(("held", *page.shown), lambda: _held(site, page.shown), good_s=HELD_S),
        "show_all": show_all,
        "is_seen": "tables" in snapshot.seen_ms,
        "max_queues": MAX_QUEUES,
    }


async def _held(site: Site, names: Sequence[str]) -> dict[str, tuple[int, float | None]]:
    """Messages and skew of the topics on one page; one that could not be asked about is left out."""
    configs = site.collector.snapshot.topics
    found = await site.admin.topics.queues_of_many({name: list(configs[name]) for name in names if name in configs})
    return {name: (sum(queue.messages for queue in queues), skew(queues)) for name, queues in found.items()}


def skew(queues: list[QueueState]) -> float | None:
    """How much more the fullest queue holds than it would if all held the same: 1 is even. None when nothing is there."""
    total = sum(queue.messages for queue in queues)
    return max(queue.messages for queue in queues) * len(queues) / total if total else None


async def topic(site: Site, visit: Visit) -> Mapping[str, Any]:
    name = visit.parts["topic"]
    state = await site.answers.ask(("topic", name), lambda: site.admin.topics.describe(name))
    readers = await site.answers.ask(("readers", name), lambda: site.admin.topics.readers(name))
    shown = readers if visit.query.get("all") == "1" else [group for group in readers if not is_internal_group(group)]
    fullest = max((queue.messages for queue in state.queues), default=0)
    statistics = await site.answers.ask(("statistics", name), lambda: _statistics(site, name, list(state.configs)))
    return {
        "topic": name,
        "state": state,
        "config": next(iter(state.configs.values()), None),
        "readers": shown,
        "hidden_readers": len(readers) - len(shown),
        "lags": site.collector.snapshot.lags,
        "fullest": fullest,
        "skew": skew(list(state.queues)),
        "statistics": statistics,
        "is_own": not is_ordinary(name),
        "max_queues": MAX_QUEUES,
    }


async def _statistics(site: Site, topic_name: str, brokers: list[str]) -> list[tuple[str, float, int, int]]:
    """Per second over the last minute, and how many of the last hour and day, of all brokers."""
    found = []
    for name, told in STATISTICS.items():
        per_s, hour, day = 0.0, 0, 0
        for broker in brokers:
            data = await site.admin.cluster.statistic(broker, name, topic_name)
            if data is not None:
                per_s += data.stats_minute.tps
                hour, day = hour + data.stats_hour.sum, day + data.stats_day.sum
        found.append((told, per_s, hour, day))
    return found


async def create(site: Site, visit: Visit, session: Session) -> Done:
    name = visit.form.get("name", "").strip()
    await site.admin.topics.create(
        name,
        queues=_queues("queues", visit.form.get("queues", "8")),
        perm=parse_perm(visit.form.get("perm", "rw")),
        ordered=visit.form.get("ordered") == "1",
    )
    await site.collector.ask_now("tables")
    return Done(_url(name), f"Topic {name} was created.")


async def alter(site: Site, visit: Visit, session: Session) -> Done:
    name, form = visit.parts["topic"], visit.form
    await site.admin.topics.alter(
        name,
        read_queues=_queues("queues to read", form.get("read_queues", "")),
        write_queues=_queues("queues to write", form.get("write_queues", "")),
        perm=parse_perm(form.get("perm", "")),
        ordered=form.get("ordered") == "1",
    )
    await site.collector.ask_now("tables")
    return Done(_url(name), f"Topic {name} was changed.")


async def delete(site: Site, visit: Visit, session: Session) -> Done:
    name = visit.parts["topic"]
    if visit.form.get("confirm", "").strip() != name:
        raise UsageError(f"To delete it with all its messages, write its name, {name}, into the field")
    await site.admin.topics.delete(name)
    await site.collector.ask_now("tables")
    return Done("/topics", f"Topic {name} was deleted.")


async def send(site: Site, visit: Visit, session: Session) -> Done:
    """A message by hand."""
    name, form = visit.parts["topic"], visit.form
    if not await site.admin.topics.exists(name):
        raise TopicNotFound(f"there is no topic {name}")
    result = await site.producer.send(
        name, form.get("body", "").encode(), tags=form.get("tag") or None, keys=form.get("key") or ""
    )
    return Done(f"{_url(name)}/messages", f"Message {result.message_id} was sent.")


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
