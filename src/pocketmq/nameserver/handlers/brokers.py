"""Brokers: registrations, heartbeats and queries."""

import logging
from zlib import crc32

from msgspec.structs import replace

from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import ServerFailed
from pocketmq.nameserver.kv_config import ORDER_NAMESPACE, KvConfig
from pocketmq.nameserver.route_tables import Registration
from pocketmq.nameserver.routes import RouteTable
from pocketmq.nameserver.settings import SettingsInUse
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api import Envelope
from pocketmq.protocol.api.routes import (
    AddWritePerm,
    AddWritePermReply,
    BrokerHeartbeat,
    DataVersionReply,
    GetBrokerMemberGroup,
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
    WipeWritePerm,
    WipeWritePermReply,
)
from pocketmq.protocol.bodies.body import DataVersion, KVTable
from pocketmq.protocol.bodies.routes import BrokerMemberGroup, read_registration
from pocketmq.protocol.fields import NoFields, read_fields
from pocketmq.protocol.java_json import read_body, write_body

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

    def register(self, request: Request[RegisterBroker]) -> Reply:
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
        header = RegisterBrokerReply(topics_rejected=done.rejected or None)
        if done.master:
            header = replace(header, ha_server_addr=done.master.ha_address, master_addr=done.master.address)
        return Reply(header, b"" if orders is None else write_body(KVTable(orders)), remark=remark)

    def unregister(self, request: Request[UnregisterBroker]) -> Reply:
        header = request.header
        member = self._routes.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        if member is not None:
            log.info("Unregistered %s", member)
        return Reply()

    def heartbeat(self, request: Request[BrokerHeartbeat]) -> Reply:
        self._routes.touch(request.header.cluster_name, request.header.broker_addr, self._clock.monotonic())
        return Reply()

    def data_version(self, request: Request[QueryDataVersion]) -> Reply:
        cluster, address = request.header.cluster_name, request.header.broker_addr
        theirs = read_body(DataVersion, request.command.body)
        self._routes.touch(cluster, address, self._clock.monotonic())
        ours = self._routes.data_version(cluster, address)
        return Reply(DataVersionReply(ours != theirs), b"" if ours is None else write_body(ours))

    def members(self, request: Request[GetBrokerMemberGroup]) -> Reply:
        members = self._routes.members(request.header.cluster_name, request.header.broker_name)
        return Reply(body=write_body(BrokerMemberGroup(members)))

    def cluster_info(self, request: Request[NoFields]) -> Reply:
        return Reply(body=write_body(self._routes.cluster_info()))

    def wipe_write_perm(self, request: Request[WipeWritePerm]) -> Reply:
        count = self._routes.wipe_write_perm(request.header.broker_name)
        log.info(
            "Removed the write permission of %d topics of broker %r, as requested by %s",
            count,
            request.header.broker_name,
            request.peer.address,
        )
        return Reply(WipeWritePermReply(count))

    def add_write_perm(self, request: Request[AddWritePerm]) -> Reply:
        count = self._routes.add_write_perm(request.header.broker_name)
        log.info(
            "Set the write permission of %d topics of broker %r, as requested by %s",
            count,
            request.header.broker_name,
            request.peer.address,
        )
        return Reply(AddWritePermReply(count))

    def _log_refusal(self, text: str) -> None:
        """A rejected broker registers again every 30 s, with the same error: log it once."""
        if text != self._last_refusal:
            self._last_refusal = text
            log.warning("%s", text)


def _registration(request: Request[RegisterBroker]) -> Registration:
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
        zone=read_fields(Envelope, command.ext).zone_name,
    )
