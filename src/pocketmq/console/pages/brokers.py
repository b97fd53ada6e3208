"""Brokers: what each says about itself, and its settings, which can be changed while it runs where the broker allows it."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from pocketmq.console.paging import matching
from pocketmq.console.sessions import Session
from pocketmq.console.site import Action, Done, Page, Site, Visit
from pocketmq.errors import UsageError


async def brokers(site: Site, visit: Visit) -> Mapping[str, Any]:
    return {"brokers": site.collector.snapshot.brokers}


async def broker(site: Site, visit: Visit) -> Mapping[str, Any]:
    name = visit.parts["broker"]
    settings = await site.answers.ask(("settings", name), lambda: site.admin.cluster.settings(name))
    states = [state for state in site.collector.snapshot.brokers if state.place.name == name]
    wanted = matching(sorted(settings), visit.query.get("q", ""))
    return {
        "broker": name,
        "states": states,
        "settings": {key: settings[key] for key in wanted},
        "runtime": dict(sorted(states[0].runtime.items())) if states else {},
    }


async def change(site: Site, visit: Visit, session: Session) -> Done:
    name, key, value = visit.parts["broker"], visit.form.get("key", "").strip(), visit.form.get("value", "").strip()
    if not key:
        raise UsageError("which setting? Write its name as it stands in the table")
    before = (await site.admin.cluster.settings(name)).get(key)
    if before is None:
        raise UsageError(f"broker {name} has no setting {key!r}")
    await site.admin.cluster.change_settings(name, {key: value})
    now = (await site.admin.cluster.settings(name)).get(key)  # one of RocketMQ passes over what it cannot take
    if now == before != value:
        raise UsageError(f"broker {name} did not take it: {key} is still {now}")
    return Done(f"/brokers/{quote(name, safe='')}", f"{key} of {name} is {now} now.")


PAGES: Final = [
    Page("/brokers", "brokers", brokers, "brokers"),
    Page("/brokers/{broker}", "broker", broker, "brokers"),
]
ACTIONS: Final = [Action("/brokers/{broker}", change, "/brokers/{broker}")]
