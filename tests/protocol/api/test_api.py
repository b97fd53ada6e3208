"""The API table: one row per request code, and each header as the protocol's own tables have it."""

import pytest

from pocketmq.codes import RequestCode
from pocketmq.protocol.api import API, Envelope, Server
from pocketmq.protocol.fields import Fields, NoFields

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
400
401
402
17   topic! defaultTopic! readQueueNums! writeQueueNums! perm! topicFilterType! order! topicSysFlag attributes force
513  topic! defaultTopic! readQueueNums! writeQueueNums! perm! topicFilterType! order! topicSysFlag attributes force
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
54
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
908  masterFlushOffset!
1007
2001
2002
2003
2004 READ_AHEAD_MODE!
3001 username
3002 username
3003 username
3004 username
3005 filter
3006 subject
3007 subject
3008 subject policyType resource
3009 subject
3010 subjectFilter resourceFilter
200050 consumerGroup! topic! queueId! maxMsgNums! invisibleTime! pollTime! bornTime initMode! expType exp order attemptId
200051 consumerGroup! topic! queueId! extraInfo! offset!
200151
200052 consumerGroup! topic! queueId! maxMsgNums!
200053 consumerGroup! topic! queueId! extraInfo! offset! invisibleTime!
200054 consumerGroup! topic! queueId! pollTime! bornTime order attemptId
200055 consumerGroup! topic! queueId!
200056
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
200050 popTime! invisibleTime! reviveQid! restNum! startOffsetInfo msgOffsetInfo orderCountInfo
200052 popTime! invisibleTime! reviveQid! restNum! startOffsetInfo msgOffsetInfo orderCountInfo
200053 popTime! invisibleTime! reviveQid!
200054 hasMsg! pollingFull
200055 pollingNum!
"""
SAME_RESPONSE = {310: 10, 320: 10, 324: 10, 325: 10, 361: 11}


def rows(table: str) -> dict[RequestCode, set[str]]:
    lines = (line.split() for line in table.strip().splitlines())
    return {RequestCode(int(code)): set(names) for code, *names in lines}


def described(header: type[Fields]) -> set[str]:
    """Wire names of a header, with `!` behind those that are mandatory."""
    names = header.__struct_encode_fields__
    optional = len(header.__struct_defaults__)
    mandatory = len(names) - optional
    return {f"{name}!" for name in names[:mandatory]} | set(names[mandatory:])


def test_every_request_code_has_a_row() -> None:
    assert set(API) == set(RequestCode)
    assert all(row.code == code for code, row in API.items())


@pytest.mark.parametrize("table", [NAME_SERVER_REQUESTS, CLIENT_REQUESTS, BROKER_REQUESTS])
def test_request_headers_have_the_fields_of_the_protocol(table: str) -> None:
    for code, names in rows(table).items():
        assert described(API[code].request) == names, code


OURS = {RequestCode.REGISTER_BROKER: {"topicsRejected"}}
"""Fields beyond RocketMQ's, which its own programs pass over."""


def test_response_headers_have_the_fields_of_the_protocol() -> None:
    expected = rows(RESPONSES)
    for code, row in API.items():
        names = expected.get(RequestCode(SAME_RESPONSE.get(code, code)), set())
        assert described(row.response) == names | OURS.get(code, set()), code


def test_each_request_has_the_server_of_its_table() -> None:
    tables = {
        Server.NAME_SERVER: NAME_SERVER_REQUESTS,
        Server.BROKER: BROKER_REQUESTS,
        Server.CLIENT: CLIENT_REQUESTS,
    }
    for server, table in tables.items():
        assert {code for code, row in API.items() if server in row.served_by} == set(rows(table))


def test_four_requests_are_never_answered() -> None:
    assert {code for code, row in API.items() if row.oneway} == {37, 39, 40, 220}


def test_no_header_has_a_wire_name_twice() -> None:
    for row in API.values():
        for header in (row.request, row.response):
            names = header.__struct_encode_fields__
            assert len(set(names)) == len(names), header


def test_generic_fields_are_declared_in_the_envelope_alone() -> None:
    generic = set(Envelope.__struct_encode_fields__)
    own_broker_name = {RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE}  # what letter `n` is in their twins
    for code, row in API.items():
        shared = generic.intersection(row.request.__struct_encode_fields__)
        assert shared == ({"bname"} if code in own_broker_name else set()), code


def test_requests_without_fields_share_one_header() -> None:
    assert API[RequestCode.HEART_BEAT].request is NoFields
    assert API[RequestCode.GET_BROKER_CLUSTER_INFO].response is NoFields
