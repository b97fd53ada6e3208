"""Requests of Java clients to Apache's brokers and name servers, replayed with ours: the answers and our requests
are the same.

`replay` holds a conversation again, `meaning` says what is compared. Where we answer differently on purpose, `DIFFERENCES` says why;
whatever else differs fails. The releases differ from each other: ours follows 5.3.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
from tests.broker.meaning import SENDS
from tests.broker.replay import Finding, Replay, replay
from tests.golden import GOLDEN, Captured, captured, needs_golden

from pocketmq.codes import HeaderEncoding, RequestCode, ResponseCode
from pocketmq.protocol.bodies.clients import RequestMode
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.testing import run

pytestmark = pytest.mark.usefixtures("twin")

MODES = ("json", "binary", "mixed")
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
QUERY_OFFSET = RequestCode.QUERY_CONSUMER_OFFSET
SYSTEM_TOPICS = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
PULL_CODES = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""No failures, and clients print what is said with them."""
CRASH = re.compile(r"\w+Error: ")
RAW_4 = "wire/4.9.7/json/raw.jsonl"
POPS = "wire/5.3.3/json/pop.jsonl"

# 4.9 does not know these.
REQUESTS_OF_5 = (
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
)
FIELDS_OF_5 = frozenset(
    {
        *("transactionId", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE", "bname", "topic"),
        *("MSG_REGION", "TRACE_ON", "WAIT", "UNIQ_KEY", "__transactionId__"),
        *("enableActingMaster", "dataVersion", "mappingDataVersion", "attributes", "forbiddenTable", "groupSysFlag"),
        *("topicQueueMappingDetailMap", "topicQueueMappingInfoMap", "pullOffset", "topicPutTps"),
        *("consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy"),
    }
)
ROWS_OF_5 = frozenset(
    {
        *("RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_wheel_timer"),
        *("rmq_sys_SYNC_BROKER_MEMBER_broker-a", "CID_RMQ_SYS_TRANS"),
    }
)


class Difference(NamedTuple):
    """Where we differ on purpose."""

    why: str
    applies: Callable[[Finding], bool]


def since_5(applies: Callable[[Finding], bool]) -> Callable[[Finding], bool]:
    """For differences of 4.9 from both 5.3 and us."""
    return lambda finding: finding.release == "4.9.7" and applies(finding)


def _own_words(finding: Finding) -> bool:
    if finding.path != "remark" or finding.codes[0] != finding.codes[1]:
        return False
    return finding.codes[0] not in (0, *PULL_CODES) and not CRASH.match(finding.ours or "")


def _missing_field(finding: Finding) -> bool:
    return finding.our_command is not None and "missing required field" in (finding.our_command.remark or "")


def _no_body(finding: Finding) -> bool:
    return finding.asked in SENDS and finding.request is not None and not finding.request.body


def _longer_by_the_empty_one(finding: Finding) -> bool:
    """Their queue of RawTopic has one message more since then."""
    if not finding.frame.startswith(RAW_4):
        return False
    if isinstance(finding.theirs, list) and isinstance(finding.ours, list):
        return len(finding.theirs) == len(finding.ours) + 1
    is_offset = "ffset" in finding.name and None not in (finding.theirs, finding.ours)
    return is_offset and int(finding.theirs) == int(finding.ours) + 1


def _unknown_to_us(finding: Finding) -> bool:
    if finding.asked == RequestCode.UPDATE_CONSUMER_OFFSET:
        return finding.codes == (0, ResponseCode.TOPIC_NOT_EXIST)
    return finding.name == "NoRawTopic@CG_raw" or finding.frame == "wire/4.9.7/json/offsets.jsonl:44"


DIFFERENCES = [
    Difference("error texts differ: clients check the code, and only show the text", _own_words),
    Difference("a missing field is named, and not taken for null", _missing_field),
    Difference("a send without a body is refused like any other send", _no_body),
    Difference(
        "a queue that never had a message is begun at 0, as in 4.9: no message is missed between asking and beginning",
        lambda finding: finding.asked == QUERY_OFFSET and finding.codes == (ResponseCode.QUERY_NOT_FOUND, 0),
    ),
    Difference(
        "a pull beyond the end continues at the offset of the group: an older log may have been longer, and new messages are not skipped",
        lambda finding: finding.asked in PULLS and finding.name == "nextBeginOffset" and finding.ours == "0",
    ),
    Difference(
        "a pull whose expression cannot be read is refused, and does not get everything",
        lambda finding: finding.asked in PULLS and finding.codes == (0, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ),
    Difference(
        "two fields of pull answers that no client reads are left out, as in 4.9",
        lambda finding: finding.asked in PULLS and finding.name in ("groupSysFlag", "topicSysFlag"),
    ),
    Difference(
        "a topic is not listed among its own groups",
        lambda finding: finding.asked == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    ),
    Difference(
        "a subscription that came with a pull keeps the version that came with it",
        lambda finding: finding.asked == RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER and finding.name == "subVersion",
    ),
    Difference(
        "there is no topic for the checkpoints of pop consumption",
        lambda finding: finding.asked == SYSTEM_TOPICS and {*finding.theirs} - {*finding.ours} == {"CHECKPOINT_TOPIC"},
    ),
    Difference(
        "a table contains the number of its rows, as in later releases",
        lambda finding: finding.theirs is None and finding.name in ("totalTopicNum", "totalGroupNum"),
    ),
    Difference("what can be derived from a table is not in it", lambda finding: finding.name == "groupTopicMap"),
    Difference(
        "what other conversations had left is not here",
        lambda finding: finding.ours is None and finding.name in ("PopTopic@CG_pop", "CG_pop", "CG_pull"),
    ),
    Difference(
        "the recording ends before these answers came",
        lambda finding: finding.theirs is None and finding.frame == "wire/5.3.3/json/orderlyDeadLetter.jsonl:72",
    ),
    Difference(
        "values that 5.3 added to 4.9 are in all answers",
        since_5(lambda finding: finding.theirs is None and finding.name in FIELDS_OF_5 | ROWS_OF_5),
    ),
    Difference(
        "the topics that 5.3 has beyond 4.9 are here",
        since_5(lambda finding: finding.name == "topicList" and {*finding.ours} - {*finding.theirs} <= ROWS_OF_5),
    ),
    Difference("requests that 4.9 did not know are answered", since_5(lambda finding: finding.asked in REQUESTS_OF_5)),
    Difference("4.9 stores a message without a body", since_5(_longer_by_the_empty_one)),
    Difference("a wrong value is 29, as in 5.3, and not 1", since_5(lambda finding: finding.codes == (1, 29))),
    Difference(
        "the name server of 4.9 never answers an unknown code",
        since_5(lambda finding: finding.theirs is None and finding.codes[1] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
    ),
    Difference(
        "requests of a connection are served in order: a heartbeat counts for the pulls behind it",
        since_5(lambda finding: finding.asked in PULLS and finding.codes[0] == ResponseCode.SUBSCRIPTION_NOT_LATEST),
    ),
    Difference(
        "members of a broadcasting group do not rebalance, so they are not notified of each other",
        since_5(lambda finding: finding.codes == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, None)),
    ),
    Difference(
        "what an ordered consumer gives up is a dead letter at once; 4.9 delivers it once more",
        since_5(lambda finding: finding.frame.startswith("wire/4.9.7/json/orderlyDeadLetter.jsonl:78")),
    ),
    Difference(
        "a time behind the last message is the end of the queue, and not its last message",
        since_5(lambda finding: finding.asked == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ),
    Difference(
        "a request not to begin at 0, or for a queue that does not exist, is answered so",
        since_5(lambda finding: finding.asked == QUERY_OFFSET and finding.codes == (0, ResponseCode.QUERY_NOT_FOUND)),
    ),
    Difference("offsets of topics and groups that are not there are refused", since_5(_unknown_to_us)),
    Difference(
        "the levels of delayed messages are in their table as soon as they are used",
        since_5(lambda finding: finding.asked == RequestCode.GET_ALL_DELAY_OFFSET and finding.theirs is None),
    ),
]


def conversations() -> list[str]:
    paths = sorted(path for mode in MODES for path in GOLDEN.glob(f"wire/*/{mode}/*.jsonl"))
    return [str(path.relative_to(GOLDEN)) for path in paths if not path.stem.endswith("registration")]


def _topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(name, queues, queues)


BEFORE = {
    POPS: [_topic("PopTopic", 2)],
    "wire/5.3.3/json/raw.jsonl": [_topic("SendTopic", 2), _topic("PopTopic", 2), _topic("%RETRY%CG_pop", 1)],
    RAW_4: [_topic("SendTopic", 2), _topic("PullTopic", 1), _topic("%RETRY%CG_pull", 1)],
}
"""Topics of earlier conversations, which these ask for."""
MODES_BEFORE = {POPS: [RequestMode("PopTopic", "CG_pop", "POP")]}
"""How a group consumes, as an administrator had set it."""


@cache
def held(name: str) -> Replay:
    """A replayed conversation."""
    frames = captured(name)

    async def main() -> Replay:
        async with replay(frames, BEFORE.get(name, []), modes=MODES_BEFORE.get(name, [])) as talk:
            await talk.run()
        return talk

    return run(main())


@needs_golden
@pytest.mark.parametrize("name", conversations())
def test_a_captured_conversation_gets_the_same_answers(name: str) -> None:
    talk = held(name)

    unexplained = [finding for finding in talk.findings if not any(one.applies(finding) for one in DIFFERENCES)]

    assert "\n".join(map(str, unexplained)) == ""
    assert talk.compared > 0


@needs_golden
@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.why)
def test_every_listed_difference_occurs(difference: Difference) -> None:
    assert any(difference.applies(finding) for name in conversations() for finding in held(name).findings)


@needs_golden
def test_the_conversations_cover_both_encodings_and_every_request_of_a_broker() -> None:
    frames = [frame for name in conversations() for frame in captured(name) if frame.link == "broker"]
    commands = [frame.command for frame in frames]

    assert {command.encoding for command in commands} == set(HeaderEncoding)
    asked = {command.code for frame, command in zip(frames, commands, strict=True) if _is_question(frame, command)}
    assert asked == {
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    }


def _is_question(frame: Captured, command: Command) -> bool:
    return not frame.forward and not command.is_response
