"""Statistics: what the broker tells about itself, how fast things go, and how far groups are."""

from collections.abc import Callable

from pocketmq.broker.progress import Progress
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.stats.runtime_info import RuntimeInfo
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest
from pocketmq.net.request import Handler, Reply, Request
from pocketmq.protocol.api.brokers import GetBrokerConsumeStats, ViewBrokerStats
from pocketmq.protocol.api.groups import GetConsumeStats
from pocketmq.protocol.api.offsets import QueryConsumeTimeSpan
from pocketmq.protocol.bodies.key_values import KVTable
from pocketmq.protocol.fields import NoFields
from pocketmq.protocol.java_json import write_body


class StatisticsHandlers:
    """Requests about numbers. `address` is where clients find the broker, known once it listens."""

    def __init__(
        self, info: RuntimeInfo, stats: BrokerStats, progress: Progress, clock: Clock, address: Callable[[], str]
    ) -> None:
        self._info = info
        self._stats = stats
        self._progress = progress
        self._clock = clock
        self._address = address

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view,
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
        }

    def runtime_info(self, request: Request[NoFields]) -> Reply:
        return Reply(body=write_body(KVTable(self._info.table())))

    def view(self, request: Request[ViewBrokerStats]) -> Reply:
        name, key = request.header.stats_name, request.header.stats_key
        found = self._stats.view(name, key)
        if found is None:
            raise ImpossibleRequest(f"The stats <{name}> <{key}> not exist")
        return Reply(body=write_body(found))

    async def of_group(self, request: Request[GetConsumeStats]) -> Reply:
        header = request.header
        topics = [header.topic] if header.topic else [topic for topic in (header.topic_list or "").split(";") if topic]
        return Reply(body=write_body(await self._progress.of_group(header.consumer_group, topics)))

    async def of_all_groups(self, request: Request[GetBrokerConsumeStats]) -> Reply:
        told = await self._progress.of_all(self._address(), ordered_only=request.header.is_order)
        return Reply(body=write_body(told))

    async def time_spans(self, request: Request[QueryConsumeTimeSpan]) -> Reply:
        header = request.header
        return Reply(body=write_body(await self._progress.time_spans(header.group, header.topic, self._clock.now_ms())))
