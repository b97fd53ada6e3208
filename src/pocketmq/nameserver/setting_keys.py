"""RocketMQ's names for settings: in namesrv.conf, and in the requests that read (319) and change (318) them.

    read_keys     a file at the start: any key. What is unknown, and what has no meaning here, is told and goes no further
    change_keys   a request: only keys that are on the list below as `at_run_time`; one that is not refuses all of them
    write_keys    all of them, as they are now

A change while running is a switch or a number that is looked at for each request. No path, listener or bound can be changed
from outside, and no change is written to any file.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.errors import InvalidParameter, InvalidSetting, NoPermission
from pocketmq.nameserver.limits import RouteLimits
from pocketmq.nameserver.settings import NameServerSettings

REFUSED: Final = "Can not update config in black list."
"""RocketMQ's words; what follows them is ours."""


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("a whole number")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


class Key(NamedTuple):
    """The field of `NameServerSettings`, or of its limits, that a key stands for."""

    field: str
    read: Callable[[str], Any]
    at_run_time: bool = False


KEYS: Final[dict[str, Key]] = {
    # RocketMQ's own
    "bindAddress": Key("host", str),
    "listenPort": Key("port", _number),
    "kvConfigPath": Key("kv_config_path", Path),
    "scanNotActiveBrokerInterval": Key("scan_interval_ms", _number),
    "serverChannelMaxIdleTimeSeconds": Key("idle_s", _number),
    "serverSocketBacklog": Key("backlog", _number),
    "deleteTopicWithBrokerRegistration": Key("delete_topic_with_broker_registration", _switch, at_run_time=True),
    "returnOrderTopicConfigToBroker": Key("return_order_topic_config_to_broker", _switch, at_run_time=True),
    "orderMessageEnable": Key("order_message_enable", _switch, at_run_time=True),
    "supportActingMaster": Key("support_acting_master", _switch, at_run_time=True),
    "enableAllTopicList": Key("enable_all_topic_list", _switch, at_run_time=True),
    "enableTopicList": Key("enable_topic_list", _switch, at_run_time=True),
    "needWaitForService": Key("need_wait_for_service", _switch, at_run_time=True),
    "waitSecondsForService": Key("wait_seconds_for_service", _number, at_run_time=True),
    # PocketMQ's
    "brokerTimeoutMillis": Key("broker_timeout_ms", _number),
    "maxConnections": Key("max_connections", _number),
    "maxConnectionsPerHost": Key("max_connections_per_host", _number),
    "maxBrokers": Key("max_brokers", _number),
    "maxTopics": Key("max_topics", _number),
    "maxPlaces": Key("max_places", _number),
    "maxKvEntries": Key("max_kv_entries", _number),
    "maxKvValueChars": Key("max_kv_value_chars", _number),
}

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

_LIMIT_FIELDS = frozenset(RouteLimits.__struct_fields__)


class ReadKeys(NamedTuple):
    """Settings from a file, and a sentence for each key that had no effect."""

    settings: NameServerSettings
    warnings: list[str]


def read_keys(properties: Mapping[str, str], base: NameServerSettings | None = None) -> ReadKeys:
    """`base`, or the defaults, with what the properties say. InvalidSetting for a value that cannot be."""
    honoured = {name: text for name, text in properties.items() if name in KEYS}
    warnings = [_warning(name) for name in properties if name not in KEYS]
    return ReadKeys(_replaced(base or NameServerSettings(), honoured), warnings)


def change_keys(settings: NameServerSettings, properties: Mapping[str, str]) -> NameServerSettings:
    """The settings after a request to change some while running. NoPermission names a key that must not be changed so."""
    for name in properties:
        if name not in KEYS:
            raise NoPermission(f"{REFUSED} {_warning(name)}")
        if not KEYS[name].at_run_time:
            raise NoPermission(f"{REFUSED} {name} can only be set when the name server starts")
    try:
        return _replaced(settings, properties)
    except InvalidSetting as error:
        raise InvalidParameter(str(error)) from None


def write_keys(settings: NameServerSettings) -> dict[str, str]:
    """Every key that is honoured, with its value now; those without a value are left out."""
    values = {name: _value(settings, key.field) for name, key in KEYS.items()}
    return {name: _text(value) for name, value in values.items() if value is not None}


def _replaced(settings: NameServerSettings, properties: Mapping[str, str]) -> NameServerSettings:
    changes = {KEYS[name].field: _read(name, text.strip()) for name, text in properties.items()}
    bounds = {field: changes.pop(field) for field in _LIMIT_FIELDS & changes.keys()}
    limits = msgspec.structs.replace(settings.limits, **bounds)
    return msgspec.structs.replace(settings, limits=limits, **changes)


def _read(name: str, text: str) -> Any:
    try:
        return KEYS[name].read(text)
    except ValueError as error:
        raise InvalidSetting(f"{name}={text[:80]} is not {error}") from None


def _value(settings: NameServerSettings, field: str) -> Any:
    return getattr(settings.limits if field in _LIMIT_FIELDS else settings, field)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warning(name: str) -> str:
    if name in NOT_HONOURED:
        return f"{name} has no effect here: {NOT_HONOURED[name]}"
    near = get_close_matches(name, [*KEYS, *NOT_HONOURED], n=1)
    return f"{name[:80]} is not known" + (f"; did you mean {near[0]}?" if near else "")
