"""Every limit, interval and switch of a name server, with RocketMQ's defaults where it has them.

RocketMQ's names for the settings of a name server: in namesrv.conf, and in the requests that tell (319) and change (318)
them. What is done with them is in `model.setting_keys`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.access import settings as access
from pocketmq.access.refusals import AuthenticationSettings
from pocketmq.access.settings import check_door
from pocketmq.errors import InvalidSetting
from pocketmq.metrics import settings as metrics
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.model.setting_keys import NUMBER, PATH, REFUSED, SWITCH, TEXT, Key, ReadKeys, SettingKeys
from pocketmq.nameserver.registered import RouteLimits
from pocketmq.nameserver.routes import BROKER_TIMEOUT_S
from pocketmq.net.address import Address
from pocketmq.net.tls import ServerTlsFiles
from pocketmq.net.unfinished import UnfinishedLimits

DEFAULT_PORT = 9876


class NameServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a name server runs. `setting_keys` has RocketMQ's names for these, and says which may change while it runs."""

    # where it listens, and what it keeps
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 means any free one."""
    open_to_the_network_without_authentication: bool = False
    """Needed to listen where others reach it without `accounts`: whoever does may register brokers and change routes."""
    kv_config_path: Path | None = None
    """The file of the KV config; None keeps it in memory only."""

    # who may talk to it
    accounts: Path | None = None
    """The file of accounts, read at the start and when it changes: every request must be signed by one of them. None: nobody is asked."""
    authentication: AuthenticationSettings = AuthenticationSettings()
    tls: ServerTlsFiles = ServerTlsFiles()

    # brokers
    broker_timeout_ms: int = int(BROKER_TIMEOUT_S * 1000)
    """A broker that is silent for longer is removed, unless it named another time when it registered."""
    scan_interval_ms: int = 5_000
    """How often silent brokers are looked for."""
    delete_topic_with_broker_registration: bool = False
    """Topics that a broker does not name any more in its whole table are removed from it."""
    return_order_topic_config_to_broker: bool = True
    """Answer a registration with the order config."""

    # answers
    order_message_enable: bool = False
    """Routes tell the order config of their topic."""
    support_acting_master: bool = False
    """In routes, the slave with the lowest id stands in for a lost master, where brokers allow it."""
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    """Answer who asks for all topics; or for those of a cluster or a unit."""
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    """With the former, no route is told for so long after the start: brokers have that time to register."""

    metrics: MetricsSettings = MetricsSettings()

    # bounds
    limits: RouteLimits = RouteLimits()
    max_connections: int = 10_000
    max_connections_per_host: int = 1_000
    """Loopback addresses are exempt."""
    unfinished: UnfinishedLimits = UnfinishedLimits()
    backlog: int = 1024
    """Connections that the system holds before they are accepted."""
    idle_s: int = 120
    """A connection is closed when neither side said anything for so long."""
    max_kv_entries: int = 10_000
    max_kv_name_chars: int = 255
    """Of a namespace, and of a key."""
    max_kv_value_chars: int = 65_536
    max_kv_waiting: int = 256
    """Changes of the KV config that wait for the disk; one more is refused for now."""

    # the end
    drain_s: float = 0.4
    """How long stopping waits for requests that are being served."""
    linger_s: float = 0.3
    """How long a closing connection may take to send what was written."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name != "port" and isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise InvalidSetting(f"name server setting {name} = {value} must be above 0")
        check_door(
            self.address,
            has_accounts=bool(self.accounts),
            is_open=self.open_to_the_network_without_authentication,
            danger="name server may register brokers and change routes",
        )
        if self.metrics.enabled:
            check_door(
                self.metrics.address,
                has_accounts=bool(self.accounts),
                is_open=self.open_to_the_network_without_authentication or self.metrics.without_authentication,
                danger="name server's metrics may read the names of all topics and groups",
            )

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class SettingsInUse:
    """The settings as they are now. `now` is replaced as a whole when one of them changes."""

    __slots__ = ("now",)

    def __init__(self, settings: NameServerSettings) -> None:
        self.now = settings


__all__ = ["CONSTANTS", "KEYS", "NOT_HONOURED", "REFUSED", "change_keys", "read_keys", "write_keys"]

