"""Handlers of requests to a name server, one class per family.

BrokerHandlers     registrations, heartbeats and queries of brokers
TopicHandlers      routes and topic lists
SettingHandlers    settings: query and change them
KvConfigHandlers   the KV config
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

import msgspec
from msgspec.structs import replace

from pocketmq.clock import Clock
from pocketmq.codes import RequestCode, TopicFlag, Version
from pocketmq.errors import NoPermission, NotFound, ServerFailed, TopicNotFound
from pocketmq.nameserver.kv_config import ORDER_NAMESPACE, KvConfig
from pocketmq.nameserver.route_tables import Registration
from pocketmq.nameserver.routes import RouteTable, in_zone
from pocketmq.nameserver.settings import SettingsInUse, change_keys, write_keys
from pocketmq.net import Handler, PlainRequest, Reply, Request
from pocketmq.protocol.api import administration
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.registration import read_registration
from pocketmq.protocol.bodies.topics import BrokerMemberGroup, DataVersion, KVTable, TopicList, TopicRouteData

log = logging.getLogger("pocketmq.nameserver")

_CRC_MASK = 0x7FFF_FFFF


class BrokerHandlers:
    def __init__(self, routes: RouteTable, kv_config: KvConfig, settings: SettingsInUse, clock: Clock) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self._settings = settings
        self._clock = clock
        self._last_refusal = ""

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.members,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }

    def register(self, request: Request[administration.RegisterBroker]) -> Reply:
        registration = _registration(request)
        settings = self._settings.now
        try:
            done = self._routes.register(
                registration, self._clock.monotonic(), drop_absent=settings.delete_topic_with_broker_registration
            )
        except ServerFailed as refusal:
            self._log_refusal(f"{registration.broker_name!r} at {registration.address!r}: {refusal.remark}")
            raise
        if done.is_new:
            log.info("Registered %s, connected from %s", done.member, request.peer.address)
        if done.rival is not None:
            self._log_refusal(
                f"{registration.broker_name!r} at {registration.address!r} is ignored: {done.rival} has a newer state"
            )
        remark = None
        if done.rejected:
            remark = f"{done.rejected} topics have no route, because {done.why}"
            self._log_refusal(f"{registration.broker_name!r} at {registration.address!r}: {remark}")
        orders = self._kv_config.table(ORDER_NAMESPACE) if settings.return_order_topic_config_to_broker else None
        header = administration.RegisterBrokerReply(topics_rejected=done.rejected or None)
        if done.master:
            header = replace(header, ha_server_addr=done.master.ha_address, master_addr=done.master.address)
        return Reply(header, b"" if orders is None else KVTable(orders).encode(), remark=remark)

    def unregister(self, request: Request[administration.ForBroker]) -> Reply:
        header = request.header
        member = self._routes.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        if member is not None:
            log.info("Unregistered %s", member)
        return Reply()

    def heartbeat(self, request: Request[administration.BrokerHeartbeat]) -> Reply:
        self._routes.touch(request.header.cluster_name, request.header.broker_addr, self._clock.monotonic())
        return Reply()

    def data_version(self, request: Request[administration.ForBroker]) -> Reply:
        cluster, address = request.header.cluster_name, request.header.broker_addr
        theirs = DataVersion.decode(request.command.body)
        self._routes.touch(cluster, address, self._clock.monotonic())
        ours = self._routes.data_version(cluster, address)
        return Reply(administration.DataVersionReply(ours != theirs), b"" if ours is None else ours.encode())

    def members(self, request: Request[administration.GetBrokerMemberGroup]) -> Reply:
        members = self._routes.members(request.header.cluster_name, request.header.broker_name)
        return Reply(body=BrokerMemberGroup(members).encode())

    def cluster_info(self, request: PlainRequest) -> Reply:
        return Reply(body=self._routes.cluster_info().encode())

    def wipe_write_perm(self, request: Request[administration.ForBrokerName]) -> Reply:
        count = self._routes.wipe_write_perm(request.header.broker_name)
        log.info(
            "Removed the write permission of %d topics of broker %r, as requested by %s",
            count,
            request.header.broker_name,
            request.peer.address,
        )
        return Reply(administration.WipeWritePermReply(count))

    def add_write_perm(self, request: Request[administration.ForBrokerName]) -> Reply:
        count = self._routes.add_write_perm(request.header.broker_name)
        log.info(
            "Set the write permission of %d topics of broker %r, as requested by %s",
            count,
            request.header.broker_name,
            request.peer.address,
        )
        return Reply(administration.AddWritePermReply(count))

    def _log_refusal(self, text: str) -> None:
        """A rejected broker registers again every 30 s, with the same error: log it once."""
        if text != self._last_refusal:
            self._last_refusal = text
            log.warning("%s", text)


def _registration(request: Request[administration.RegisterBroker]) -> Registration:
    """The registration in a request; the peer represents its connection."""
    header, command = request.header, request.command
    if header.body_crc32 and header.body_crc32 != crc32(command.body) & _CRC_MASK:
        raise ServerFailed("crc32 not match")
    timeout_ms = header.heartbeat_timeout_millis
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        body=read_registration(command.body, compressed=bool(header.compressed), version=command.version),
        connection=request.peer,
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        acting_master=header.enable_acting_master,
        zone=administration.Zone.decode(command.ext).zone_name,
    )


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

    def route(self, request: Request[administration.GetRoute]) -> Reply:
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
        return Reply(body=_near(route, request).encode(strict=strict))

    def register(self, request: Request[administration.ForTopic]) -> Reply:
        topic = request.header.topic
        registration = TopicRouteData.decode(body) if (body := request.command.body) else None
        unknown = self._routes.register_topic(topic, registration.queue_datas) if registration else None
        if unknown is not None:
            # RocketMQ answers success as well, and its tools expect it.
            log.warning("Ignored the registration of topic %r: broker %r is unknown", topic, unknown)
        return Reply()

    def delete(self, request: Request[administration.DeleteTopicRoute]) -> Reply:
        topic, cluster = request.header.topic, request.header.cluster_name
        self._routes.delete_topic(topic, cluster)
        log.info("Deleted topic %r in cluster %r, as requested by %s", topic, cluster or "*", request.peer.address)
        return Reply()

    def all_topics(self, request: PlainRequest) -> Reply:
        _require(self._settings.now.enable_all_topic_list)
        return _list(self._routes.topics.names())

    def of_cluster(self, request: Request[administration.GetTopicsByCluster]) -> Reply:
        _require(self._settings.now.enable_topic_list)
        return _list(self._routes.topics_of_cluster(request.header.cluster))

    def of_unit(self, request: PlainRequest) -> Reply:
        _require(self._settings.now.enable_topic_list)
        return _list(self._routes.topics.with_flag(_UNIT_LISTS[RequestCode(request.command.code)]))

    def system_topics(self, request: PlainRequest) -> Reply:
        return Reply(body=self._routes.system_topics().encode())


def _near(route: TopicRouteData, request: Request[administration.GetRoute]) -> TopicRouteData:
    """The route, limited to the client's zone if it requests that."""
    envelope = administration.Zone.decode(request.command.ext)
    zone = (envelope.zone_mode or "").lower() == "true" and envelope.zone_name
    return in_zone(route, zone) if zone else route


