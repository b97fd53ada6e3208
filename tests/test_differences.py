"""docs/reference/differences.md: its tables name settings that exist, with their true defaults, and leave none out."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pocketmq.broker import setting_keys as broker
from pocketmq.broker.settings import BrokerSettings
from pocketmq.client.consumer.settings import LitePullSettings, PullSettings, PushSettings
from pocketmq.client.settings import ProducerSettings
from pocketmq.nameserver import settings as name_server
from pocketmq.nameserver.settings import NameServerSettings

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "differences.md").read_text("utf-8")
SETTING = re.compile(r"`([\w.]+)=([\w.-]+)`")

DIFFERENCES = {
    "Broker": [
        "first offset of a new group in a queue that never held a message",
        "sysFlag of a send",
        "a pull beyond the end of a queue",
        "offsets of an older log, after a crash or after a topic was created again",
        "a pull whose expression cannot be parsed",
        "unique keys of a batch",
        "first send to a new topic, and its creation",
        "retry topics",
        "topics created by sends, groups created by use",
        "too many topics for a name server",
        "connections",
        "memory for frames that are not complete",
        "waiting requests and held pulls",
        "written and not synced",
        "a slow disk",
        "failed signatures",
        "`maxMessageSize`",
        "a forward step of the wall clock",
        "a wall clock that is set back",
        "the first minutes after a start",
        "age of a log file",
        "deletion of messages that a group has not consumed",
        "`diskMaxUsedSpaceRatio` above `diskSpaceCleanForciblyRatio`",
        "an undecided transaction that is older than the log is kept",
        "a check of a transaction that could not be sent to any producer",
        "a delayed or timed message whose topic was deleted",
        "recall of a timed message of another topic",
        "notifications of members that come and go",
        "members of one group with different subscriptions",
        "`mqadmin brokerStatus`",
        "after a crash",
        "a reset that no member has applied yet",
        "offsets of `CID_RMQ_SYS_TRANS`",
        "`cloneGroupOffset` from a group that does not exist",
        "`updateBrokerConfig`",
        "keys of `broker.conf` without effect",
        "topics with `queue.type=BatchCQ` (inner batches)",
        "accounts and permissions",
        "permission for a message that is named by its log offset",
        "files and folders of the store",
        "POP: the last attempt",
        "POP: a lease that ends",
        "POP: the offset of a group",
        "POP: a change of a lease that is over",
        "POP: check points in memory (`enablePopBufferMerge`, RocksDB)",
        "replication: controllers, DLedger",
        "replication: `SYNC_MASTER` with `inSyncReplicas=1`",
        "replication: `SYNC_MASTER` without a slave in sync",
        "replication: the port for slaves",
        "replication: a slave that has bytes that its master does not have",
        "`bindAddress`",
        "`brokerIP1`",
        "`brokerName`",
        "`storePathRootDir`",
        "`metricsPromExporterHost`",
        "TLS with a certificate, no mode set",
        "`tls.client.authServer`",
        "`autoCreateTopicEnable`",
        "`enablePropertyFilter`",
        "`recallMessageEnable`",
        "`registerBrokerTimeoutMills`",
        "`flushDelayOffsetInterval`",
        "`flushConsumeQueueThoroughInterval`",
        "`transientStorePoolSize`",
    ],
    "Client": [
        "next pull after a failure",
        "master in the route, but not reachable",
        "listener returns nothing",
        "`ROLLBACK` with automatic commits",
        "listener that hangs, broadcast",
        "broadcast, log replaced or shortened while the member was stopped",
        "check for listeners that hang",
        "threads above the minimum",
        "paused member",
        "limit for a topic",
        "start of a new group at the end",
        "queue that appears later",
        "delay level above 18",
        "`RetryLater` of an ordered consumer",
        "dead letter",
        "queue near its limit",
        "group of a producer",
        "sends that are not answered",
        "a send that the broker refuses as busy",
        "connections of clients in one process",
        "certificate of a server",
        "running sends and listeners at the stop",
        "an option with a wrong name or type",
    ],
    "Name server": [
        "a request without a required field",
        "an unknown or forbidden setting in a change",
        "a change of settings",
        "a refused registration",
        "a broker that returns under another name",
        "a value of the KV config",
        "time until a silent broker is removed, limits",
        "`bindAddress`",
    ],
}
"""The first cell of each row. Remove one only when PocketMQ behaves as RocketMQ there."""

BROKER_OF_ROCKETMQ = """
brokerRole=ASYNC_MASTER inSyncReplicas=1 slaveTimeout=3000 syncBrokerMetadataPeriod=5000 haTransferBatchSize=32768 haSendHeartbeatInterval=5000 haHousekeepingInterval=20000 haFlowControlEnable=false
maxHaTransferByteInSecond=104857600 haMaxGapNotInSync=268435456
    maxMessageSize=4194304 autoCreateSubscriptionGroup=true defaultTopicQueueNums=8 traceTopicEnable=false
    rejectTransactionMessage=false traceOn=true sendThreadPoolQueueCapacity=10000
    pullThreadPoolQueueCapacity=100000 heartbeatThreadPoolQueueCapacity=50000
    endTransactionPoolQueueCapacity=100000 waitTimeMillsInSendQueue=200 waitTimeMillsInPullQueue=5000
    waitTimeMillsInHeartbeatQueue=31000 waitTimeMillsInTransactionQueue=3000 osPageCacheBusyTimeOutMills=1000
    maxTransferBytesOnMessageInMemory=262144 maxTransferCountOnMessageInMemory=32
    maxTransferBytesOnMessageInDisk=65536 maxTransferCountOnMessageInDisk=8 maxFilterMessageSize=16000
    accessMessageInMemoryMaxRatio=40 litePullMessageEnable=true longPollingEnable=true
    ackThreadPoolQueueCapacity=100000 waitTimeMillsInAckQueue=3000 popCkMaxBufferSize=200000 popPollingSize=1024
    maxPopPollingSize=100000 popFromRetryProbability=20 enableRetryTopicV2=false
    retrieveMessageFromPopRetryTopicV1=true initPopOffsetByCheckMsgInMem=true enablePopMessageThreshold=false
    popInflightMessageThreshold=10000 serverLoadBalancerEnable=true defaultMessageRequestMode=PULL
    defaultPopShareQueueNum=-1
    shortPollingTimeMills=1000 slaveReadEnable=false flushIntervalCommitLog=500 flushCommitLogLeastPages=4
    flushCommitLogThoroughInterval=10000 syncFlushTimeout=5000 fileReservedTime=72 deleteWhen=04
    diskMaxUsedSpaceRatio=75 diskSpaceCleanForciblyRatio=85 diskSpaceWarningLevelRatio=90
    deleteFileBatchMax=10 cleanFileForciblyEnable=true channelExpiredTimeout=120000
    notifyConsumerIdsChangedEnable=true storeReplyMessageEnable=true useServerSideResetOffset=true
    timerWheelEnable=true transactionCheckInterval=30000 transactionOpMsgMaxSize=4096
    transactionOpBatchInterval=3000 timerMaxDelaySec=259200 transactionTimeOut=6000 transactionCheckMax=15
    flushConsumerOffsetInterval=5000 registerNameServerPeriod=30000 serverChannelMaxIdleTimeSeconds=120
    metricsPromExporterPort=5557 mappedFileSizeCommitLog=1073741824 transientStorePoolEnable=false
    messageIndexEnable=true maxHashSlotNum=5000000 maxIndexNum=20000000 flushConsumeQueueLeastPages=2
    timerPrecisionMs=1000 regionId=DefaultRegion brokerPermission=6 brokerClusterName=DefaultCluster
    brokerId=0 listenPort=10911 vipChannelEnable=true serverSocketBacklog=1024 useTLS=false
    metricsExporterType=DISABLE mappedFileSizeConsumeQueue=6000000 flushDiskType=ASYNC_FLUSH
