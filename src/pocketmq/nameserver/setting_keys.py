"""RocketMQ's names for the settings of a name server: in namesrv.conf, and in the requests that tell (319) and change (318)
them. What is done with them is in `model.setting_keys`.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.access import setting_keys as access
from pocketmq.metrics import settings as metrics
from pocketmq.model.setting_keys import NUMBER, PATH, REFUSED, SWITCH, TEXT, Key, ReadKeys, SettingKeys
from pocketmq.nameserver.settings import NameServerSettings

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