def _require(enabled: bool) -> None:
    if not enabled:
        raise ServerFailed("disable")


def _list(topics: Iterable[str]) -> Reply:
    return Reply(body=TopicList(tuple(topics)).encode())


class SettingHandlers:
    def __init__(self, settings: SettingsInUse) -> None:
        self._settings = settings

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
        }

    def update(self, request: PlainRequest) -> Reply:
        properties = read_properties(request.command.body)
        try:
            self._settings.now = change_keys(self._settings.now, properties)
        except NoPermission as refusal:
            log.warning("Rejected a change of settings by %s: %r", request.peer.address, refusal.remark)
            raise
        for name, text in properties.items():
            log.info("Changed setting %s to %r, as requested by %s", name, text, request.peer.address)
        return Reply()

    def get(self, request: PlainRequest) -> Reply:
        return Reply(body=write_properties(write_keys(self._settings.now)))


class KvConfigHandlers:
    def __init__(self, kv_config: KvConfig) -> None:
        self._kv_config = kv_config

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list,
        }

    async def put(self, request: Request[administration.PutKvConfig]) -> Reply:
        header = request.header
        await self._kv_config.put(header.namespace, header.key, header.value)
        log.info("Set key %r in namespace %r, as requested by %s", header.key, header.namespace, request.peer.address)
        return Reply()

    async def delete(self, request: Request[administration.KvKey]) -> Reply:
        header = request.header
        await self._kv_config.delete(header.namespace, header.key)
        log.info(
            "Deleted key %r from namespace %r, as requested by %s", header.key, header.namespace, request.peer.address
        )
        return Reply()

    def get(self, request: Request[administration.KvKey]) -> Reply:
        namespace, key = request.header.namespace, request.header.key
        value = self._kv_config.get(namespace, key)
        if value is None:
            raise NotFound(f"No config item, Namespace: {namespace} Key: {key}")
        return Reply(administration.KvConfigReply(value))

    def list(self, request: Request[administration.ForNamespace]) -> Reply:
        namespace = request.header.namespace
        table = self._kv_config.table(namespace)
        if table is None:
            raise NotFound(f"No config item, Namespace: {namespace}")
        return Reply(body=KVTable(table).encode())
