"""Topics: routes and topic lists."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from pocketmq.clock import Clock
from pocketmq.codes import RequestCode, Version
from pocketmq.errors import ServerFailed, TopicNotFound
from pocketmq.model.flags import TopicFlag
from pocketmq.nameserver.kv_config import ORDER_NAMESPACE, KvConfig
from pocketmq.nameserver.routes import RouteTable, in_zone
from pocketmq.nameserver.settings import SettingsInUse
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api import Envelope
from pocketmq.protocol.api.routes import DeleteTopicRoute, GetRoute, GetTopicsByCluster, RegisterTopic
from pocketmq.protocol.bodies.routes import TopicRouteData
from pocketmq.protocol.bodies.topics import TopicList
from pocketmq.protocol.fields import NoFields, read_fields
from pocketmq.protocol.java_json import read_optional_body, write_body

log = logging.getLogger("pocketmq.nameserver")

_FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""RocketMQ's words, which clients show."""

_UNIT_LISTS: Final[dict[RequestCode, Callable[[int], bool]]] = {
    RequestCode.GET_UNIT_TOPIC_LIST: lambda flag: bool(flag & TopicFlag.UNIT),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda flag: bool(flag & TopicFlag.UNIT_SUB),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda flag: (
        flag & (TopicFlag.UNIT | TopicFlag.UNIT_SUB) == TopicFlag.UNIT_SUB
    ),
}
"""Filters of the unit lists, by topicSysFlag."""


class TopicHandlers:
    def __init__(self, routes: RouteTable, kv_config: KvConfig, settings: SettingsInUse, clock: Clock) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self._settings = settings
        self._clock = clock
        self._started = clock.monotonic()

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            **dict.fromkeys(_UNIT_LISTS, self.of_unit),
        }

    def route(self, request: Request[GetRoute]) -> Reply:
        settings = self._settings.now
        if (
            settings.need_wait_for_service
            and self._clock.monotonic() - self._started < settings.wait_seconds_for_service
        ):
            raise ServerFailed("name server not ready")
        topic = request.header.topic
        route = self._routes.route(topic, acting_master=settings.support_acting_master)
        if route is None:
            raise TopicNotFound(f"No topic route info in name server for the topic: {topic}\n{_FAQ}")
        if settings.order_message_enable:
            order = self._kv_config.get(ORDER_NAMESPACE, topic)
            route = msgspec.structs.replace(route, order_topic_conf=order)
        strict = request.command.version >= Version.V4_9_4 or bool(request.header.accept_standard_json_only)
        return Reply(body=write_body(_near(route, request), strict=strict))

    def register(self, request: Request[RegisterTopic]) -> Reply:
        topic = request.header.topic
        registration = read_optional_body(TopicRouteData, request.command.body)
        unknown = self._routes.register_topic(topic, registration.queue_datas) if registration else None
        if unknown is not None:
            # RocketMQ answers success as well, and its tools expect it.
            log.warning("Ignored the registration of topic %r: broker %r is unknown", topic, unknown)
        return Reply()

    def delete(self, request: Request[DeleteTopicRoute]) -> Reply:
        topic, cluster = request.header.topic, request.header.cluster_name
        self._routes.delete_topic(topic, cluster)
        log.info("Deleted topic %r in cluster %r, as requested by %s", topic, cluster or "*", request.peer.address)
        return Reply()

    def all_topics(self, request: Request[NoFields]) -> Reply:
        _require(self._settings.now.enable_all_topic_list)
        return _list(self._routes.topics.names())

    def of_cluster(self, request: Request[GetTopicsByCluster]) -> Reply:
        _require(self._settings.now.enable_topic_list)
        return _list(self._routes.topics_of_cluster(request.header.cluster))

    def of_unit(self, request: Request[NoFields]) -> Reply:
        _require(self._settings.now.enable_topic_list)
        return _list(self._routes.topics.with_flag(_UNIT_LISTS[RequestCode(request.command.code)]))

    def system_topics(self, request: Request[NoFields]) -> Reply:
        return Reply(body=write_body(self._routes.system_topics()))


def _near(route: TopicRouteData, request: Request[GetRoute]) -> TopicRouteData:
    """The route, limited to the client's zone if it requests that."""
    envelope = read_fields(Envelope, request.command.ext)
    zone = (envelope.zone_mode or "").lower() == "true" and envelope.zone_name
    return in_zone(route, zone) if zone else route


def _require(enabled: bool) -> None:
    if not enabled:
        raise ServerFailed("disable")


def _list(topics: Iterable[str]) -> Reply:
    return Reply(body=write_body(TopicList(tuple(topics))))
