"""RocketMQ's names of a broker's settings: every one is known, and few may change while it runs."""

import re
from functools import cache
from pathlib import Path

import msgspec
import pytest
from tests.golden import captured, needs_golden

from pocketmq.broker.setting_keys import CONSTANTS, KEYS, WITHOUT_EFFECT, change_keys, read_keys, write_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.errors import InvalidParameter, InvalidSetting, NoPermission, UsageError
from pocketmq.model.setting_keys import REFUSED
from pocketmq.net.address import Address
from pocketmq.net.tls import TlsMode
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.protocol.signing import Credentials
from pocketmq.store.settings import FlushMode

BROKER_SOURCE = Path(__file__).parents[2] / "src" / "pocketmq" / "broker"

FIXED = {name: key for name, key in KEYS.items() if not key.at_run_time}
CHANGEABLE = {name: key for name, key in KEYS.items() if key.at_run_time}

USUAL_FILE = b"""
brokerClusterName = DefaultCluster
brokerName = broker-b
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
namesrvAddr = 10.0.0.1:9876;10.0.0.2
listenPort = 0
storePathRootDir = /data/store
storePathCommitLog = /data/store/commitlog
mappedFileSizeCommitLog = 1073741824
mappedFileSizeConsumeQueue = 300000
diskMaxUsedSpaceRatio = 88
messageDelayLevel = 1s 60s 48h
transactionTimeOut = 2000
brokerIP1 =
"""


def test_a_configuration_file_of_rocketmq_is_read() -> None:
    settings, warnings = read_keys(read_properties(USUAL_FILE))

    assert (settings.broker_name, settings.port, settings.advertised_host) == ("broker-b", 0, None)
    assert settings.name_servers == (Address("10.0.0.1", 9876), Address("10.0.0.2", 9876))
    assert settings.store.folder == Path("/data/store")
    assert settings.store.flush is FlushMode.SYNC
    assert settings.store.queue_file_entries == 15_000
    assert (settings.store.retention_hours, settings.store.delete_hours) == (48, (4,))
    assert settings.store.delay_levels.ms(3) == 48 * 3_600_000
    assert settings.transaction.timeout_ms == 2000
    assert [warning.partition(":")[0] for warning in warnings] == ["diskMaxUsedSpaceRatio=88 is lowered to 85"]


def test_settings_that_a_file_does_not_name_keep_their_values() -> None:
    base = BrokerSettings(broker_name="b", auto_create_topic=False)

    settings, warnings = read_keys({"listenPort": "1"}, base)

    assert (settings, warnings) == (msgspec.structs.replace(base, port=1), [])


WITHOUT_A_VALUE = """
brokerIP1 brokerIP2 haMasterAddress advertisedPort accountsFile innerClientAuthenticationCredentials tls.server.certPath
tls.server.keyPath tls.server.trustCertPath tls.client.trustCertPath tls.client.pinnedCertPath tls.client.certPath
tls.client.keyPath tls.server.mode
"""


def test_all_keys_are_written_as_by_rocketmq() -> None:
    told = write_keys(BrokerSettings())

    assert set(KEYS) - set(told) == set(WITHOUT_A_VALUE.split())
    assert told["flushDiskType"] == "ASYNC_FLUSH"
    assert told["deleteWhen"] == "04"
    assert told["diskMaxUsedSpaceRatio"] == "75"
    assert told["mappedFileSizeConsumeQueue"] == "6000000"
    assert told["maxFilterMessageSize"] == "16000"
    assert told["messageDelayLevel"] == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert told["brokerRole"] == "ASYNC_MASTER"
    assert told["namesrvAddr"] == ""


def test_written_keys_can_be_read_again() -> None:
    settings = read_keys(
        {"brokerIP1": "h", "namesrvAddr": "a:1;[::1]:2", "messageDelayLevel": "0s 1d 90m", "deleteWhen": "0;16"}
    ).settings

    told = write_keys(settings)
    again = read_keys(told)

    assert again.warnings == []
    assert write_keys(again.settings) == told
    assert told["messageDelayLevel"] == "0s 1d 90m"
    assert (told["deleteWhen"], settings.store.delete_hours) == ("00;16", (0, 16))


@needs_golden
def test_every_key_of_apaches_brokers_is_known_and_in_one_group() -> None:
    answers = [
        read_properties(frame.command.body)
        for frame in captured("mqadmin/*/wire/*getBrokerConfig*.jsonl")
        if frame.answers == 26
    ]
    real = {name for answer in answers for name in answer}

    assert len(real) > 400
    assert real - KEYS.keys() - CONSTANTS.keys() - WITHOUT_EFFECT.keys() == set()


