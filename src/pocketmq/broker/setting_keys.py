"""RocketMQ's names for the settings of a broker: in broker.conf, and in the requests that query (26) and change (25) them.
`model.setting_keys` reads and writes them.

At run time, every setting can change that `BrokerParts.apply` can apply. The others are rejected, each with the reason.

`WITHOUT_EFFECT`: keys of RocketMQ's broker.conf that change nothing here, with the reason that the broker logs.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.access import settings as access
from pocketmq.broker import replication_settings as replication
from pocketmq.broker.settings import MAX_QUEUES, BrokerSettings
from pocketmq.errors import InvalidSetting
from pocketmq.metrics import page as metrics
from pocketmq.model import DelayLevels
from pocketmq.model.setting_keys import (
    NUMBER,
    PATH,
    SWITCH,
    TEXT,
    Consequence,
    Constant,
    Form,
    Key,
    ReadKeys,
    SettingKeys,
    read_number,
)
from pocketmq.net import Address
from pocketmq.protocol.signing import Credentials
from pocketmq.store.queues.consume_queue import ENTRY_BYTES
from pocketmq.store.settings import LOG_FOLDER, FlushMode

_BY_REASON: Final[dict[str, str]] = {
    "one event loop serves everything, there are no thread pools": """
        ackMessageThreadPoolNums adminBrokerThreadPoolNums batchDispatchRequestThreadPoolNums clientCallbackExecutorThreads
        clientManageThreadPoolNums clientWorkerThreads consumerManageThreadPoolNums disableCallbackExecutor
        disableNettyWorkerGroup dispatchCqThreads dispatchFromSenderThread endTransactionThreadPoolNums
        heartbeatThreadPoolNums litePullMessageThreadPoolNums loadBalanceProcessorThreadPoolNums
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums putMessageFutureThreadPoolNums
        queryMessageThreadPoolNums recoverConcurrently recoverThreadPoolNums sendMessageThreadPoolNums
        serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
        serverSelectorThreads serverWorkerThreads timerEnableDisruptor timerGetMessageThreadNum timerPutMessageThreadNum
        useEpollNativeSelector enableFastChannelEventProcess""",
    "there are no locks: one thread owns the store": """
        debugLockEnable lockInStrictMode spinLockCollisionRetreatOptimalDegree topicQueueLockNum useABSLock
        useReentrantLockWhenPutMessage""",
    "requests of this kind have no queue": """
        adminBrokerThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity
        consumerManagerThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests
        putThreadPoolQueueCapacity queryThreadPoolQueueCapacity replyThreadPoolQueueCapacity waitTimeMillsInAdminBrokerQueue""",
    "lite pulls wait in the queue of pulls": "litePullThreadPoolQueueCapacity waitTimeMillsInLitePullQueue",
    "requests that waited too long are always rejected": "brokerFastFailureEnable",
    "the operating system decides": """
        clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize connectTimeoutMillis
        enableNetWorkFlowControl enableReconnectForGoAway highSpeedMode maxReconnectIntervalTimeSeconds
        serverPooledByteBufAllocatorEnable serverSocketRcvBufSize serverSocketSndBufSize transferMsgByHeap
        writeBufferHighWaterMark writeBufferLowWaterMark""",
    "proxies are not supported": "socksProxyConfig",
    "the settings that can change at run time are fixed": "configBlackList",
    "changes at run time are not written to a file": "brokerConfigPath",
    "no installation folder is needed": "rocketmqHome",
    "this is the spelling of an older RocketMQ; use `mapped…`": """
        mapedFileSizeCommitLog mapedFileSizeConsumeQueue mapedFileSizeConsumeQueueExt""",
    "plug-ins are not supported": "messageStorePlugIn",
    "all files are below storePathRootDir": """
        storePathCommitLog storePathConsumeQueue storePathIndex storePathEpochFile storePathBrokerIdentity
        storeCheckpoint abortFile""",
    "the name servers are those in namesrvAddr": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval isScanAvailableNameSrv
        loadBalancePollNameServerInterval rmqAddressServerDomain rmqAddressServerSubGroup updateNameServerAddrPeriod""",
    "all topics are registered at each interval, and a changed one at once": """
        compatibleWithOldNameSrv compressedRegister enableSingleTopicRegister enableSplitRegistration forceRegister
        splitRegistrationSize""",
    "the broker serves requests as soon as it is started": """
        disappearTimeAfterStart skipPreOnline startAcceptSendRequestTimeStamp""",
    "a shutdown always finishes running requests, within a second": """
        enableShutdownGracefully shutdownWaitTimeSeconds""",
    "a send is stored in any case, and its answer says how many slaves have it": "minInSyncReplicas",
    "haMaxGapNotInSync is the limit": "haSlaveFallbehindMax",
    "a slave never moves the offset of a consumer": "offsetCheckInSlave",
    "slaves do not act as masters, and no controller elects them": """
        allAckInSyncStateSet asyncLearner brokerHeartbeatInterval brokerNotActiveTimeoutMillis consumerFallbehindThreshold
        duplicationEnable enableAutoInSyncReplicas enableRemoteEscape enableSlaveActingMaster forwardTimeout
        haMaxTimeSlaveNotCatchup maxSlaveResendLength sendHeartbeatTimeoutMillis syncBrokerMemberGroupPeriod
        syncFromLastFile syncMasterFlushOffsetWhenStartup totalReplicas""",
    "there is no controller": """
        brokerElectionPriority checkSyncStateSetPeriod controllerAddr controllerHeartBeatTimeoutMills
        fetchControllerAddrByDnsLookup syncControllerMetadataPeriod""",
    "there is no DLedger": """
        dLegerGroup dLegerPeers dLegerSelfId dLegerStorePath preferredLeader isEnableBatchPush enableBatchPush
        storePathDLedgerCommitLog""",
    "there is no RocksDB, queues and tables are plain files": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin configManagerVersion enableRocksDBLog
        memTableFlushIntervalMs realTimePersistRocksDBConfig rocksdbCQDoubleWriteEnable rocksdbCompressionType
        rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec timerRocksDBEnable
        transRocksDBEnable""",
    "there are no broker containers": "isBrokerContainer isInBrokerContainer replicasPerDiskPartition",
    "accounts are in the file accountsFile": """
        authConfigPath authenticationMetadataProvider authenticationProvider authenticationStrategy
        authenticationWhitelist authorizationMetadataProvider authorizationProvider authorizationStrategy
        authorizationWhitelist initAuthenticationUser migrateAuthFromV1Enabled""",
    "check points and acks of pops are written at once, and leases are kept in memory": """
        appendAckAsync appendCkAsync enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enableSkipLongAwaitingAck popCkOffsetMaxQueueSize
        popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
        popConsumerKVServiceInit popConsumerKVServiceLog popLongPollingForceNotifyInterval popPollingMapSize
        popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead reviveAckWaitMs
        reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime skipWhenCKRePutReachMaxTimes""",
    "clients store the offsets of broadcasting groups": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond enableBroadcastOffsetStore""",
    "there are no light queues": """
        enableLmq enableLmqStats enableMultiDispatch maxLmqConsumeQueueNum""",
    "there are no compaction topics": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
        enableCompaction maxOffsetMapSize""",
    "reads of old messages are limited by maxTransferBytesOnMessageInDisk, not by group": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable globalColdReadThreshold
        timerColdDataCheckIntervalMs usePIDColdCtrStrategy disableConsumeIfConsumerReadSlowly""",
    "filters check each message, there are no bit maps": """
        bitMapLengthConsumeQueueExt enableCalcFilterBitMap enableConsumeQueueExt expectConsumerNumUseFilter
        filterDataCleanTimeSpan mappedFileSizeConsumeQueueExt maxErrorRateOfBloomFilter filterServerNums""",
    "retry topics are not filtered: their messages matched before": "filterSupportRetry",
    "log files are sparse or allocated (allocateLogFiles), and the operating system caches them": """
        cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
        dataReadAheadEnable destroyMapedFileIntervalForcibly fastFailIfNoBufferInStorePool
        flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable putConsumeQueueDataByFileChannel redeleteHangedFileInterval
        warmMapedFileEnable writeWithoutMmap""",
    "the log is written at the end of each turn": """
        commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog flushCommitLogTimed
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage putMessageTimeout""",
    "queues and index are derived from the log continuously": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval deleteConsumeQueueFilesInterval
        dispatchCqCacheNum enableAsyncReput enableBuildConsumeQueueConcurrently flushIntervalConsumeQueue
        mapperFileSizeBatchConsumeQueue maxBatchDeleteFilesNum messageIndexSafe putMsgIndexHightWater readUnCommitted
        recheckReputOffsetFromCq searchBcqByCacheEnable travelCqFileNumWhenGetMessage""",
    "recovery always checks everything that was not synced": """
        checkCRCOnRecover diskFallRecorded enabledAppendPropCRC forceVerifyPropCRC maxChecksumRange
        maxRecoveryCommitlogFiles""",
    "cleaning runs every few seconds, and deletes files above diskSpaceCleanForciblyRatio": """
        cleanResourceInterval deleteCommitLogFilesInterval logicalDiskSpaceCleanForciblyThreshold""",
    "maxFilterMessageSize and maxTransferCountOnMessageInMemory limit a read": """
        maxConsumeQueueScan pullBatchMaxMessageCount accessMessageInMemoryHotRatio""",
    "a query by key names its limit, up to 64": "defaultQueryMaxNum maxMsgsNumBatch",
    "timed messages wait in the log, there is no timer log": """
        mappedFileSizeTimerLog timerCheckMetricsWhen timerCongestNumEachSlot timerEnableCheckMetrics
        timerEnableRetryUntilSuccess timerFlushIntervalMs timerInterceptDelayLevel timerMetricSmallThreshold
        timerProgressLogIntervalMs timerRollWindowSlot timerSkipUnknownError timerStopDequeue timerStopEnqueue
        timerWarmEnable storeTimerLogInMemory""",
    "delayed messages are delivered in batches, one level after another": """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        maxDelayTime""",
    "tables are saved when they change": "consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep",
    "there is no history of offsets": "flushConsumerOffsetHistoryInterval",
    "offsets are deleted with their group or topic": "enableCleanExpiredOffset clearRetryTopicWhenDeleteTopic",
    "these topics and groups always exist": "brokerTopicEnable clusterTopicEnable enableCreateSysGroup",
    "the trace topic has its default name; create another one like any topic": "msgTraceTopicName",
    "this is always on": """
        asyncSendEnable autoMessageVersionOnTopicLen enableRegisterProducer realTimeNotifyConsumerChange
        validateSystemTopicWhenUpdateTopic maxTopicLength allowRecallWhenBrokerNotWriteable""",
    "silent members are removed after channelExpiredTimeout": """
        channelNotActiveInterval cleanOfflineBrokerInterval subscriptionExpiredTimeout""",
    "groups are created by administrators or, with autoCreateSubscriptionGroup, by consumers": "useStaticSubscription",
    "pull consumers are served like push consumers": "rejectPullConsumerEnable",
    "a topic may contain messages of all types": "enableMixedMessageType",
    "statistics of every topic and group are always collected": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats enableDetailStat enableScheduleMessageStats
        estimateAccumulation maxStatsIdleTimeInMinutes sampleCountThreshold sampleSteps transactionMetricFlushInterval
        commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount
        commercialTransCount""",
    "metrics are on a page for Prometheus, and not pushed": """
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit""",
    "the log is written to stderr": "isolateLogEnable printChannelGroups printChannelGroupsMinNum",
}

