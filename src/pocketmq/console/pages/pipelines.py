"""Pipelines: Spark queries that publish their progress as a consumer group: rate, lag and batch time.

Such a group has no members, for the query never joins it, and its offsets move batch by batch. That is how it is recognised.
"""

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.console.paging import rows
from pocketmq.console.site import Page, Site, Visit


async def pipelines(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    moving = [
        (group, stride, snapshot.lags.get(group), snapshot.times.get(group))
        for group, stride in sorted(snapshot.strides.items())
        if not snapshot.members.get(group)
    ]
    shown = rows(moving, visit.query.get("page", ""), site.settings.rows_per_page)
    site.collector.pace.want(group for group, *_ in shown.shown)
    return {"rows": shown}


PAGES: Final = [Page("/pipelines", "pipelines", pipelines, "pipelines")]
