"""Doctor: why do messages not arrive? The way from the address to the handler, step by step, as `pocketmq doctor` walks it."""

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.console.site import Page, Site, Visit
from pocketmq.doctor import Report, async_examine
from pocketmq.model.names import is_internal_group

EXAMINATION_S: Final = 60.0
"""Steps that nobody answers take seconds each."""
GOOD_S: Final = 5.0


async def doctor(site: Site, visit: Visit) -> Mapping[str, Any]:
    """Nothing is asked before somebody wants it."""
    topic, group = visit.query.get("topic", "").strip() or None, visit.query.get("group", "").strip() or None
    report = None
    if visit.query.get("run") == "1":
        key = ("examination", topic, group)
        report = await site.answers.ask(
            key, lambda: _examine(site, topic, group), good_s=GOOD_S, timeout_s=EXAMINATION_S
        )
    snapshot = site.collector.snapshot
    return {
        "report": report,
        "asked_topic": topic or "",
        "asked_group": group or "",
        "groups": sorted(group for group in snapshot.lags if not is_internal_group(group))[
            : site.settings.rows_per_page
        ],
        "problem": "",
    }


async def _examine(site: Site, topic: str | None, group: str | None) -> Report:
    return await async_examine(site.name_servers, topic=topic, group=group, **site.options)


PAGES: Final = [Page("/doctor", "doctor", doctor, "doctor", is_live=False)]