@needs_golden
def test_values_of_apaches_broker_are_written_in_its_words() -> None:
    [*_, frame] = [frame for frame in captured("mqadmin/5.3.3/wire/*getBrokerConfig*.jsonl") if frame.answers == 26]
    real = read_properties(frame.command.body)
    honoured = {name: text for name, text in real.items() if name in KEYS and name != "diskMaxUsedSpaceRatio"}

    told = write_keys(read_keys(honoured).settings)

    assert {name: told[name] for name in honoured} == honoured


def test_no_key_is_in_two_groups() -> None:
    groups = [KEYS.keys(), CONSTANTS.keys(), WITHOUT_EFFECT.keys()]

    assert len(set().union(*groups)) == sum(map(len, groups))


WITHOUT_A_KEY = """
open_to_the_network_without_authentication drain_s linger_s delay_poll_ms expiry_scan_ms hold_check_ms tick_ms
metrics.max_connections metrics.request_s flow.sweep_interval_ms flow.turn_budget_ms transaction.max_run_ms store.checkpoint_interval_ms store.close_timeout_ms
store.index_backlog_bytes store.memory_bytes store.resume_interval_ms store.retry_ms
"""


def test_every_field_has_one_key_except_those_for_code_only() -> None:
    settings = BrokerSettings()
    fields: set[str] = set()
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        fields |= (
            {f"{name}.{field}" for field in value.__struct_fields__} if isinstance(value, msgspec.Struct) else {name}
        )

    keyed = sorted(key.field for key in KEYS.values())

    assert keyed == sorted(fields - set(WITHOUT_A_KEY.split()))


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("sendMessageThreadPoolNum", "sendMessageThreadPoolNum is not known; did you mean sendMessageThreadPoolNums?"),
        (
            "syncFromLastFile",
            "syncFromLastFile has no effect here: slaves do not act as masters, and no controller elects them",
        ),
        ("rocketmqHome", "rocketmqHome has no effect here: no installation folder is needed"),
        (
            "mapedFileSizeCommitLog",
            "mapedFileSizeCommitLog has no effect here: this is the spelling of an older RocketMQ; use `mapped…`",
        ),
        ("xyz", "xyz is not known"),
    ],
)
def test_a_key_without_effect_is_reported(name: str, warning: str) -> None:
    assert read_keys({name: "1"}) == (BrokerSettings(), [warning])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("listenPort", "abc", "listenPort=abc is not a whole number"),
        ("listenPort", "70000", "port 70000"),
        ("flushDiskType", "async", "flushDiskType=async is not ASYNC_FLUSH or SYNC_FLUSH"),
        ("deleteWhen", "04;x", "deleteWhen=04;x is not an hour of the day, 00 to 23, or several like 04;16"),
        ("deleteWhen", "04;;16", "is not an hour of the day"),
        ("deleteWhen", "04;24", "is not an hour of the day"),
        ("deleteWhen", "", "is not an hour of the day"),
        ("diskMaxUsedSpaceRatio", "0", "diskMaxUsedSpaceRatio=0 is not from 1 to 100, in percent"),
        ("diskSpaceCleanForciblyRatio", "95", "disk ratios must be in ascending order"),
        ("messageDelayLevel", "1x", "messageDelayLevel: delay level '1x'"),
        ("namesrvAddr", "a:b", "namesrvAddr: address 'a:b' has no port"),
        ("brokerPermission", "8", "permission 8"),
        ("brokerName", "a/b", "a/b"),
        ("storePathRootDir", "", "storePathRootDir= is not a path"),
        ("mappedFileSizeCommitLog", "1", "smaller than a page"),
        ("sendThreadPoolQueueCapacity", "0", "above 0"),
        ("bindAddress", "0.0.0.0", "open-to-the-network"),
        ("brokerRole", "SLAVE", "brokerRole=SLAVE cannot have brokerId=0: a master has 0, a slave 1 or above"),
        (
            "aclEnable",
            "true",
            "aclEnable=true is not supported: requests are checked if, and only if, there are accounts: ",
        ),
        ("authenticationEnabled", "true", "accountsFile=FILE or --accounts FILE. Use authenticationEnabled=false"),
        ("authorizationEnabled", "true", "authorizationEnabled=true is not supported"),
        ("tls.test.mode.enable", "true", "there are no test certificates; set your own with tls.server.certPath"),
        ("tls.server.authClient", "require", "there is a CA for it: tls.server.trustCertPath or --tls-client-ca"),
        ("tls.server.mode", "on", "tls.server.mode=on is not disabled or permissive or enforcing"),
        ("tls.server.keyPath", "k.pem", "without a server certificate"),
        ("tls.client.trustCertPath", "ca.pem", "TLS options are set, but TLS is not enabled"),
        ("maxAuthenticationFailures", "0", "max_failures = 0 must be above 0"),
        ("storePathCommitLog", "/elsewhere", "storePathCommitLog=/elsewhere: the log must be in"),
    ],
)
def test_an_impossible_value_is_refused_with_its_reason(name: str, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        read_keys({name: text})


def test_access_settings_are_read_and_written_as_keys() -> None:
    properties = {
        "accountsFile": "accounts.toml",
        "aclEnable": "true",
        "authenticationEnabled": "TRUE",
        "authorizationEnabled": "true",
        "tls.server.certPath": "server.pem",
        "tls.server.trustCertPath": "clients.pem",
        "tls.server.authClient": "require",
        "useTLS": "true",
        "tls.client.trustCertPath": "authority.pem",
        "bindAddress": "0.0.0.0",
    }

    settings, warnings = read_keys(properties)

    assert warnings == []
    assert (settings.accounts, settings.tls.in_use) == (Path("accounts.toml"), TlsMode.ENFORCING)
    assert settings.name_server_tls.enabled
    assert write_keys(settings).items() >= (properties | {"authenticationEnabled": "true"}).items()
    with pytest.raises(InvalidSetting, match="aclEnable=false is not supported"):
        read_keys(properties | {"aclEnable": "false"})


def test_credentials_are_read_in_rocketmqs_form_and_written_without_the_secret() -> None:
    name = "innerClientAuthenticationCredentials"

    settings, _ = read_keys({name: '{"accessKey":"broker","secretKey":"hush"}'})

    assert settings.credentials == Credentials("broker", "hush")
    assert write_keys(settings)[name] == '{"accessKey":"broker","secretKey":"***"}'
    assert "hush" not in repr(settings)
    assert read_keys({name: ""}).settings.credentials is None


@pytest.mark.parametrize("text", ["hush", '"hush"', '{"secretKey":"hush"}', '{"accessKey":"hush","secretKey":7}'])
def test_credentials_of_another_form_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(InvalidSetting) as refusal:
        read_keys({"innerClientAuthenticationCredentials": text})

    assert "the value must have the form" in str(refusal.value)
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("slowWriteMillis", "7", "the store is already open, and reads it only when it opens"),
        ("maxHashSlotNum", "7", "the store is already open, and its files depend on it"),
    ],
)
def test_a_refused_change_gives_the_reason_of_its_key(name: str, value: str, reason: str) -> None:
    with pytest.raises(NoPermission) as refusal:
        change_keys(BrokerSettings(), {name: value})

    assert refusal.value.remark == f"{REFUSED} {name} can only be set when the broker starts: {reason}"


