"""The numbers of a name server for Prometheus."""

from collections.abc import Callable

from pocketmq.files import Files
from pocketmq.metrics.door import door_families
from pocketmq.metrics.families import Family, counter, gauge, labels_of, with_labels
from pocketmq.metrics.process import process_families
from pocketmq.nameserver.routes import RouteTable
from pocketmq.net.address import Address
from pocketmq.net.server import ServerCounters


class NameServerMetrics:
    """Reads the routes. `is_alone` when nobody else tells about the process on the same page."""

    def __init__(
        self,
        routes: RouteTable,
        counters: Callable[[], ServerCounters],
        address: Callable[[], Address],
        files: Files,
        *,
        is_alone: bool = True,
    ) -> None:
        self._routes = routes
        self._counters = counters
        self._address = address
        self._files = files
        self._is_alone = is_alone

    async def look(self) -> list[Family]:
        """What `metrics.page` tells."""
        clusters = self._routes.cluster_info().cluster_addr_table
        brokers = {labels_of(cluster=cluster): len(names) for cluster, names in clusters.items()}
        families = [
            gauge("rocketmq_nameserver_brokers", "Brokers that are registered, by cluster", brokers),
            gauge("rocketmq_nameserver_topics", "Topics that have a route", self._routes.topic_count),
            counter(
                "rocketmq_nameserver_rejected_topics",
                "Topics that brokers told and that got no route, because there were too many",
                self._routes.rejected_topics,
            ),
            *door_families(self._counters(), "rocketmq_nameserver"),
        ]
        own = labels_of(node_type="nameserver", node_id=str(self._address()))
        return with_labels([*families, *(process_families(self._files) if self._is_alone else [])], own)