KEYS: Final[dict[str, Key]] = {
    # RocketMQ's own
    "bindAddress": Key("host", TEXT),
    "listenPort": Key("port", NUMBER),
    "kvConfigPath": Key("kv_config_path", PATH),
    "scanNotActiveBrokerInterval": Key("scan_interval_ms", NUMBER),
    "serverChannelMaxIdleTimeSeconds": Key("idle_s", NUMBER),
    "serverSocketBacklog": Key("backlog", NUMBER),
    "deleteTopicWithBrokerRegistration": Key("delete_topic_with_broker_registration", SWITCH, at_run_time=True),
    "returnOrderTopicConfigToBroker": Key("return_order_topic_config_to_broker", SWITCH, at_run_time=True),
    "orderMessageEnable": Key("order_message_enable", SWITCH, at_run_time=True),
    "supportActingMaster": Key("support_acting_master", SWITCH, at_run_time=True),
    "enableAllTopicList": Key("enable_all_topic_list", SWITCH, at_run_time=True),
    "enableTopicList": Key("enable_topic_list", SWITCH, at_run_time=True),
    "needWaitForService": Key("need_wait_for_service", SWITCH, at_run_time=True),
    "waitSecondsForService": Key("wait_seconds_for_service", NUMBER, at_run_time=True),
    # who may talk to it
    **access.KEYS,
    # PocketMQ's
    **metrics.KEYS,
    "brokerTimeoutMillis": Key("broker_timeout_ms", NUMBER),
    "maxConnections": Key("max_connections", NUMBER),
    "maxConnectionsPerHost": Key("max_connections_per_host", NUMBER),
    "maxUnfinishedBytes": Key("unfinished.max_bytes", NUMBER),
    "maxUnsignedUnfinishedBytes": Key("unfinished.max_unsigned_bytes", NUMBER),
    "frameTimeoutSeconds": Key("unfinished.timeout_s", NUMBER),
    "maxBrokers": Key("limits.max_brokers", NUMBER),
    "maxTopics": Key("limits.max_topics", NUMBER),
    "maxPlaces": Key("limits.max_places", NUMBER),
    "maxKvEntries": Key("max_kv_entries", NUMBER),
    "maxKvValueChars": Key("max_kv_value_chars", NUMBER),
}

CONSTANTS: Final = access.CONSTANTS

_THREADS = "one event loop serves everything, there are no thread pools"
_BUFFERS = "the operating system and net settings decide"
NOT_HONOURED: Final[dict[str, str]] = {
    "rocketmqHome": "no installation folder is needed",
    "configStorePath": "changes while running are not written to a file",
    "configBlackList": "what may change while running is a fixed list",
    "productEnvName": "there is no cluster test mode",
    "clusterTest": "there is no cluster test mode",
    "notifyMinBrokerIdChanged": "brokers learn it from their next registration",
    "enableControllerInNamesrv": "there is no controller",
    "unRegisterBrokerQueueCapacity": "brokers are removed at once, nothing queues",
    "enableShutdownGracefully": "stopping always finishes what is being served",
    "shutdownWaitTimeSeconds": "stopping takes less than a second",
    **dict.fromkeys(
        [
            "clientRequestThreadPoolNums",
            "clientRequestThreadPoolQueueCapacity",
            "defaultThreadPoolNums",
            "defaultThreadPoolQueueCapacity",
            "serverWorkerThreads",
            "serverCallbackExecutorThreads",
            "serverSelectorThreads",
            "serverOnewaySemaphoreValue",
            "serverAsyncSemaphoreValue",
            "serverNettyWorkerGroupEnable",
            "useEpollNativeSelector",
        ],
        _THREADS,
    ),
    **dict.fromkeys(
        [
            "serverSocketSndBufSize",
            "serverSocketRcvBufSize",
            "writeBufferHighWaterMark",
            "writeBufferLowWaterMark",
            "serverPooledByteBufAllocatorEnable",
        ],
        _BUFFERS,
    ),
}
"""Keys of RocketMQ that change nothing here, and why."""

_SETTING_KEYS = SettingKeys[NameServerSettings]("name server", KEYS, without_effect=NOT_HONOURED, constants=CONSTANTS)


def read_keys(properties: Mapping[str, str], base: NameServerSettings | None = None) -> ReadKeys[NameServerSettings]:
    """`base`, or the defaults, with what the properties say."""
    return _SETTING_KEYS.read(properties, base or NameServerSettings())


change_keys = _SETTING_KEYS.change
write_keys = _SETTING_KEYS.write
