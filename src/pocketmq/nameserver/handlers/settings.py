"""Settings and the KV config: query and change them."""

import logging

from pocketmq.codes import RequestCode
from pocketmq.errors import NoPermission, NotFound
from pocketmq.nameserver.kv_config import KvConfig
from pocketmq.nameserver.settings import SettingsInUse, change_keys, write_keys
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api.routes import DeleteKvConfig, GetKvConfig, GetKvList, KvConfigReply, PutKvConfig
from pocketmq.protocol.bodies.body import KVTable
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.fields import NoFields
from pocketmq.protocol.java_json import write_body

log = logging.getLogger("pocketmq.nameserver")


class SettingHandlers:
    def __init__(self, settings: SettingsInUse) -> None:
        self._settings = settings

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
        }

    def update(self, request: Request[NoFields]) -> Reply:
        properties = read_properties(request.command.body)
        try:
            self._settings.now = change_keys(self._settings.now, properties)
        except NoPermission as refusal:
            log.warning("Rejected a change of settings by %s: %r", request.peer.address, refusal.remark)
            raise
        for name, text in properties.items():
            log.info("Changed setting %s to %r, as requested by %s", name, text, request.peer.address)
        return Reply()

    def get(self, request: Request[NoFields]) -> Reply:
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

    async def put(self, request: Request[PutKvConfig]) -> Reply:
        header = request.header
        await self._kv_config.put(header.namespace, header.key, header.value)
        log.info("Set key %r in namespace %r, as requested by %s", header.key, header.namespace, request.peer.address)
        return Reply()

    async def delete(self, request: Request[DeleteKvConfig]) -> Reply:
        header = request.header
        await self._kv_config.delete(header.namespace, header.key)
        log.info(
            "Deleted key %r from namespace %r, as requested by %s", header.key, header.namespace, request.peer.address
        )
        return Reply()

    def get(self, request: Request[GetKvConfig]) -> Reply:
        namespace, key = request.header.namespace, request.header.key
        value = self._kv_config.get(namespace, key)
        if value is None:
            raise NotFound(f"No config item, Namespace: {namespace} Key: {key}")
        return Reply(KvConfigReply(value))

    def list(self, request: Request[GetKvList]) -> Reply:
        namespace = request.header.namespace
        table = self._kv_config.table(namespace)
        if table is None:
            raise NotFound(f"No config item, Namespace: {namespace}")
        return Reply(body=write_body(KVTable(table)))