REFUSED_AT_RUN_TIME = """
accountsFile advertisedPort allocateLogFiles authenticationFailureSeconds bindAddress brokerIP2
haListenPort haSlaveHosts brokerClusterName brokerIP1
brokerId brokerName brokerRole haMasterAddress clockStepConfirmMills flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushDiskType
innerClientAuthenticationCredentials listenPort mappedFileSizeCommitLog mappedFileSizeConsumeQueue
maxAuthenticationFailures maxConnections maxConnectionsPerHost maxUnfinishedBytes maxUnsignedUnfinishedBytes
frameTimeoutSeconds slowWriteMillis maxFailingAddresses maxHashSlotNum maxIndexNum
maxOpenQueueFiles messageDelayLevel messageIndexEnable metricsExporterType metricsPromExporterHost
metricsPromExporterPort metricsWithoutAuthentication namesrvAddr preparedLogFiles serverChannelMaxIdleTimeSeconds serverSocketBacklog
storePathRootDir timerPrecisionMs tls.client.authServer tls.client.certPath tls.client.keyPath
tls.client.pinnedCertPath tls.client.trustCertPath tls.server.certPath tls.server.keyPath tls.server.mode
tls.server.trustCertPath transientStorePoolBufferBytes transientStorePoolEnable transientStorePoolSize useTLS
vipChannelEnable
"""
"""Who it is, where it listens, whom it trusts, how files are laid out: no request changes these."""


