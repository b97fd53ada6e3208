"""Settings: tell them, and change the few that may change while running."""

import logging

from pocketmq.codes import RequestCode
from pocketmq.errors import NoPermission
from pocketmq.nameserver.setting_keys import change_keys, write_keys
from pocketmq.nameserver.settings import SettingsInUse
from pocketmq.net.request import Handler, Reply, Request
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.fields import NoFields

log = logging.getLogger("pocketmq.nameserver")


class SettingHandlers:
    """Requests about settings."""

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
            log.warning("%s may not change settings: %r", request.peer.address, refusal.remark)
            raise
        for name, text in properties.items():
            log.info("%s set %s to %r", request.peer.address, name, text)
        return Reply()

    def get(self, request: Request[NoFields]) -> Reply:
        return Reply(body=write_properties(write_keys(self._settings.now)))
