"""The overview: rates, lag, disk, rejected requests by cause, charts of the last hour, and an optional picture."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from markupsafe import Markup

from pocketmq.console.charts import Line, chart
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.site import Page, Site, Visit
from pocketmq.console.snapshot import Sample
from pocketmq.errors import NotFound
from pocketmq.files import DiskFiles
from pocketmq.model.human import percent, short_number

MAX_PICTURE_BYTES: Final = 8 * 1024 * 1024
SVG: Final = b"<svg "


def picture_name(settings: ConsoleSettings) -> str | None:
    """The title of the picture; None if the file does not exist or is too large."""
    if settings.picture is None:
        return None
    status = DiskFiles().status(settings.picture)
    return settings.picture.stem if status is not None and status.size <= MAX_PICTURE_BYTES else None


async def picture(site: Site, visit: Visit) -> bytes:
    """The SVG; NotFound if the file is not an SVG."""
    path = site.settings.picture
    if path is None or picture_name(site.settings) is None:
        raise NotFound("no picture is configured, or the file does not exist yet")
    body = DiskFiles().read(path)
    if not body.startswith(SVG):
        raise NotFound(f"{path.name} is not an SVG")
    return body


PICTURES: Final = {"/picture": picture}


LARGEST_LAGS: Final = 5
REJECTIONS: Final = {
    "Unsigned": "unsigned request",
    "UnknownAccessKey": "unknown access key",
    "WrongSource": "address not allowed for this account",
    "WrongSignature": "wrong signature",
    "NoRight": "no permission for the topic or group",
    "SendTimeout": "sends that waited too long (broker busy)",
    "SendLogBusy": "sends during a slow disk write (page cache busy)",
    "SendRejected": "sends during a long disk stall (rejected at once)",
    "SendOverload": "sends beyond the queue capacity",
    "PullTimeout": "pulls that waited too long",
    "PullOverload": "pulls beyond the queue capacity",
}


async def overview(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot, samples = site.collector.snapshot, site.collector.ring.samples()
    newest = samples[-1] if samples else None
    return {
        "newest": newest,
        "picture": picture_name(site.settings),
        "charts": [
            ("Messages per second", ["in", "out"], _rates_chart(samples)),
            ("Lag of all groups", ["messages"], _lag_chart(samples)),
            ("Disk", ["used"], _disk_chart(samples)),
            ("Rejected requests per second", ["requests"], _rejections_chart(samples)),
        ],
        "lagging": [
            (group, many, snapshot.times.get(group)) for group, many in islice(snapshot.lagging.items(), LARGEST_LAGS)
        ],
        "rejections": [(name, REJECTIONS.get(name, name), many) for name, many in snapshot.rejections.items()],
        "letters": sum(snapshot.letters.values()) if "letters" in snapshot.updated_ms else None,
        "topic_count": len(snapshot.user_topics) if "tables" in snapshot.updated_ms else None,
    }


def _rates_chart(samples: Sequence[Sample]) -> Markup:
    lines = [Line("in", lambda sample: sample.put_per_s), Line("out", lambda sample: sample.got_per_s)]
    return chart("Messages per second", samples, lines, short_number)


def _lag_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Lag in messages", samples, [Line("lag", lambda sample: sample.lag)], short_number)


def _disk_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Disk used", samples, [Line("used", lambda sample: sample.disk_used)], percent)


def _rejections_chart(samples: Sequence[Sample]) -> Markup:
    return chart(
        "Rejected requests per second", samples, [Line("rejected", lambda sample: sample.rejected_per_s)], short_number
    )


PAGES: Final = [Page("/", "overview", overview, "overview")]
