"""Clients: who is connected now, as consumers of which groups and as producers."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pocketmq.client.settings import DEFAULT_PRODUCER_GROUP
from pocketmq.codes import Version
from pocketmq.console.paging import rows
from pocketmq.console.site import Page, Site, Visit
from pocketmq.console.snapshot import Snapshot
from pocketmq.model.names import is_internal_group


class ShownClient(msgspec.Struct, frozen=True, kw_only=True):
    """One client in one group."""

    client_id: str
    address: str
    language: str
    version: str
    kind: str
    group: str

    @property
    def is_internal(self) -> bool:
        """Programs use it beside their own clients. Producers of the default group are somebody's own."""
        return self.group != DEFAULT_PRODUCER_GROUP and is_internal_group(self.group)


async def clients(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    needle = visit.query.get("q", "").strip().lower()
    show_all = visit.query.get("all") == "1"
    shown = [one for one in connected(snapshot) if show_all or not one.is_internal]
    wanted = [one for one in shown if needle in f"{one.client_id} {one.group} {one.address}".lower()]
    return {
        "rows": rows(wanted, visit.query.get("page", ""), site.settings.rows_per_page),
        "show_all": show_all,
        "knows_producers": snapshot.producers is not None,
        "is_seen": "members" in snapshot.seen_ms,
    }


def connected(snapshot: Snapshot) -> list[ShownClient]:
    """Consumers first, then producers, each by group."""
    found = [
        ShownClient(
            client_id=member.client_id,
            address=member.address or "",
            language=member.language or "",
            version=version_name(member.version),
            kind="consumer",
            group=group,
        )
        for group, members in sorted(snapshot.members.items())
        for member in members
    ]
    found += [
        ShownClient(
            client_id=producer.client_id,
            address=(producer.remote_ip or "").lstrip("/"),
            language=producer.language or "",
            version=version_name(producer.version),
            kind="producer",
            group=group,
        )
        for group, producers in sorted((snapshot.producers or {}).items())
        for producer in producers
    ]
    return found


def version_name(number: int) -> str:
    """As RocketMQ's releases are called; a number that we do not know stays one."""
    try:
        return Version(number).name.removeprefix("V").replace("_", ".")
    except ValueError:
        return str(number)


PAGES: Final = [Page("/clients", "clients", clients, "clients")]