WITHOUT_EFFECT: Final[dict[str, str]] = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}


log = logging.getLogger("pocketmq.broker")

DEFAULT_NAME_SERVER_PORT: Final = 9876

_FLUSH_MODES = {"ASYNC_FLUSH": FlushMode.ASYNC, "SYNC_FLUSH": FlushMode.SYNC}
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def read_name_servers(text: str) -> tuple[Address, ...]:
    """Addresses separated by `;`, as in RocketMQ."""
    words = [word.strip() for word in text.split(";")]
    return tuple(Address.parse(word, default_port=DEFAULT_NAME_SERVER_PORT) for word in words if word)


def _flush_mode(text: str) -> FlushMode:
    if text not in _FLUSH_MODES:
        raise ValueError(" or ".join(_FLUSH_MODES))
    return _FLUSH_MODES[text]


def _hours(text: str) -> tuple[int, ...]:
    hours = [hour.strip() for hour in text.removesuffix(";").split(";")]
    if not all(hour.isascii() and hour.isdigit() and int(hour) < 24 for hour in hours):
        raise ValueError("an hour of the day, 00 to 23, or several like 04;16")
    return tuple(map(int, hours))


def _percent(text: str) -> float:
    number = read_number(text)
    if not 1 <= number <= 100:
        raise ValueError("from 1 to 100, in percent")
    return number / 100