"""
"""Defaults of the broker of RocketMQ 5.3.3 that are also PocketMQ's. Those that differ have a row."""

BROKER_OF_POCKETMQ = {
    "advertisedPort",
    "allocateLogFiles",
    "clientCallMillis",
    "maxFailingAddresses",
    "maxOpenQueueFiles",
    "messageDelayLevel",
    "metricsWithoutAuthentication",
    "preparedLogFiles",
    "queueLockMillis",
}
"""Keys that RocketMQ does not have, and whose default changes nothing; and RocketMQ's delay levels, which tests of their own compare."""

CLIENT_OF_ROCKETMQ = {
    ProducerSettings: """send_timeout_ms=3000 retries=2 retry_when_not_stored=False avoid_slow_brokers=False
    max_message_bytes=4194304 compress_over_bytes=4096 compression_level=5 template_topic=TBW102 new_topic_queues=4
    linger_ms=0 call_timeout_ms=3000 connect_timeout_ms=3000 route_poll_ms=30000 heartbeat_ms=30000 trace=False
    trace_topic=RMQ_SYS_TRACE_TOPIC unit_mode=False max_in_flight_calls=65535""",
    PushSettings: """rebalance_ms=20000 persist_ms=5000 pull_batch=32 pull_interval_ms=None pull_wait_ms=15000
    pull_timeout_ms=30000 max_queue_bytes=104857600 max_span=2000 pull_batch_bytes=262144 broadcast=False ordered=False
    subscription_in_pulls=False max_queue_messages=1000 workers=20 suspend_ms=1000 consume_timeout_ms=900000""",
    LitePullSettings: """pull_batch=10 pull_wait_ms=20000 auto_commit=True auto_commit_ms=5000 poll_timeout_ms=5000
    max_messages=10000 pull_timeout_ms=30000 max_queue_messages=1000 max_span=2000""",
    PullSettings: "pull_wait_ms=20000 pull_timeout_ms=10000 block_timeout_ms=30000",
}
"""Defaults of the Java client 5.3.3 that are also PocketMQ's."""


