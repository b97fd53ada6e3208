"""Brokers with their settings, clients, pipelines on Spark, and the doctor."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from pocketmq.client.admin.lag import GroupLag
from pocketmq.client.settings import DEFAULT_PRODUCER_GROUP
from pocketmq.codes import Version
from pocketmq.console.group_progress import Activity, GroupProgress
from pocketmq.console.rendering import matching, rows
from pocketmq.console.site import Action, ActionResult, Page, Site, Visit
from pocketmq.console.snapshot import Snapshot
from pocketmq.doctor import async_examine
from pocketmq.errors import UsageError
from pocketmq.model import is_internal_group, is_retry

EXAMINATION_S: Final = 60.0
"""Steps without an answer take seconds each."""
CACHE_S: Final = 5.0


async def brokers(site: Site, visit: Visit) -> Mapping[str, Any]:
    return {"brokers": site.collector.snapshot.brokers}


async def broker(site: Site, visit: Visit) -> Mapping[str, Any]:
    name = visit.parts["broker"]
    settings = await site.cache.get(("settings", name), lambda: site.admin.cluster.settings(name))
    states = [state for state in site.collector.snapshot.brokers if state.broker.name == name]
    names = matching(sorted(settings), visit.query.get("q", ""))
    return {
        "broker": name,
        "states": states,
        "settings": {key: settings[key] for key in names},
        "runtime": dict(sorted(states[0].runtime.items())) if states else {},
    }


async def change(site: Site, visit: Visit) -> ActionResult:
    name, key, value = visit.parts["broker"], visit.form.get("key", "").strip(), visit.form.get("value", "").strip()
    if not key:
        raise UsageError("enter the name of a setting, as in the table")
    before = (await site.admin.cluster.settings(name)).get(key)
    if before is None:
        raise UsageError(f"broker {name} has no setting {key!r}")
    await site.admin.cluster.change_settings(name, {key: value})
    now = (await site.admin.cluster.settings(name)).get(key)  # Apache's brokers ignore unknown values silently
    if now == before != value:
        raise UsageError(f"broker {name} did not accept the change: {key} is still {now}")
    return ActionResult(f"/brokers/{quote(name, safe='')}", f"Changed {key} of {name} to {now}.")


class ShownClient(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the clients page: one client in one group."""

    client_id: str
    address: str
    language: str
    version: str
    kind: str
    group: str

    @property
    def is_internal(self) -> bool:
        """Whether it is a client of a tool. Producers of the default group belong to applications."""
        return self.group != DEFAULT_PRODUCER_GROUP and is_internal_group(self.group)


async def clients(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    needle = visit.query.get("q", "").strip().lower()
    show_all = visit.query.get("all") == "1"
    shown = [one for one in connected(snapshot) if show_all or not one.is_internal]
    found = [one for one in shown if needle in f"{one.client_id} {one.group} {one.address}".lower()]
    return {
        "rows": rows(found, visit.query.get("page", ""), site.settings.rows_per_page),
        "show_all": show_all,
        "knows_producers": snapshot.producers is not None,
        "is_loaded": "members" in snapshot.updated_ms,
    }


def connected(snapshot: Snapshot) -> list[ShownClient]:
    """Consumers, then producers, each sorted by group."""
    consumers = [
        _shown("consumer", group, member.client_id, member.address, member.language, member.version)
        for group, members in sorted(snapshot.members.items())
        for member in members
    ]
    producers = [
        _shown("producer", group, one.client_id, one.remote_ip, one.language, one.version)
        for group, members in sorted((snapshot.producers or {}).items())
        for one in members
    ]
    return consumers + producers


def _shown(
    kind: str, group: str, client_id: str, address: str | None, language: str | None, version: int
) -> ShownClient:
    return ShownClient(
        client_id=client_id,
        address=(address or "").lstrip("/"),
        language=language or "",
        version=version_name(version),
        kind=kind,
        group=group,
    )


def version_name(number: int) -> str:
    """The name of RocketMQ's release, or the number if it is unknown."""
    try:
        return Version(number).name.removeprefix("V").replace("_", ".")
    except ValueError:
        return str(number)


PipelineRow = tuple[str, GroupProgress, str, GroupLag | None, GroupLag | None]


def pipeline_rows(snapshot: Snapshot, now_ms: int) -> list[PipelineRow]:
    """Groups that move without members: name, progress, activity, lag in messages and in time.

    A stopped group that once had members, and so has a retry topic, is a consumer that was stopped.
    """
    found: list[PipelineRow] = []
    for group, progress in sorted(snapshot.group_progress.items()):
        lag = snapshot.lags.get(group)
        activity = progress.activity(now_ms, None if lag is None else lag.messages)
        had_members = lag is not None and any(is_retry(queue.queue.topic) for queue in lag.queues)
        is_consumer = snapshot.members.get(group) or (had_members and activity is not Activity.RUNNING)
        if not is_consumer and not is_internal_group(group):
            found.append((group, progress, activity.value, lag, snapshot.times.get(group)))
    return found


async def pipelines(site: Site, visit: Visit) -> Mapping[str, Any]:
    """Spark queries that commit their offsets to a consumer group.

    Such a group has no members, and its offsets change with every batch. A query with a lag and without a commit for half a
    minute and five batches has stopped.
    """
    found = pipeline_rows(site.collector.snapshot, site.clock.now_ms())
    shown = rows(found, visit.query.get("page", ""), site.settings.rows_per_page)
    site.collector.sampler.watch(group for group, *_ in shown.shown)
    return {"rows": shown}


async def doctor(site: Site, visit: Visit) -> Mapping[str, Any]:
    """The form, and with `run=1` the report of an examination."""
    topic, group = visit.query.get("topic", "").strip() or None, visit.query.get("group", "").strip() or None
    report = None
    if visit.query.get("run") == "1":
        key = ("examination", topic, group)
        report = await site.cache.get(
            key,
            lambda: async_examine(site.name_servers, topic=topic, group=group, **site.options),
            cache_s=CACHE_S,
            timeout_s=EXAMINATION_S,
        )
    snapshot = site.collector.snapshot
    return {
        "report": report,
        "topic": topic or "",
        "group": group or "",
        "groups": sorted(group for group in snapshot.lags if not is_internal_group(group))[
            : site.settings.rows_per_page
        ],
        "problem": "",
    }


PAGES: Final = [
    Page("/clients", "clients", clients, "clients"),
    Page("/brokers", "brokers", brokers, "brokers"),
    Page("/brokers/{broker}", "broker", broker, "brokers"),
    Page("/pipelines", "pipelines", pipelines, "pipelines"),
    Page("/doctor", "doctor", doctor, "doctor", is_live=False),
]
ACTIONS: Final = [Action("/brokers/{broker}", change, "/brokers/{broker}")]
