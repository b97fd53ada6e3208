"""What happens at the door of a server."""

from typing import Final

from pocketmq.metrics.families import Family, counter, gauge, labels_of
from pocketmq.net.server import ServerCounters

_CAUSES: Final = ("refused", "turned_away", "idle", "slow", "protocol_errors", "unfinished")


def door_families(counters: ServerCounters, prefix: str) -> list[Family]:
    closed = {labels_of(cause=cause): getattr(counters, cause) for cause in _CAUSES}
    return [
        gauge(f"{prefix}_connections", "Connections that are open", counters.open),
        counter(f"{prefix}_accepted_connections", "Connections that were accepted", counters.accepted),
        counter(f"{prefix}_closed_connections", "Connections that the server closed, by cause", closed),
    ]
