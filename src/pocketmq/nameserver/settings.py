"""Every limit, interval and switch of a name server, with RocketMQ's defaults where it has them.

Also RocketMQ's names for them: in namesrv.conf, and in the requests that query (319) and change (318) them.
`model.setting_keys` reads and writes them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.access import settings as access
from pocketmq.access.settings import AuthenticationSettings, check_listen_addresses
from pocketmq.metrics import page as metrics
from pocketmq.metrics.page import MetricsSettings
from pocketmq.model.setting_keys import (
    NUMBER,
    PATH,
    REFUSED,
    SWITCH,
    TEXT,
    InUse,
    Key,
    ReadKeys,
    SettingKeys,
    require_positive,
)
from pocketmq.nameserver.route_tables import RouteLimits
from pocketmq.nameserver.routes import BROKER_TIMEOUT_S
from pocketmq.net import Address, ServerTlsFiles, UnfinishedLimits

DEFAULT_PORT = 9876


class NameServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a name server. `KEYS` has RocketMQ's names, and which of them may change at run time."""

    # addresses and files
    host: str = "127.0.0.1"
    """The address that the name server listens on."""
    port: int = DEFAULT_PORT
    """The port that the name server listens on. 0: any free port."""
    open_to_the_network_without_authentication: bool = False
    """Required to listen without `accounts` where other machines can connect: every client may then register brokers and change routes."""
    kv_config_path: Path | None = None
    """The file of the KV config. `--data` sets it. None: in memory only."""

    # access
    accounts: Path | None = None
    """The file of accounts. With it, every request must be signed. The name server rereads it when it changes."""
    authentication: AuthenticationSettings = AuthenticationSettings()
    tls: ServerTlsFiles = ServerTlsFiles()

    # brokers
    broker_timeout_ms: int = int(BROKER_TIMEOUT_S * 1000)
    """A broker that is silent for this long is removed, in ms, unless it registered another time."""
    scan_interval_ms: int = 5_000
    """Interval between scans for silent brokers, in ms."""
    delete_topic_with_broker_registration: bool = False
    """A full registration removes topics of the broker that it does not contain."""
    return_order_topic_config_to_broker: bool = True
    """Answer a registration with the order config."""

    # answers
    order_message_enable: bool = False
    """Include the order config of a topic in its route."""
    support_acting_master: bool = False
    """In routes, the slave with the lowest id acts for a lost master, if the brokers allow it."""
    enable_all_topic_list: bool = True
    """Answer requests for all topics (206)."""
    enable_topic_list: bool = True
    """Answer requests for the topics of a cluster (224) or a unit (311 to 313)."""
    need_wait_for_service: bool = False
    """Return no routes for some time after the start, so that brokers can register."""
    wait_seconds_for_service: int = 45
    """The length of that time, in seconds."""

    metrics: MetricsSettings = MetricsSettings()

    # limits
    limits: RouteLimits = RouteLimits()
    max_connections: int = 10_000
    """Limit on connections. One more is closed at once."""
    max_connections_per_host: int = 1_000
    """Limit on connections from one host. Loopback addresses are exempt."""
    unfinished: UnfinishedLimits = UnfinishedLimits()
    backlog: int = 1024
    """Connections that the system queues before the name server accepts them."""
    idle_s: int = 120
    """A connection that is silent for this long is closed, in seconds."""
    max_kv_entries: int = 10_000
    """Limit on entries of the KV config."""
    max_kv_name_chars: int = 255
    """Limit on the characters of a namespace and of a key."""
    max_kv_value_chars: int = 65_536
    """Limit on the characters of a value of the KV config."""
    max_kv_waiting: int = 256
    """Limit on changes of the KV config that wait for the disk. One more is rejected."""

    # shutdown
    drain_s: float = 0.4
    """How long a shutdown waits for running requests, in seconds."""
    linger_s: float = 0.3
    """How long a closing connection may take to send its data, in seconds."""

    def __post_init__(self) -> None:
        require_positive("name server", self, may_be_zero=("port",))
        check_listen_addresses(self, danger="may register brokers and change routes")

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


SettingsInUse = InUse[NameServerSettings]


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
    # access
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
    "maxTopicEntries": Key("limits.max_topic_entries", NUMBER),
    "maxKvEntries": Key("max_kv_entries", NUMBER),
    "maxKvValueChars": Key("max_kv_value_chars", NUMBER),
}

CONSTANTS: Final = access.CONSTANTS

_THREADS = "one event loop serves everything, there are no thread pools"
_BUFFERS = "the operating system decides"
NOT_HONOURED: Final[dict[str, str]] = {
    "rocketmqHome": "no installation folder is needed",
    "configStorePath": "changes at run time are not written to a file",
    "configBlackList": "the settings that can change at run time are fixed",
    "productEnvName": "there is no cluster test mode",
    "clusterTest": "there is no cluster test mode",
    "notifyMinBrokerIdChanged": "brokers get it with their next registration",
    "enableControllerInNamesrv": "there is no controller",
    "unRegisterBrokerQueueCapacity": "brokers are removed at once, nothing queues",
    "enableShutdownGracefully": "a shutdown always finishes running requests",
    "shutdownWaitTimeSeconds": "a shutdown takes less than a second",
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
    """`base`, or the defaults, with these properties."""
    return _SETTING_KEYS.read(properties, base or NameServerSettings())


change_keys = _SETTING_KEYS.change
write_keys = _SETTING_KEYS.write