@pytest.mark.parametrize("name", [*KEYS, *CONSTANTS, *WITHOUT_EFFECT, "tlsServerKeyPath", "accessKey", "unheardOf", ""])
def test_the_keys_that_can_change_at_run_time_are_a_fixed_list(name: str) -> None:
    before = BrokerSettings()
    now = write_keys(before).get(name, "1")
    others = {"true": "false", "false": "true", "6": "4", "30000": "20000"}
    others |= {"75": "70", "85": "80", "90": "95", "04": "05", "16000": "20", "PULL": "POP"}
    text = others.get(now, "7")

    if name in KEYS and name not in REFUSED_AT_RUN_TIME.split():
        after = change_keys(before, {name: text})
        assert write_keys(after) == write_keys(before) | {name: text}
        assert after != before
    else:
        with pytest.raises(NoPermission) as refusal:
            change_keys(before, {"longPollingEnable": "false", name: text})
        assert refusal.value.response_code == 16
        assert (refusal.value.remark or "").startswith(f"{REFUSED} {name} ")


def test_no_path_listener_or_credential_can_change_at_run_time() -> None:
    fields = [key.field for key in CHANGEABLE.values()]
    dangerous = re.compile("path|dir|folder|home|key|secret|plugin|class|host|port$|addr|name|connections|accounts|tls")

    assert set(CHANGEABLE) == KEYS.keys() - set(REFUSED_AT_RUN_TIME.split())
    assert [field for field in fields if dangerous.search(field)] == []


@cache
def _sources_that_look_again() -> list[str]:
    paths = [*BROKER_SOURCE.rglob("*.py"), *(BROKER_SOURCE.parent / "store").rglob("*.py")]
    words = ("ettings.now", "def apply(", "def of(cls, settings")
    return [text for path in paths if any(word in (text := path.read_text("utf-8")) for word in words)]


READ_AS = {"max_message_bytes": "max_body_bytes"}
"""Settings that the store reads by a property, which applies a limit."""


@pytest.mark.parametrize("name", CHANGEABLE)
def test_a_changeable_key_is_read_on_each_use_or_applied(name: str) -> None:
    part, _, field = KEYS[name].field.rpartition(".")
    field = READ_AS.get(field, field)
    looked_at = re.compile(rf"\b(?:settings|now|{part or 'settings'})\.{field}\b")
    sources = _sources_that_look_again()

    assert any(looked_at.search(text) for text in sources)


@pytest.mark.parametrize(("name", "text"), [("longPollingEnable", "maybe"), ("shortPollingTimeMills", "0")])
def test_a_change_to_an_impossible_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        change_keys(BrokerSettings(), {name: text})


def test_every_broker_is_a_master_whatever_its_id() -> None:
    settings, warnings = read_keys({"brokerId": "1"})

    assert settings.broker_id == 0
    assert warnings == ["brokerId=1 is replaced by 0: this broker is a master; a slave has brokerRole=SLAVE"]
    assert read_keys({"brokerId": "0"}) == (BrokerSettings(), [])


def test_the_message_size_is_limited_by_the_frame() -> None:
    settings, warnings = read_keys({"maxMessageSize": "99999999"})

    assert settings.store.max_body_bytes < 99_999_999
    assert warnings == [
        f"maxMessageSize=99999999 is lowered to {settings.store.max_body_bytes}: no client reads a larger frame"
    ]


@pytest.mark.parametrize(
    ("properties", "port"),
    [
        ({}, -1),
        ({"brokerRole": "ASYNC_MASTER"}, 0),
        ({"brokerRole": "ASYNC_MASTER", "haListenPort": "-1"}, -1),
        ({"haListenPort": "0", "listenPort": "7"}, 0),
        ({"haListenPort": "9"}, 9),
    ],
)
def test_the_port_for_slaves_follows_the_role_as_in_rocketmq(properties: dict[str, str], port: int | None) -> None:
    assert read_keys(properties).settings.replication.port == port


def test_slaves_without_authentication_need_names_if_clients_have_accounts(tmp_path: Path) -> None:
    served = {"accountsFile": str(tmp_path / "accounts.toml"), "bindAddress": "10.0.0.1"}

    with pytest.raises(UsageError, match="the stream to slaves has no authentication"):
        read_keys({**served, "haListenPort": "10912"})
    settings, warnings = read_keys({**served, "brokerRole": "ASYNC_MASTER"})
    assert settings.replication.port == -1
    assert "slaves are not served: other machines can reach 10.0.0.1" in warnings[0]
    named = read_keys({**served, "haListenPort": "10912", "haSlaveHosts": "10.0.0.2; 10.0.0.3"}).settings
    assert named.replication.slave_hosts == ("10.0.0.2", "10.0.0.3")