def _queue_count(text: str) -> int:
    number = read_number(text)
    if number > MAX_QUEUES:
        raise ValueError(f"a number up to {MAX_QUEUES}")
    return number


def _share(text: str) -> int:
    """RocketMQ's default is -1, and means the same as 0."""
    return 0 if text == "-1" else read_number(text)


def _entries(text: str) -> int:
    """Bytes to entries; RocketMQ rounds up to whole entries as well."""
    return -(-read_number(text) // ENTRY_BYTES)


def _credentials(text: str) -> Credentials | None:
    """RocketMQ's form: `{"accessKey":"…","secretKey":"…"}`. The error does not contain the text, which has the secret."""
    if not text:
        return None
    try:
        merged = msgspec.json.decode(text, type=dict[str, str])
        return Credentials(merged["accessKey"], merged["secretKey"])
    except (msgspec.MsgspecError, KeyError):
        form = '{"accessKey":"…","secretKey":"…"}'
        raise InvalidSetting(f"the value must have the form {form}") from None


def _without_secret(credentials: Credentials) -> str:
    return msgspec.json.encode({"accessKey": credentials.access_key, "secretKey": "***"}).decode()


def _levels_text(levels: DelayLevels) -> str:
    words = []
    for level in range(1, len(levels) + 1):
        ms = levels.ms(level)
        unit, unit_ms = next((unit, unit_ms) for unit, unit_ms in _UNITS if ms % unit_ms == 0)
        words.append(f"{ms // unit_ms}{unit if ms else 's'}")
    return " ".join(words)


_HOST = Form(lambda text: text or None)
_ADDRESSES = Form(read_name_servers, lambda addresses: ";".join(map(str, addresses)))
_FLUSH = Form(_flush_mode, lambda mode: f"{mode.upper()}_FLUSH")
_HOURS = Form(_hours, lambda hours: ";".join(f"{hour:02}" for hour in hours))
_PERCENT = Form(_percent, lambda ratio: str(round(ratio * 100)))
_QUEUES = Form(_queue_count)
_SHARE = Form(_share, lambda number: str(number or -1))
_QUEUE_BYTES = Form(_entries, lambda entries: str(entries * ENTRY_BYTES))
_LEVELS = Form(DelayLevels, _levels_text)
_CREDENTIALS = Form(_credentials, _without_secret)

_IDENTITY = "topics, routes and message ids already contain it"
_LISTENING = "the listeners are already open"
_TRUST = "requests cannot change access and name servers"
_LAYOUT = "the store is already open, and its files depend on it"
_OPEN = "the store is already open, and reads it only when it opens"
_STORED = "waiting messages depend on it"
_CLOCK = "the clock uses it since the start"

_AT_START: Final[dict[str, Key]] = {
    # identity, addresses, name servers
    "brokerClusterName": Key("cluster", TEXT, why_not=_IDENTITY),
    "brokerName": Key("broker_name", TEXT, why_not=_IDENTITY),
    "brokerId": Key("broker_id", NUMBER, why_not=_IDENTITY),
    "bindAddress": Key("host", TEXT, why_not=_LISTENING),
    "listenPort": Key("port", NUMBER, why_not=_LISTENING),
    "brokerIP1": Key("advertised_host", _HOST, why_not=_LISTENING),
    "advertisedPort": Key("advertised_port", NUMBER, why_not=_LISTENING),
    "vipChannelEnable": Key("vip_channel", SWITCH, why_not=_LISTENING),
    "serverSocketBacklog": Key("backlog", NUMBER, why_not=_LISTENING),
    "serverChannelMaxIdleTimeSeconds": Key("idle_s", NUMBER, why_not=_LISTENING),
    "maxConnections": Key("max_connections", NUMBER, why_not=_LISTENING),
    "maxConnectionsPerHost": Key("max_connections_per_host", NUMBER, why_not=_LISTENING),
    "maxUnfinishedBytes": Key("unfinished.max_bytes", NUMBER, why_not=_LISTENING),
    "maxUnsignedUnfinishedBytes": Key("unfinished.max_unsigned_bytes", NUMBER, why_not=_LISTENING),
    "frameTimeoutSeconds": Key("unfinished.timeout_s", NUMBER, why_not=_LISTENING),
    "namesrvAddr": Key("name_servers", _ADDRESSES, why_not=_TRUST),
    "innerClientAuthenticationCredentials": Key("credentials", _CREDENTIALS, why_not=_TRUST),
    "useTLS": Key("name_server_tls.enabled", SWITCH, why_not=_TRUST),
    "tls.client.trustCertPath": Key("name_server_tls.ca", PATH, why_not=_TRUST),
    "tls.client.pinnedCertPath": Key("name_server_tls.pinned", PATH, why_not=_TRUST),
    "tls.client.certPath": Key("name_server_tls.cert", PATH, why_not=_TRUST),
    "tls.client.keyPath": Key("name_server_tls.key", PATH, why_not=_TRUST),
    "tls.client.authServer": Key("name_server_tls.verify", SWITCH, why_not=_TRUST),
    # access
    **{name: key._replace(why_not=_TRUST) for name, key in access.KEYS.items()},
    **{name: key._replace(why_not=_LISTENING) for name, key in metrics.KEYS.items()},
    **replication.keys(_LISTENING),
    # the store
    "storePathRootDir": Key("store.folder", PATH, why_not=_LAYOUT),
    "mappedFileSizeCommitLog": Key("store.log_file_bytes", NUMBER, why_not=_LAYOUT),
    "mappedFileSizeConsumeQueue": Key("store.queue_file_entries", _QUEUE_BYTES, why_not=_LAYOUT),
    "flushDiskType": Key("store.flush", _FLUSH, why_not=_OPEN),
    "transientStorePoolEnable": Key("store.transient_pool", SWITCH, why_not=_OPEN),
    "transientStorePoolSize": Key("store.pool_buffers", NUMBER, why_not=_OPEN),
    "transientStorePoolBufferBytes": Key("store.pool_buffer_bytes", NUMBER, why_not=_OPEN),
    "messageIndexEnable": Key("store.index_enabled", SWITCH, why_not=_LAYOUT),
    "maxHashSlotNum": Key("store.index_slots", NUMBER, why_not=_LAYOUT),
    "maxIndexNum": Key("store.index_entries", NUMBER, why_not=_LAYOUT),
    "flushConsumeQueueLeastPages": Key("store.queue_least_pages", NUMBER, why_not=_OPEN),
    "flushConsumeQueueThoroughInterval": Key("store.queue_thorough_ms", NUMBER, why_not=_OPEN),
    "slowWriteMillis": Key("store.slow_write_ms", NUMBER, why_not=_OPEN),
    "allocateLogFiles": Key("store.allocate_files", SWITCH, why_not=_OPEN),
    "preparedLogFiles": Key("store.prepared_files", NUMBER, why_not=_OPEN),
    "maxOpenQueueFiles": Key("store.max_open_queue_files", NUMBER, why_not=_OPEN),
    "messageDelayLevel": Key("store.delay_levels", _LEVELS, why_not=_STORED),
    "timerPrecisionMs": Key("timer.precision_ms", NUMBER, why_not=_STORED),
    "clockStepConfirmMills": Key("clock_step_confirm_ms", NUMBER, why_not=_CLOCK),
}


def _at_run_time(field: str, form: Form) -> Key:
    return Key(field, form, at_run_time=True)


_AT_RUN_TIME: Final[dict[str, Key]] = {
    # permissions and limits
    "regionId": _at_run_time("region", TEXT),
    "maxMessageSize": _at_run_time("store.max_message_bytes", NUMBER),
    "autoCreateTopicEnable": _at_run_time("auto_create_topic", SWITCH),
    "autoCreateSubscriptionGroup": _at_run_time("auto_create_group", SWITCH),
    "defaultTopicQueueNums": _at_run_time("default_queues", _QUEUES),
    "traceTopicEnable": _at_run_time("trace_topic", SWITCH),
    "maxTopics": _at_run_time("max_topics", NUMBER),
    "maxRetryTopics": _at_run_time("max_retry_topics", NUMBER),
    "maxGroups": _at_run_time("max_groups", NUMBER),
    "brokerPermission": _at_run_time("permission", NUMBER),
    "rejectTransactionMessage": _at_run_time("transactions_rejected", SWITCH),
    "traceOn": _at_run_time("trace_on", SWITCH),
    # flow control
    "sendThreadPoolQueueCapacity": _at_run_time("flow.max_waiting_sends", NUMBER),
    "pullThreadPoolQueueCapacity": _at_run_time("flow.max_waiting_pulls", NUMBER),
    "heartbeatThreadPoolQueueCapacity": _at_run_time("flow.max_waiting_heartbeats", NUMBER),
    "endTransactionPoolQueueCapacity": _at_run_time("flow.max_waiting_transactions", NUMBER),
    "maxWaitingBytes": _at_run_time("flow.max_waiting_bytes", NUMBER),
    "waitTimeMillsInSendQueue": _at_run_time("flow.send_wait_ms", NUMBER),
    "waitTimeMillsInPullQueue": _at_run_time("flow.pull_wait_ms", NUMBER),
    "waitTimeMillsInHeartbeatQueue": _at_run_time("flow.heartbeat_wait_ms", NUMBER),
    "waitTimeMillsInTransactionQueue": _at_run_time("flow.transaction_wait_ms", NUMBER),
    "osPageCacheBusyTimeOutMills": _at_run_time("flow.page_cache_busy_ms", NUMBER),
    "maxHeldPulls": _at_run_time("flow.max_held_pulls", NUMBER),
    "ackThreadPoolQueueCapacity": _at_run_time("flow.max_waiting_leases", NUMBER),
    "waitTimeMillsInAckQueue": _at_run_time("flow.lease_wait_ms", NUMBER),
    # pops and assignments
    "popCkMaxBufferSize": _at_run_time("pop.max_leases", NUMBER),
    "popPollingSize": _at_run_time("pop.max_waiting_per_queue", NUMBER),
    "maxPopPollingSize": _at_run_time("pop.max_waiting", NUMBER),
    "popFromRetryProbability": _at_run_time("pop.retry_percent", NUMBER),
    "enableRetryTopicV2": _at_run_time("pop.retry_topic_v2", SWITCH),
    "retrieveMessageFromPopRetryTopicV1": _at_run_time("pop.read_retry_topic_v1", SWITCH),
    "initPopOffsetByCheckMsgInMem": _at_run_time("pop.begin_at_first_in_memory", SWITCH),
    "enablePopMessageThreshold": _at_run_time("pop.limits_in_flight", SWITCH),
    "popInflightMessageThreshold": _at_run_time("pop.max_in_flight", NUMBER),
    "serverLoadBalancerEnable": _at_run_time("pop.assigns_queues", SWITCH),
    "defaultMessageRequestMode": _at_run_time("pop.default_mode", TEXT),
    "defaultPopShareQueueNum": _at_run_time("pop.default_share", _SHARE),
    # reading
    "maxTransferBytesOnMessageInMemory": _at_run_time("store.hot_read_bytes", NUMBER),
    "maxTransferCountOnMessageInMemory": _at_run_time("store.hot_read_count", NUMBER),
    "maxTransferBytesOnMessageInDisk": _at_run_time("store.cold_read_bytes", NUMBER),
    "maxTransferCountOnMessageInDisk": _at_run_time("store.cold_read_count", NUMBER),
    "maxFilterMessageSize": _at_run_time("store.max_read_entries", _QUEUE_BYTES),
    "accessMessageInMemoryMaxRatio": _at_run_time("store.memory_ratio", _PERCENT),
    "enablePropertyFilter": _at_run_time("property_filter", SWITCH),
    "litePullMessageEnable": _at_run_time("lite_pull", SWITCH),
    "longPollingEnable": _at_run_time("long_polling", SWITCH),
    "shortPollingTimeMills": _at_run_time("short_polling_ms", NUMBER),
    "slaveReadEnable": _at_run_time("slave_read", SWITCH),
    # flushing
    "flushIntervalCommitLog": _at_run_time("store.flush_interval_ms", NUMBER),
    "flushCommitLogLeastPages": _at_run_time("store.flush_least_pages", NUMBER),
    "flushCommitLogThoroughInterval": _at_run_time("store.flush_thorough_ms", NUMBER),
    "syncFlushTimeout": _at_run_time("store.sync_timeout_ms", NUMBER),
    "maxUnsyncedBytes": _at_run_time("store.max_unsynced_bytes", NUMBER),
    # retention
    "fileReservedTime": _at_run_time("store.retention_hours", NUMBER),
    "deleteWhen": _at_run_time("store.delete_hours", _HOURS),
    "diskMaxUsedSpaceRatio": _at_run_time("store.disk_clean_ratio", _PERCENT),
    "diskSpaceCleanForciblyRatio": _at_run_time("store.disk_force_ratio", _PERCENT),
    "diskSpaceWarningLevelRatio": _at_run_time("store.disk_full_ratio", _PERCENT),
    "deleteFileBatchMax": _at_run_time("store.max_deletes_per_run", NUMBER),
    "cleanFileForciblyEnable": _at_run_time("store.force_clean", SWITCH),
    # clients
    "channelExpiredTimeout": _at_run_time("client_expiry_ms", NUMBER),
    "queueLockMillis": _at_run_time("lock_lease_ms", NUMBER),
    "notifyConsumerIdsChangedEnable": _at_run_time("notify_changes", SWITCH),
    "storeReplyMessageEnable": _at_run_time("store_reply_messages", SWITCH),
    "useServerSideResetOffset": _at_run_time("server_side_reset", SWITCH),
    "clientCallMillis": _at_run_time("client_call_ms", NUMBER),
    # delays, timers, transactions
    "timerWheelEnable": _at_run_time("timer.enabled", SWITCH),
    "transactionCheckInterval": _at_run_time("transaction.check_interval_ms", NUMBER),
    "transactionOpMsgMaxSize": _at_run_time("transaction.op_batch_bytes", NUMBER),
    "transactionOpBatchInterval": _at_run_time("transaction.op_batch_ms", NUMBER),
    "timerMaxDelaySec": _at_run_time("timer.max_delay_s", NUMBER),
    "recallMessageEnable": _at_run_time("timer.recall_enabled", SWITCH),
    "transactionTimeOut": _at_run_time("transaction.timeout_ms", NUMBER),
    "transactionCheckMax": _at_run_time("transaction.max_checks", NUMBER),
    # saving and registering
    "registerBrokerTimeoutMills": _at_run_time("register_timeout_ms", NUMBER),
    "flushConsumerOffsetInterval": _at_run_time("save_interval_ms", NUMBER),
    "flushDelayOffsetInterval": _at_run_time("progress_save_interval_ms", NUMBER),
    "registerNameServerPeriod": _at_run_time("register_interval_ms", NUMBER),
    "routeWaitMills": _at_run_time("route_wait_ms", NUMBER),
}

KEYS: Final[dict[str, Key]] = _AT_RUN_TIME | _AT_START

CONSTANTS: Final[dict[str, Constant | Consequence]] = {
    "enableDLegerCommitLog": Constant("false", "a DLedger log has files of another format"),
    "enableControllerMode": Constant("false", "there is no controller"),
    "readOnlyCommitLogStorePaths": Constant("", "the log is in one folder, and files in others would not be found"),
    "storeType": Constant("default", "queues are plain files, there is no RocksDB"),
    **access.CONSTANTS,
}

_SETTING_KEYS = SettingKeys[BrokerSettings]("broker", KEYS, without_effect=WITHOUT_EFFECT, constants=CONSTANTS)


def read_keys(properties: Mapping[str, str], base: BrokerSettings | None = None) -> ReadKeys[BrokerSettings]:
    """`base`, or the defaults, with these properties. UsageError for an invalid value."""
    base = base or BrokerSettings()
    properties = dict(properties)
    log_folder = properties.pop("storePathCommitLog", "").strip()
    own_warnings = _let_disk_ratios_rise(properties, base) + replication.make_master(properties)
    settings, warnings = _SETTING_KEYS.read(properties, base)
    settings = replication.follow_listen_port(settings, properties, own_warnings)
    _check_log_folder(log_folder, settings)
    limit = settings.store
    if limit.max_message_bytes > limit.max_body_bytes:
        own_warnings.append(
            f"maxMessageSize={limit.max_message_bytes} is lowered to {limit.max_body_bytes}: no client reads a larger frame"
        )
    return ReadKeys(settings, own_warnings + warnings)


def change_keys(settings: BrokerSettings, properties: Mapping[str, str]) -> BrokerSettings:
    """The settings after a change at run time; see `SettingKeys.change`."""
    properties = dict(properties)
    for warning in _let_disk_ratios_rise(properties, settings):
        log.warning("%s", warning)
    return _SETTING_KEYS.change(settings, properties)


write_keys = _SETTING_KEYS.write


def _let_disk_ratios_rise(properties: dict[str, str], base: BrokerSettings) -> list[str]:
    """RocketMQ's default files let cleaning begin at 88 %, although forced cleaning begins at 85 %."""
    merged = write_keys(base) | properties
    clean, force = merged["diskMaxUsedSpaceRatio"].strip(), merged["diskSpaceCleanForciblyRatio"].strip()
    if not (clean.isdecimal() and force.isdecimal() and int(clean) > int(force)):
        return []
    properties["diskMaxUsedSpaceRatio"] = force
    return [
        f"diskMaxUsedSpaceRatio={clean} is lowered to {force}: above diskSpaceCleanForciblyRatio, files are deleted anyway"
    ]


def _check_log_folder(text: str, settings: BrokerSettings) -> None:
    """A log in another folder is an error: a broker with an empty log would set every offset to 0."""
    folder = settings.store.folder / LOG_FOLDER
    if text and Path(text) != folder:
        raise InvalidSetting(
            f"storePathCommitLog={text}: the log must be in {folder}, below storePathRootDir. "
            "Move it there, or remove storePathCommitLog"
        )
