"""What Java clients asked the real brokers and name servers, asked of ours: the answers are the same, and so are our questions.

`replay` holds a conversation again, `meaning` says what is compared. Where we answer differently on purpose, `DIFFERENCES` says why;
whatever else differs fails. The releases differ from each other: ours follows 5.3.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.broker.meaning import SENDS
from tests.broker.replay import Finding, Replay, replay
from tests.golden import GOLDEN, captured, needs_golden

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.testing import run

MODES = ("json", "binary", "mixed")
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
POP = (RequestCode.QUERY_ASSIGNMENT, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE)
NEW_IN_5 = (
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
)
TOLD_SINCE_5 = frozenset(
    {
        *("transactionId", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "WAIT"),
        *("__transactionId__", "enableActingMaster", "dataVersion", "mappingDataVersion", "topicQueueMappingDetailMap"),
        *("topicQueueMappingInfoMap", "attributes", "forbiddenTable", "consumeMessageOrderly", "consumeTimeoutMinute"),
        *("groupRetryPolicy", "pullOffset", "topicPutTps", "bname", "topic"),
    }
)
"""Fields of headers, bodies and properties that 4.9 does not have."""
RAW_4 = "wire/4.9.7/json/raw.jsonl"


class Difference(NamedTuple):
    """Where we differ on purpose."""

    why: str
    applies: Callable[[Finding], bool]


def _name(finding: Finding) -> str:
    return finding.path.rpartition(".")[2]


def _of_4(finding: Finding) -> bool:
    return finding.release == "4.9.7"


def _own_words(finding: Finding) -> bool:
    """Clients look at the code of a failure, and show its text."""
    return finding.path == "remark" and None not in (finding.theirs, finding.ours) and 0 not in finding.codes


def _missing_field(finding: Finding) -> bool:
    return finding.request is not None and "missing required field" in (finding.remark or "")


def _no_body(finding: Finding) -> bool:
    return finding.asked in SENDS and finding.request is not None and not finding.request.body


def _longer_by_the_empty_one(finding: Finding) -> bool:
    """Their queue of RawTopic has one message more since then."""
    if not finding.frame.startswith(RAW_4):
        return False
    if isinstance(finding.theirs, list) and isinstance(finding.ours, list):
        return len(finding.theirs) == len(finding.ours) + 1
    return "ffset" in finding.path and finding.theirs is not None and int(finding.theirs) == int(finding.ours or 0) + 1


def _begins_at_0(finding: Finding) -> bool:
    return finding.asked == RequestCode.QUERY_CONSUMER_OFFSET and finding.codes == (ResponseCode.QUERY_NOT_FOUND, 0)


def _of_others(finding: Finding) -> bool:
    return finding.ours is None and _name(finding) in ("PopTopic@CG_pop", "CG_pull")


DIFFERENCES = [
    Difference("failures are told in our own words", _own_words),
    Difference("a missing field is named", _missing_field),
    Difference(
        "two fields of pull answers that no client reads are left out, as in 4.9",
        lambda finding: finding.asked in PULLS and _name(finding) in ("groupSysFlag", "topicSysFlag"),
    ),
    Difference("a queue that never had a message is begun at 0, as in 4.9: no message is missed", _begins_at_0),
    Difference("pop consumption is not served", lambda finding: finding.asked in POP),
    Difference("a send without a body is refused with the fields of every refusal", _no_body),
    Difference("a group is no topic: 5.3 lists the topic's own name among its groups",
        lambda finding: finding.asked == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO),
    Difference("a subscription that came with a pull has the version that came with it",
        lambda finding: finding.asked == RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER and _name(finding) == "subVersion"),
    Difference("no topic for what is not here: pop's checkpoints", lambda finding: finding.asked == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    Difference("tables tell how many rows they have, as in later releases", lambda finding: _name(finding) in ("totalTopicNum", "totalGroupNum")),
    Difference("what was left by other conversations is not here", _of_others),
    Difference("how far transactions are is in the table from the start",
        lambda finding: finding.theirs is None and _name(finding).endswith("@CID_RMQ_SYS_TRANS")),
    Difference("what can be derived from a table is not in it", lambda finding: _name(finding) == "groupTopicMap"),
    # 4.9
    Difference("what 5.3 tells beyond 4.9 is told to everybody",
        lambda finding: _of_4(finding) and finding.theirs is None and _name(finding) in TOLD_SINCE_5),
    Difference("requests that 4.9 did not know yet are answered", lambda finding: _of_4(finding) and finding.asked in NEW_IN_5),
    Difference("4.9 stores a message without a body", _longer_by_the_empty_one),
    Difference("what is wrong with a request is 29, as in 5.3; 4.9 says 1", lambda finding: _of_4(finding) and finding.codes == (1, 29)),
    Difference("requests of a connection are served in order: a heartbeat counts for the pull behind it",
        lambda finding: _of_4(finding) and finding.asked in PULLS and finding.codes[0] == ResponseCode.SUBSCRIPTION_NOT_LATEST),
    Difference("members of a broadcasting group share nothing out: they are not told of each other, as in 5.3",
        lambda finding: _of_4(finding) and finding.codes == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, None)),
]


def expected_differences(findings: list[Finding]) -> list[str]:
    return [str(finding) for finding in findings if not any(one.applies(finding) for one in DIFFERENCES)]


def _conversations() -> list[str]:
    paths = sorted(path for mode in MODES for path in GOLDEN.glob(f"wire/*/{mode}/*.jsonl"))
    return [str(path.relative_to(GOLDEN)) for path in paths if not path.stem.endswith("registration")]


def _topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(name, queues, queues)


BEFORE = {
    "wire/5.3.3/json/pop.jsonl": [_topic("PopTopic", 2)],
    "wire/5.3.3/json/raw.jsonl": [_topic("SendTopic", 2), _topic("PopTopic", 2), _topic("%RETRY%CG_pop", 1)],
    RAW_4: [_topic("SendTopic", 2), _topic("PullTopic", 1), _topic("%RETRY%CG_pull", 1)],
}
"""Topics of conversations before these, which they ask for."""


def held(name: str) -> Replay:
    frames = captured(name)

    async def main() -> Replay:
        async with replay(frames, BEFORE.get(name, [])) as talk:
            await talk.run()
        return talk

    return run(main())


@needs_golden
@pytest.mark.parametrize("name", _conversations())
def test_a_captured_conversation_gets_the_same_answers(name: str) -> None:
    talk = held(name)

    assert expected_differences(talk.findings) == []
    assert talk.compared > 0
