"""Pipelines: Spark queries that publish their progress as a consumer group: rate, lag and batch time.

Such a group has no members, for the query never joins it, and its offsets move batch by batch. That is how it is recognised. One that
is behind and has not moved for half a minute and five batches has stopped.
"""

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.client.administration.lag import GroupLag
from pocketmq.console.paging import rows
from pocketmq.console.site import Page, Site, Visit
from pocketmq.console.strides import Stride
from pocketmq.model.names import is_internal_group


async def pipelines(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    now_ms = site.clock.now_ms()
    moving = [
        (
            group,
            stride,
            _motion(stride, now_ms, snapshot.lags.get(group)),
            snapshot.lags.get(group),
            snapshot.times.get(group),
        )
        for group, stride in sorted(snapshot.strides.items())
        if not snapshot.members.get(group) and not is_internal_group(group)
    ]
    shown = rows(moving, visit.query.get("page", ""), site.settings.rows_per_page)
    site.collector.pace.want(group for group, *_ in shown.shown)
    return {"rows": shown}


def _motion(stride: Stride, now_ms: int, lag: GroupLag | None) -> str:
    return stride.motion(now_ms, None if lag is None else lag.messages).value


PAGES: Final = [Page("/pipelines", "pipelines", pipelines, "pipelines")]
