"""A picture beside the charts: what somebody drew about the cluster, such as the demo its revenue, shown once the file is there."""

from typing import Final

from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.site import Site, Visit
from pocketmq.errors import NotFound
from pocketmq.files import DiskFiles

MAX_PICTURE_BYTES: Final = 8 * 1024 * 1024
PNG: Final = b"\x89PNG\r\n\x1a\n"


def picture_name(settings: ConsoleSettings) -> str | None:
    """How the picture is called; None while there is none, or where it is too large to be shown."""
    if settings.picture is None:
        return None
    status = DiskFiles().status(settings.picture)
    return settings.picture.stem if status is not None and status.size <= MAX_PICTURE_BYTES else None


async def picture(site: Site, visit: Visit) -> bytes:
    """Its bytes; NotFound for a file that is no PNG."""
    path = site.settings.picture
    if path is None or picture_name(site.settings) is None:
        raise NotFound("there is no picture")
    body = DiskFiles().read(path)
    if not body.startswith(PNG):
        raise NotFound(f"{path.name} is no PNG")
    return body


PICTURES: Final = {"/picture": picture}
