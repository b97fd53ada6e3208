"""Overview: is the cluster well? Rates, lag, disk, refusals with their cause, and the last hour as charts.

A picture beside the charts: what somebody drew about the cluster, such as the demo its revenue, shown once the file is there.
"""

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
    """How the picture is called; None while there is none, or where it is too large to be shown."""
    if settings.picture is None:
        return None
    status = DiskFiles().status(settings.picture)
    return settings.picture.stem if status is not None and status.size <= MAX_PICTURE_BYTES else None


async def picture(site: Site, visit: Visit) -> bytes:
    """Its bytes; NotFound for a file that is not an SVG."""
    path = site.settings.picture
    if path is None or picture_name(site.settings) is None:
        raise NotFound("there is no picture")
    body = DiskFiles().read(path)
    if not body.startswith(SVG):
        raise NotFound(f"{path.name} is not an SVG")
    return body


PICTURES: Final = {"/picture": picture}


FURTHEST_BEHIND: Final = 5
REFUSALS: Final = {
    "Unsigned": "not signed by any account",
    "UnknownAccessKey": "signed with an access key that nobody has",
    "WrongSource": "from an address that the account may not come from",
    "WrongSignature": "signed with a wrong secret",
    "NoRight": "no right to the topic or group",
    "SendTimeout": "sends that waited too long: the broker is busy",
    "SendLogBusy": "sends while the disk could not take more",
    "SendRejected": "sends turned away at once: the disk could not take more for a while",
    "SendOverload": "sends beyond what may wait",
    "PullTimeout": "pulls that waited too long",
    "PullOverload": "pulls beyond what may wait",
}


async def overview(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot, samples = site.collector.snapshot, site.collector.ring.samples()
    newest = samples[-1] if samples else None
    return {
        "newest": newest,
        "picture": picture_name(site.settings),
        "charts": [
            ("Messages a second", ["in", "out"], _rates_chart(samples)),
            ("Lag of all groups", ["messages"], _lag_chart(samples)),
            ("Disk", ["used"], _disk_chart(samples)),
            ("Refused a second", ["requests"], _refusals_chart(samples)),
        ],
        "behind": [
            (group, many, snapshot.times.get(group)) for group, many in islice(snapshot.behind.items(), FURTHEST_BEHIND)
        ],
        "refusals": [(name, REFUSALS.get(name, name), many) for name, many in snapshot.refusals.items()],
        "letters": sum(snapshot.letters.values()) if "letters" in snapshot.seen_ms else None,
        "topic_count": len(snapshot.ordinary) if "tables" in snapshot.seen_ms else None,
    }


def _rates_chart(samples: Sequence[Sample]) -> Markup:
    lines = [Line("in", lambda sample: sample.put_per_s), Line("out", lambda sample: sample.got_per_s)]
    return chart("Messages a second", samples, lines, short_number)


def _lag_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Lag in messages", samples, [Line("lag", lambda sample: sample.lag)], short_number)


def _disk_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Disk used", samples, [Line("used", lambda sample: sample.disk_used)], percent)


def _refusals_chart(samples: Sequence[Sample]) -> Markup:
    return chart("Refused a second", samples, [Line("refused", lambda sample: sample.refused_per_s)], short_number)


PAGES: Final = [Page("/", "overview", overview, "overview")]
