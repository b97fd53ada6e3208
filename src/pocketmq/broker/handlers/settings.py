"""Settings: administrators query them, and change those that may change at run time."""

import logging
from collections.abc import Callable

from pocketmq.broker.setting_keys import change_keys, write_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode
from pocketmq.errors import NoPermission
from pocketmq.net import Handler, PlainRequest, Reply
from pocketmq.protocol.api.administration import BrokerConfigReply
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.topics import DataVersion

log = logging.getLogger("pocketmq.broker")


class SettingHandlers:
    """Requests about settings. `apply` is called with changed settings."""

    def __init__(self, state: BrokerState, apply: Callable[[BrokerSettings], None]) -> None:
        self._state = state
        self._apply = apply
        self._version = DataVersion(timestamp=state.clock.now_ms())

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, request: PlainRequest) -> Reply:
        """Apply all changes, or none."""
        properties = read_properties(request.command.body)
        before = self._state.settings.now
        try:
            after = change_keys(before, properties)
        except NoPermission as refusal:
            log.warning("Rejected a change of settings by %s: %r", request.peer.address, refusal.remark)
            raise
        if properties:
            self._state.settings.now = after
            self._version = self._version.next_version(self._state.clock.now_ms())
        for name, text in properties.items():
            log.info("Changed setting %s to %r, as requested by %s", name, text, request.peer.address)
        if after != before:
            self._apply(after)
        return Reply()

    def get(self, request: PlainRequest) -> Reply:
        version = self._version.encode().decode()
        return Reply(BrokerConfigReply(version), write_properties(write_keys(self._state.settings.now)))
