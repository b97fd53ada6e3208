"""Settings: tell them, and change the few that may change while running."""

import logging
from collections.abc import Callable

from pocketmq.broker.setting_keys import change_keys, write_keys
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import NoPermission
from pocketmq.net.request import Handler, Reply, Request
from pocketmq.protocol.api.brokers import BrokerConfigReply
from pocketmq.protocol.bodies.data_version import DataVersion
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.fields import NoFields
from pocketmq.protocol.java_json import write_body

log = logging.getLogger("pocketmq.broker")


class SettingHandlers:
    """Requests about settings. `apply` is called with the settings when some changed."""

    def __init__(self, settings: SettingsInUse, clock: Clock, apply: Callable[[BrokerSettings], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._apply = apply
        self._version = DataVersion(timestamp=clock.now_ms())

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, request: Request[NoFields]) -> Reply:
        """All of what the body says, or none of it."""
        properties = read_properties(request.command.body)
        before = self._settings.now
        try:
            after = change_keys(before, properties)
        except NoPermission as refusal:
            log.warning("%s may not change settings: %r", request.peer.address, refusal.remark)
            raise
        if properties:
            self._settings.now = after
            self._version = self._version.next_version(self._clock.now_ms())
        for name, text in properties.items():
            log.info("%s set %s to %r", request.peer.address, name, text)
        if after != before:
            self._apply(after)
        return Reply()

    def get(self, request: Request[NoFields]) -> Reply:
        version = write_body(self._version).decode()
        return Reply(BrokerConfigReply(version), write_properties(write_keys(self._settings.now)))
