"""Keys of RocketMQ's broker.conf that change nothing here, and why: whoever brings a file along is told, key by key."""

from typing import Final

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
    "requests of this kind are served at once, they have no queue": """
        ackThreadPoolQueueCapacity adminBrokerThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity
        consumerManagerThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests
        putThreadPoolQueueCapacity queryThreadPoolQueueCapacity replyThreadPoolQueueCapacity waitTimeMillsInAckQueue
        waitTimeMillsInAdminBrokerQueue""",
    "lite pulls wait in the queue of pulls": "litePullThreadPoolQueueCapacity waitTimeMillsInLitePullQueue",
    "requests that waited too long are always refused": "brokerFastFailureEnable",
    "the operating system and net settings decide": """
        clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize connectTimeoutMillis
        enableNetWorkFlowControl enableReconnectForGoAway highSpeedMode maxReconnectIntervalTimeSeconds
        serverPooledByteBufAllocatorEnable serverSocketRcvBufSize serverSocketSndBufSize transferMsgByHeap
        writeBufferHighWaterMark writeBufferLowWaterMark""",
    "connections go directly": "socksProxyConfig",
    "what may change while running is a fixed list": "configBlackList",
    "a change while running lasts until the stop, no file is written": "brokerConfigPath",
    "no installation folder is needed": "rocketmqHome",
    "no code is loaded by name": "messageStorePlugIn",
    "everything is kept below storePathRootDir": """
        storePathCommitLog storePathConsumeQueue storePathIndex storePathEpochFile storePathBrokerIdentity
        storeCheckpoint abortFile""",
    "name servers are those that namesrvAddr names": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval isScanAvailableNameSrv
        loadBalancePollNameServerInterval rmqAddressServerDomain rmqAddressServerSubGroup updateNameServerAddrPeriod""",
    "all topics are told at each interval, and a changed one at once": """
        compatibleWithOldNameSrv compressedRegister enableSingleTopicRegister enableSplitRegistration forceRegister
        splitRegistrationSize""",
    "the broker serves from the moment on that it is started": """
        disappearTimeAfterStart skipPreOnline startAcceptSendRequestTimeStamp""",
    "stopping always finishes what is being served, within a second": """
        enableShutdownGracefully shutdownWaitTimeSeconds""",
    "there is no replication": """
        allAckInSyncStateSet asyncLearner brokerHeartbeatInterval brokerIP2 brokerNotActiveTimeoutMillis
        duplicationEnable enableAutoInSyncReplicas enableRemoteEscape enableSlaveActingMaster haFlowControlEnable
        haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup
        haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize inSyncReplicas maxHaTransferByteInSecond
        maxSlaveResendLength minInSyncReplicas offsetCheckInSlave sendHeartbeatTimeoutMillis slaveTimeout
        syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncFromLastFile syncMasterFlushOffsetWhenStartup
        totalReplicas forwardTimeout consumerFallbehindThreshold""",
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
    "accounts are in the file that accountsFile names": """
        authConfigPath authenticationMetadataProvider authenticationProvider authenticationStrategy
        authenticationWhitelist authorizationMetadataProvider authorizationProvider authorizationStrategy
        authorizationWhitelist initAuthenticationUser migrateAuthFromV1Enabled""",
    "there is no pop, consumers pull": """
        appendAckAsync appendCkAsync defaultPopShareQueueNum enableNotifyAfterPopOrderLockRelease
        enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
        enableRetryTopicV2 enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem maxPopPollingSize popCkMaxBufferSize
        popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
        popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
        popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapSize popPollingSize
        popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime
        skipWhenCKRePutReachMaxTimes""",
    "clients share out the queues among themselves": "defaultMessageRequestMode serverLoadBalancerEnable",
    "offsets of broadcasting groups are kept by their clients": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond enableBroadcastOffsetStore""",
    "there are no light queues": """
        enableLmq enableLmqStats enableMultiDispatch maxLmqConsumeQueueNum""",
    "there are no compaction topics": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
        enableCompaction maxOffsetMapSize""",
    "reads of old messages are limited by maxTransferBytesOnMessageInDisk, not by group": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable globalColdReadThreshold
        timerColdDataCheckIntervalMs usePIDColdCtrStrategy disableConsumeIfConsumerReadSlowly""",
    "filters look at each message, there are no bit maps": """
        bitMapLengthConsumeQueueExt enableCalcFilterBitMap enableConsumeQueueExt expectConsumerNumUseFilter
        filterDataCleanTimeSpan mappedFileSizeConsumeQueueExt maxErrorRateOfBloomFilter filterServerNums""",
    "retry topics are not filtered: what comes back had been chosen before": "filterSupportRetry",
    "log files are sparse or allocated (allocateLogFiles), and read as the operating system sees fit": """
        cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
        dataReadAheadEnable destroyMapedFileIntervalForcibly fastFailIfNoBufferInStorePool
        flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable putConsumeQueueDataByFileChannel redeleteHangedFileInterval
        warmMapedFileEnable writeWithoutMmap""",
    "the log is written at the end of each turn": """
        commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog flushCommitLogTimed
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage putMessageTimeout""",
    "queues and index follow the log by themselves": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval deleteConsumeQueueFilesInterval
        dispatchCqCacheNum enableAsyncReput enableBuildConsumeQueueConcurrently flushIntervalConsumeQueue
        mapperFileSizeBatchConsumeQueue maxBatchDeleteFilesNum messageIndexSafe putMsgIndexHightWater readUnCommitted
        recheckReputOffsetFromCq searchBcqByCacheEnable travelCqFileNumWhenGetMessage""",
    "recovery always checks everything that was not synced": """
        checkCRCOnRecover diskFallRecorded enabledAppendPropCRC forceVerifyPropCRC maxChecksumRange
        maxRecoveryCommitlogFiles""",
    "cleaning looks every few seconds, and removes files from diskSpaceCleanForciblyRatio on": """
        cleanResourceInterval deleteCommitLogFilesInterval logicalDiskSpaceCleanForciblyThreshold""",
    "maxFilterMessageSize and maxTransferCountOnMessageInMemory bound a read": """
        maxConsumeQueueScan pullBatchMaxMessageCount accessMessageInMemoryHotRatio""",
    "messages asked for by key are counted by the one who asks, up to 64": "defaultQueryMaxNum maxMsgsNumBatch",
    "timed messages wait in the log and are found again by it": """
        mappedFileSizeTimerLog timerCheckMetricsWhen timerCongestNumEachSlot timerEnableCheckMetrics
        timerEnableRetryUntilSuccess timerFlushIntervalMs timerInterceptDelayLevel timerMetricSmallThreshold
        timerProgressLogIntervalMs timerRollWindowSlot timerSkipUnknownError timerStopDequeue timerStopEnqueue
        timerWarmEnable storeTimerLogInMemory""",
    "delayed messages are delivered in the order of their levels, one turn at a time": """
        enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        maxDelayTime""",
    "tables are saved when they changed": "consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep",
    "a history of offsets is not kept": "flushConsumerOffsetHistoryInterval",
    "offsets of groups are removed with their group or topic": "enableCleanExpiredOffset clearRetryTopicWhenDeleteTopic",
    "these topics and groups are always there": "brokerTopicEnable clusterTopicEnable enableCreateSysGroup",
    "the usual trace topic is meant; one of another name is created like any topic": "msgTraceTopicName",
    "this is always so": """
        asyncSendEnable autoMessageVersionOnTopicLen enableRegisterProducer realTimeNotifyConsumerChange
        validateSystemTopicWhenUpdateTopic maxTopicLength allowRecallWhenBrokerNotWriteable""",
    "members that are silent leave by channelExpiredTimeout": """
        channelNotActiveInterval cleanOfflineBrokerInterval subscriptionExpiredTimeout""",
    "groups are created by administrators or, with autoCreateSubscriptionGroup, by use": "useStaticSubscription",
    "consumers that pull are served like those that are pushed to": "rejectPullConsumerEnable",
    "a topic may hold messages of all kinds": "enableMixedMessageType",
    "statistics are always kept, for every topic and group": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats enableDetailStat enableScheduleMessageStats
        estimateAccumulation maxStatsIdleTimeInMinutes sampleCountThreshold sampleSteps transactionMetricFlushInterval
        commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount
        commercialTransCount""",
    "metrics are on a page for Prometheus, and are pushed nowhere": """
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit""",
    "the log is written to the error stream": "isolateLogEnable printChannelGroups printChannelGroupsMinNum",
}

WITHOUT_EFFECT: Final[dict[str, str]] = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}
