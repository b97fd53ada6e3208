"""RocketMQ's names of settings: they are read from a file, listed, and changed at run time only if that is harmless."""

from pathlib import Path

import pytest

from pocketmq.errors import InvalidParameter, InvalidSetting, NoPermission
from pocketmq.nameserver.settings import (
    CONSTANTS,
    KEYS,
    NOT_HONOURED,
    REFUSED,
    NameServerSettings,
    change_keys,
    read_keys,
    write_keys,
)
from pocketmq.net.tls import ServerTlsFiles, TlsMode

FIXED = {name: key for name, key in KEYS.items() if not key.at_run_time}
CHANGEABLE = {name: key for name, key in KEYS.items() if key.at_run_time}


def test_a_file_of_rocketmq_is_read() -> None:
    settings, warnings = read_keys(
        {
            "listenPort": "19000",
            "bindAddress": "127.0.0.2",
            "kvConfigPath": "./namesrv/kvConfig.json",
            "orderMessageEnable": "TRUE",
            "serverChannelMaxIdleTimeSeconds": " 60 ",
            "maxTopics": "7",
        }
    )

    assert warnings == []
    assert str(settings.address) == "127.0.0.2:19000"
    assert settings.kv_config_path == Path("namesrv/kvConfig.json")
    assert settings.order_message_enable
    assert settings.idle_s == 60
    assert settings.limits.max_topics == 7


def test_settings_that_a_file_does_not_name_keep_their_values() -> None:
    base = NameServerSettings(port=5, order_message_enable=True)

    assert read_keys({"listenPort": "6"}, base).settings == NameServerSettings(port=6, order_message_enable=True)


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("serverWorkerThread", "serverWorkerThread is not known; did you mean serverWorkerThreads?"),
        ("xyz", "xyz is not known"),
        ("rocketmqHome", "rocketmqHome has no effect here: no installation folder is needed"),
        (
            "serverWorkerThreads",
            "serverWorkerThreads has no effect here: one event loop serves everything, there are no thread pools",
        ),
    ],
)
def test_a_key_without_effect_is_reported(name: str, warning: str) -> None:
    settings, warnings = read_keys({name: "1"})

    assert warnings == [warning]
    assert settings == NameServerSettings()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("listenPort", "abc", "listenPort=abc is not a whole number"),
        ("listenPort", "-1", "listenPort=-1 is not a whole number"),
        ("listenPort", "70000", "port 70000"),
        ("listenPort", "²", "not a whole number"),
        ("orderMessageEnable", "yes", "orderMessageEnable=yes is not true or false"),
        ("scanNotActiveBrokerInterval", "0", "above 0"),
        ("bindAddress", "0.0.0.0", "open-to-the-network"),
    ],
)
def test_an_impossible_value_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        read_keys({name: text})


def test_all_keys_are_written_with_their_values_and_can_be_read_again() -> None:
    files = ServerTlsFiles(cert=Path("cert.pem"), key=Path("key.pem"), client_ca=Path("ca.pem"), mode=TlsMode.ENFORCING)
    settings = NameServerSettings(
        kv_config_path=Path("kv.json"),
        support_acting_master=True,
        max_connections_per_host=9,
        accounts=Path("accounts.toml"),
        tls=files,
    )

    told = write_keys(settings)

    assert told["supportActingMaster"] == "true"
    assert told["enableTopicList"] == "true"
    assert told["kvConfigPath"] == "kv.json"
    assert read_keys(told) == (settings, [])
    assert set(told) == set(KEYS) | set(CONSTANTS)
    assert (told["aclEnable"], told["tls.server.authClient"]) == ("true", "require")
    assert "kvConfigPath" not in write_keys(NameServerSettings())


@pytest.mark.parametrize("name", CHANGEABLE)
def test_a_switch_can_change_at_run_time(name: str) -> None:
    before = NameServerSettings()
    text = {"true": "false", "false": "true", "45": "46"}[write_keys(before)[name]]

    after = change_keys(before, {name: text})

    assert write_keys(after) == write_keys(before) | {name: text}


@pytest.mark.parametrize("name", [*FIXED, *NOT_HONOURED, "tlsServerKeyPath", "accessKey", "unheardOf", ""])
def test_other_keys_are_refused_by_name_and_nothing_changes(name: str) -> None:
    with pytest.raises(NoPermission) as refusal:
        change_keys(NameServerSettings(), {"orderMessageEnable": "true", name: "1"})

    assert refusal.value.response_code == 16
    assert (refusal.value.remark or "").startswith(f"{REFUSED} {name} ")


def test_no_path_listener_or_limit_can_change_at_run_time() -> None:
    changeable = {key.field for key in CHANGEABLE.values()}

    assert not {
        field for field in changeable if "path" in field or "max" in field or field in ("host", "port", "backlog")
    }
    assert not {
        name for name in CHANGEABLE if "path" in name.lower() or "home" in name.lower() or "key" in name.lower()
    }
    assert all(type(getattr(NameServerSettings(), field)) in (bool, int) for field in changeable)


@pytest.mark.parametrize(("name", "text"), [("orderMessageEnable", "maybe"), ("waitSecondsForService", "0")])
def test_a_switch_with_an_impossible_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        change_keys(NameServerSettings(), {name: text})


def test_no_key_is_both_honoured_and_not() -> None:
    assert KEYS.keys() & NOT_HONOURED.keys() == set()


def test_every_key_of_the_real_name_server_is_known_here() -> None:
    real = """bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest configBlackList
    configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity deleteTopicWithBrokerRegistration
    enableAllTopicList enableControllerInNamesrv enableShutdownGracefully enableTopicList kvConfigPath listenPort
    needWaitForService notifyMinBrokerIdChanged orderMessageEnable productEnvName returnOrderTopicConfigToBroker
    rocketmqHome scanNotActiveBrokerInterval serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds supportActingMaster unRegisterBrokerQueueCapacity
    useEpollNativeSelector waitSecondsForService writeBufferHighWaterMark writeBufferLowWaterMark"""

    assert set(real.split()) - KEYS.keys() - NOT_HONOURED.keys() == set()
