"""The headers of requests and responses as the protocol's own tables have them: code, then wire names, with `!` behind the mandatory ones."""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.administration import (
    AddWritePermReply,
    AllGroupsReply,
    AllTopicsReply,
    BrokerConfigReply,
    DataVersionReply,
    KvConfigReply,
    RegisterBrokerReply,
    WipeWritePermReply,
)
from pocketmq.protocol.api.messages import (
    ChangeInvisibleTimeReply,
    HeartbeatReply,
    NotificationReply,
    OffsetReply,
    PollingInfoReply,
    PopReply,
    PullReply,
    QueryMessageReply,
    RecallReply,
    SendReply,
    StoreTimeReply,
)
from pocketmq.protocol.fields import Fields

NAME_SERVER_REQUESTS = """
103  brokerName! brokerAddr! clusterName! haServerAddr! brokerId! heartbeatTimeoutMillis enableActingMaster compressed bodyCrc32
104  brokerName! brokerAddr! clusterName! brokerId!
322  brokerName! brokerAddr! clusterName! brokerId!
904  clusterName! brokerAddr! brokerName! brokerId epoch maxOffset confirmOffset heartbeatTimeoutMills electionPriority
105  topic! acceptStandardJsonOnly
224  cluster!
100  namespace! key! value!
101  namespace! key!
102  namespace! key!
219  namespace!
205  brokerName!
327  brokerName!
216  topic! clusterName
217  topic!
901  clusterName! brokerName!
106
206
304
311
312
313
318
319
"""

CLIENT_REQUESTS = """
39   topic tranStateTableOffset! commitLogOffset! msgId transactionId offsetMsgId
40   consumerGroup!
220  topic! group! timestamp! isForce! queueId offset
221  topic! group! clientAddr
307  consumerGroup! clientId! jstackEnable
309  consumerGroup! clientId msgId brokerName topic topicSysFlag groupSysFlag
326  producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId! sysFlag! bornTimestamp! flag! properties reconsumeTimes unitMode bornHost! storeHost! storeTimestamp!
"""

BROKER_REQUESTS = """
10   producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId! sysFlag! bornTimestamp! flag! properties reconsumeTimes unitMode batch maxReconsumeTimes bname
324  producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId! sysFlag! bornTimestamp! flag! properties reconsumeTimes unitMode batch maxReconsumeTimes bname
310  a! b! c! d! e! f! g! h! i j k l m n
320  a! b! c! d! e! f! g! h! i j k l m n
325  a! b! c! d! e! f! g! h! i j k l m n
36   offset! group! delayLevel! originMsgId originTopic unitMode maxReconsumeTimes
37   topic producerGroup! tranStateTableOffset! commitLogOffset! commitOrRollback! fromTransactionCheck msgId! transactionId
370  producerGroup topic! recallHandle!
11   consumerGroup! topic! queueId! queueOffset! maxMsgNums! sysFlag! commitOffset! suspendTimeoutMillis! subVersion! subscription expressionType maxMsgBytes requestSource proxyFrowardClientId
361  consumerGroup! topic! queueId! queueOffset! maxMsgNums! sysFlag! commitOffset! suspendTimeoutMillis! subVersion! subscription expressionType maxMsgBytes requestSource proxyFrowardClientId
14   consumerGroup! topic! queueId! setZeroIfNotFound
15   consumerGroup! topic! queueId! commitOffset!
30   topic! queueId! committed
31   topic! queueId!
29   topic! queueId! timestamp! boundaryType
32   topic! queueId!
34
35   clientID! producerGroup consumerGroup
38   consumerGroup!
41
42
46
12   topic! key! maxNum! beginTimestamp! endTimestamp! _UNIQUE_KEY_QUERY
33   offset! topic
17   topic! defaultTopic! readQueueNums! writeQueueNums! perm! topicFilterType! order! topicSysFlag attributes force
18
215  topic!
351  topic!
21   topicSeq dataVersion maxTopicNum
200
225
201  groupSeq dataVersion maxGroupNum
352  group!
207  groupName! cleanOffset removeOffset
202  topic!
208  consumerGroup! topic topicList
203  consumerGroup!
204  producerGroup!
328
28
25
26
222  group! topic! timestamp! isForce! queueId offset
223  topic! group! clientAddr
300  topic!
343  group!
345  group! topic
303  topic! group!
305
307  consumerGroup! clientId! jstackEnable
309  consumerGroup! clientId msgId brokerName topic topicSysFlag groupSysFlag
308  topic! compareGroup! filterGroups
314  srcGroup! destGroup! topic offline
315  statsName! statsKey!
317  isOrder!
321  topic queueId index count consumerGroup
43
45
306
316
329
323  topic msgId
353  group! topic! readable
907
400
401
402
200050  consumerGroup! topic! queueId! maxMsgNums! invisibleTime! pollTime! bornTime initMode! expType exp order attemptId
200051  consumerGroup! topic! queueId! extraInfo! offset! liteTopic
200151
200052  topic! queueId! maxMsgNums! consumerGroup!
200053  consumerGroup! topic! queueId! extraInfo! offset! invisibleTime! liteTopic suspend
200054  consumerGroup! topic! queueId! pollTime! bornTime! order attemptId expType exp
200055  consumerGroup! topic! queueId!
"""

RESPONSES = """
10   msgId! queueId! queueOffset! transactionId batchUniqId recallHandle MSG_REGION TRACE_ON
11   suggestWhichBrokerId! nextBeginOffset! minOffset! maxOffset! offsetDelta topicSysFlag groupSysFlag forbiddenType
12   indexLastUpdateTimestamp! indexLastUpdatePhyoffset!
14   offset!
29   offset!
30   offset!
31   offset!
32   timestamp!
34   IS_SUPPORT_HEART_BEAT_V2 IS_SUB_CHANGE
370  msgId! MSG_REGION
21   totalTopicNum
201  totalGroupNum
26   version!
101  value
103  haServerAddr masterAddr
205  wipeTopicCount!
327  addTopicCount!
322  changed!
200050  popTime! invisibleTime! reviveQid! restNum! startOffsetInfo msgOffsetInfo orderCountInfo
200053  popTime! invisibleTime! reviveQid!
200054  hasMsg! pollingFull
200055  pollingNum!
"""


REPLIES: dict[int, type[Fields]] = {
    10: SendReply,
    11: PullReply,
    12: QueryMessageReply,
    14: OffsetReply,
    29: OffsetReply,
    30: OffsetReply,
    31: OffsetReply,
    32: StoreTimeReply,
    34: HeartbeatReply,
    370: RecallReply,
    21: AllTopicsReply,
    201: AllGroupsReply,
    26: BrokerConfigReply,
    101: KvConfigReply,
    103: RegisterBrokerReply,
    205: WipeWritePermReply,
    327: AddWritePermReply,
    322: DataVersionReply,
    200050: PopReply,
    200053: ChangeInvisibleTimeReply,
    200054: NotificationReply,
    200055: PollingInfoReply,
}
SAME_REPLY = {310: 10, 320: 10, 324: 10, 325: 10, 361: 11}


def rows(table: str) -> dict[RequestCode, set[str]]:
    lines = (line.split() for line in table.strip().splitlines())
    return {RequestCode(int(code)): set(names) for code, *names in lines}
