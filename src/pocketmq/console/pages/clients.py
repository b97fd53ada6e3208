"""Clients: who is connected now, as consumers of which groups and as producers."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pocketmq.codes import Version
from pocketmq.console.paging import rows
from pocketmq.console.site import Page, Site, Visit
from pocketmq.console.snapshot import Snapshot


class ShownClient(msgspec.Struct, frozen=True, kw_only=True):
    """One client in one group."""

    client_id: str
    address: str
    language: str
    version: str
    kind: str
    group: str


async def clients(site: Site, visit: Visit) -> Mapping[str, Any]:
    snapshot = site.collector.snapshot
    needle = visit.query.get("q", "").strip().lower()
    wanted = [one for one in connected(snapshot) if needle in f"{one.client_id} {one.group} {one.address}".lower()]
    return {
        "rows": rows(wanted, visit.query.get("page", ""), site.settings.rows_per_page),
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