def rows(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def pairs(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in text.split())


def named(heading: str) -> dict[str, str]:
    """The settings in the column of PocketMQ, with their defaults."""
    return dict(pair for row in rows(heading) for pair in SETTING.findall(row[2]))


def defaults(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {name: str(default) for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)}


def broker_defaults() -> dict[str, str]:
    written = broker.write_keys(BrokerSettings())
    return {key: written.get(key) or "none" for key in broker.KEYS}


BROKER = broker_defaults()


@pytest.mark.parametrize("heading", DIFFERENCES)
def test_every_row_describes_both_sides_and_the_reason(heading: str) -> None:
    assert [row for row in rows(heading) if len(row) != 4 or not row[0] or not row[2] or not row[3]] == []
    assert [row for row in rows(heading) if not row[1] and row[0] != "`mqadmin brokerStatus`"] == []


@pytest.mark.parametrize("heading", DIFFERENCES)
def test_a_table_has_a_row_for_each_difference(heading: str) -> None:
    assert [row[0] for row in rows(heading)] == DIFFERENCES[heading]


@pytest.mark.parametrize(
    ("heading", "keys", "write"),
    [
        ("Broker", broker.KEYS, lambda: broker.write_keys(BrokerSettings())),
        ("Name server", name_server.KEYS, lambda: name_server.write_keys(NameServerSettings())),
    ],
)
def test_every_key_of_a_server_has_its_default(
    heading: str, keys: dict[str, object], write: Callable[[], dict[str, str]]
) -> None:
    written = write()

    assert len(named(heading)) > 5
    assert named(heading) == {name: written.get(name) or "none" for name in named(heading) if name in keys}


def test_a_row_about_a_key_of_the_broker_names_its_default() -> None:
    of_a_key = {row[0].strip("`"): row for row in rows("Broker") if re.fullmatch(r"`[\w.]+`", row[0])}
    with_default = {name: row for name, row in of_a_key.items() if row[2].startswith(f"`{name}=")}

    assert set(of_a_key) - set(with_default) == {"updateBrokerConfig", "maxMessageSize"}
    assert [
        row for name, row in with_default.items() if row[1] == BROKER[name] and name != "autoCreateTopicEnable"
    ] == []


def test_no_default_of_the_broker_differs_without_a_row() -> None:
    same = {key for key, value in pairs(BROKER_OF_ROCKETMQ).items() if BROKER[key] == value}
    known = {key for key, value in BROKER.items() if value != "none"}

    assert known - same - set(named("Broker")) - BROKER_OF_POCKETMQ == set()
    assert set(pairs(BROKER_OF_ROCKETMQ)) == same


def test_every_option_of_the_client_has_its_default() -> None:
    kinds: list[type[msgspec.Struct]] = [ProducerSettings, PushSettings, LitePullSettings, PullSettings]
    known = {pair for kind in kinds for pair in defaults(kind).items()}

    assert len(named("Client")) > 10
    assert set(named("Client").items()) - known == set()


@pytest.mark.parametrize("kind", CLIENT_OF_ROCKETMQ)
def test_defaults_of_the_client_are_those_of_java(kind: type[msgspec.Struct]) -> None:
    java = pairs(CLIENT_OF_ROCKETMQ[kind])

    assert java == {name: defaults(kind)[name] for name in java}
