"""Topics: who may create which, changes of the version, and persistence over restarts."""

from collections.abc import Iterator
from functools import partial

import pytest
from tests.golden import GOLDEN, captured, needs_golden

from pocketmq.broker.settings import MAX_QUEUES
from pocketmq.broker.topics import TopicTable, built_in_topics, parse_changes
from pocketmq.codes import Perm, RequestCode, TopicFlag
from pocketmq.errors import ImpossibleRequest, InvalidName, InvalidParameter, InvalidSetting, TopicNotFound
from pocketmq.model.names import GroupName, TopicName
from pocketmq.protocol.api.administration import CreateTopic
from pocketmq.protocol.api.messages import SendMessageV2
from pocketmq.protocol.bodies import topics as bodies
from pocketmq.protocol.bodies.clients import HeartbeatData
from pocketmq.protocol.bodies.registration import read_registration
from pocketmq.protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigList, TopicFilterType
from pocketmq.protocol.java_json import read_json, write_pretty_json

NOW = 1_700_000_000_000
TEMPLATE = "TBW102"
T = TopicName("T")
GROUP = GroupName("g")


@pytest.fixture
def topics() -> TopicTable:
    return TopicTable("DefaultCluster", "broker-a")


def test_a_broker_has_system_topics() -> None:
    found = {topic.topic_name: (topic.read_queue_nums, topic.perm) for topic in built_in_topics("C", "b", trace=True)}

    assert found == {
        "TBW102": (8, 7),
        "C": (16, 7),
        "b": (1, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1),
        "RMQ_SYS_TRACE_TOPIC": (1, 6),
    }


def test_template_and_trace_topic_can_be_absent() -> None:
    names = {topic.topic_name for topic in built_in_topics("C", "b", auto_create=False)}

    assert TEMPLATE not in names
    assert "RMQ_SYS_TRACE_TOPIC" not in names


def test_a_topic_is_found_or_raises_an_error(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 2, 2)], NOW)

    assert topics.get("T") == topics.require("T") == TopicConfig("T", 2, 2)
    assert "T" in topics
    assert TopicConfig("T", 2, 2) in list(topics)
    assert topics.get("U") is None
    assert "U" not in topics
    with pytest.raises(TopicNotFound, match="topic U does not exist"):
        topics.require("U")


def test_every_change_increases_the_version_and_other_calls_do_not(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 2, 2)], NOW)
    first = topics.version
    topics.put([TopicConfig("T", 2, 2)], NOW + 1)
    same = topics.version
    topics.put([TopicConfig("T", 4, 4)], NOW + 2)
    second = topics.version
    topics.delete("T", NOW + 3)

    assert first == DataVersion(1, 0, NOW)
    assert same == first
    assert second == DataVersion(2, 0, NOW + 2)
    assert topics.version == DataVersion(3, 0, NOW + 3)


def test_an_alteration_needs_an_existing_topic(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 2, 2)], NOW)
    topics.create_for_send(TopicName("made"), "TBW102", 4, NOW)
    new = topics.alterations
    topics.put([TopicConfig("T", 2, 2)], NOW)
    same = topics.alterations
    topics.put([TopicConfig("T", 4, 4)], NOW)
    changed = topics.alterations
    topics.delete("T", NOW)
    gone = topics.alterations
    topics.restore(topics.snapshot())

    assert (new, same) == (0, 0)
    assert same < changed < gone < topics.alterations


def test_a_restarted_table_never_has_an_earlier_version() -> None:
    assert TopicTable("C", "b", started_ms=1).version != TopicTable("C", "b", started_ms=2).version


def test_changed_topics_are_reported_once_with_their_current_state(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 2, 2)], NOW)
    topics.put([TopicConfig("T", 4, 4), TopicConfig("U")], NOW)
    topics.put([TopicConfig("V")], NOW)
    topics.delete("V", NOW)

    assert topics.pop_changed() == [TopicConfig("T", 4, 4), TopicConfig("U")]
    assert topics.pop_changed() == []


# administration


@pytest.mark.parametrize("name", ["", "bad*topic", "a@b", "../etc", "x" * 128, "%RETRY%" + "x" * 249])
def test_an_invalid_name_is_refused(topics: TopicTable, name: str) -> None:
    with pytest.raises(InvalidName) as refused:
        topics.put([TopicConfig(name)], NOW)

    assert refused.value.code == 29


@pytest.mark.parametrize("name", ["x" * 127, "%RETRY%" + "x" * 248, "%DLQ%g", "a|b_c-d%e"])
def test_a_valid_name_is_accepted(topics: TopicTable, name: str) -> None:
    topics.put([TopicConfig(name)], NOW)

    assert name in topics


@pytest.mark.parametrize(
    "name", [TEMPLATE, "DefaultCluster", "broker-a", "rmq_sys_anything", "TRANS_CHECK_MAX_TIME_TOPIC"]
)
def test_a_system_topic_can_be_neither_changed_nor_deleted(topics: TopicTable, name: str) -> None:
    before = topics.snapshot()

    for change in (lambda: topics.put([TopicConfig(name)], NOW), lambda: topics.delete(name, NOW)):
        with pytest.raises(InvalidName, match="belongs to the broker") as refused:
            change()
        assert refused.value.code == 29

    assert topics.snapshot() == before
    assert topics.is_system(name)


def test_system_topics_are_listed(topics: TopicTable) -> None:
    listed = topics.system_topics()

    assert {TEMPLATE, "DefaultCluster", "broker-a", "TRANS_CHECK_MAX_TIME_TOPIC"} <= set(listed)
    assert all(map(topics.is_system, listed))
    assert not topics.is_system("T")


@pytest.mark.parametrize("queues", [0, 1, MAX_QUEUES - 1, MAX_QUEUES])
def test_queue_numbers_within_the_limit_are_accepted(topics: TopicTable, queues: int) -> None:
    topics.put([TopicConfig("T", queues, queues)], NOW)

    assert topics.require("T").write_queue_nums == queues


@pytest.mark.parametrize(
    "config", [TopicConfig("T", -1, 1), TopicConfig("T", 1, MAX_QUEUES + 1), TopicConfig("T", perm=16)]
)
def test_impossible_queue_numbers_are_refused(topics: TopicTable, config: TopicConfig) -> None:
    with pytest.raises(InvalidParameter) as refused:
        topics.put([config], NOW)

    assert refused.value.code == 29
    assert "T" not in topics


def test_several_topics_are_all_created_or_none(topics: TopicTable) -> None:
    with pytest.raises(InvalidName):
        topics.put([TopicConfig("T"), TopicConfig("bad*topic")], NOW)

    assert "T" not in topics
    assert topics.pop_changed() == []


def test_attributes_are_changed_and_kept(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", attributes=parse_changes("+message.type=FIFO"))], NOW)
    topics.put([TopicConfig("T", 2, 2)], NOW)

    assert topics.require("T") == TopicConfig("T", 2, 2, attributes={"message.type": "FIFO"})

    topics.put([TopicConfig("T", 2, 2, attributes=parse_changes("-message.type"))], NOW)
    assert topics.require("T").attributes == {}
    with pytest.raises(ImpossibleRequest):
        topics.put([TopicConfig("T", 2, 2, attributes=parse_changes("-message.type"))], NOW)


def test_deleting_reports_whether_the_topic_existed(topics: TopicTable) -> None:
    topics.put([TopicConfig("T")], NOW)
    version = topics.version

    assert topics.delete("T", NOW)
    assert topics.version != version
    assert "T" not in topics

    version = topics.version
    assert not topics.delete("T", NOW)
    assert topics.version == version
    with pytest.raises(InvalidName):
        topics.delete("", NOW)


# topics made by sending to them


@pytest.mark.parametrize(("asked", "queues"), [(1, 1), (7, 7), (8, 8), (9, 8), (1000, 8)])
def test_an_unknown_topic_is_created_with_at_most_the_queues_of_its_template(
    topics: TopicTable, asked: int, queues: int
) -> None:
    made = topics.create_for_send(T, TEMPLATE, asked, NOW, sys_flag=TopicFlag.UNIT)

    assert made == TopicConfig("T", queues, queues, Perm.READ_WRITE, topic_sys_flag=1)
    assert topics.require("T") == made
    assert topics.pop_changed() == [made]
    assert topics.version.counter == 1


def test_a_topic_gets_permission_and_filter_type_of_its_template(topics: TopicTable) -> None:
    topics.put([TopicConfig("template", 3, 2, Perm.READ | Perm.INHERIT, TopicFilterType.MULTI_TAG)], NOW)

    made = topics.create_for_send(T, "template", 4, NOW)

    assert made == TopicConfig("T", 2, 2, Perm.READ, TopicFilterType.MULTI_TAG)


def test_an_existing_topic_is_not_changed(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 1, 1)], NOW)
    version = topics.version

    assert topics.create_for_send(T, TEMPLATE, 4, NOW) == TopicConfig("T", 1, 1)
    assert topics.version == version


@pytest.mark.parametrize("asked", [0, -1])
def test_no_topic_without_queues_is_created(topics: TopicTable, asked: int) -> None:
    with pytest.raises(InvalidParameter, match="at least 1"):
        topics.create_for_send(T, TEMPLATE, asked, NOW)

    assert "T" not in topics


@pytest.mark.parametrize(
    ("template", "why"), [("NoTemplate", "does not exist either"), ("plain", "has no inherit permission")]
)
def test_without_a_template_no_topic_is_created(topics: TopicTable, template: str, why: str) -> None:
    topics.put([TopicConfig("plain")], NOW)

    with pytest.raises(TopicNotFound, match=why):
        topics.create_for_send(T, template, 4, NOW)


def test_a_retry_topic_needs_no_template_and_has_one_queue(topics: TopicTable) -> None:
    for template in ("NoTemplate", TEMPLATE):
        made = topics.create_for_send(TopicName(f"%RETRY%{template}"), template, 4, NOW)
        assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (1, 1, 6)


def test_with_creation_off_only_a_template_of_an_administrator_creates_topics() -> None:
    topics = TopicTable("C", "b", auto_create=False)
    topics.restore(bodies.TopicTable(DataVersion(), {TEMPLATE: TopicConfig(TEMPLATE, 8, 8, 7)}))
    topics.put([TopicConfig("own", 2, 2, 7)], NOW)

    for template in (TEMPLATE, "C", "b"):
        with pytest.raises(TopicNotFound, match="autoCreateTopicEnable is off"):
            topics.create_for_send(T, template, 4, NOW)
    assert topics.create_for_send(T, "own", 4, NOW).write_queue_nums == 2


def test_sends_create_topics_up_to_the_limit_and_administrators_more() -> None:
    own = len(TopicTable("C", "b"))
    topics = TopicTable("C", "b", max_topics=own + 2)

    topics.create_for_send(TopicName("T1"), TEMPLATE, 4, NOW)
    topics.create_for_send(TopicName("T2"), TEMPLATE, 4, NOW)
    with pytest.raises(TopicNotFound, match="maxTopics"):
        topics.create_for_send(TopicName("T3"), TEMPLATE, 4, NOW)

    topics.put([TopicConfig("T3")], NOW)
    topics.ensure_retry(GROUP, 1, NOW)
    assert topics.create_for_send(TopicName("T2"), TEMPLATE, 4, NOW).topic_name == "T2"
    assert len(topics) == own + 4


def test_topics_of_groups_have_a_limit_of_their_own() -> None:
    own = len(TopicTable("C", "b"))
    topics = TopicTable("C", "b", max_topics=own + 1, max_retry_topics=4)

    early = [topics.creates_retry_topics_early]
    topics.ensure_retry(GroupName("G1"), 1, NOW)
    topics.ensure_dlq(GroupName("G1"), NOW)
    early.append(topics.creates_retry_topics_early)
    topics.create_for_send(TopicName("%RETRY%G2"), TEMPLATE, 1, NOW)
    topics.ensure_dlq(GroupName("G2"), NOW)
    with pytest.raises(TopicNotFound, match="maxRetryTopics"):
        topics.ensure_retry(GroupName("G3"), 1, NOW)
    with pytest.raises(TopicNotFound, match="maxRetryTopics"):
        topics.ensure_dlq(GroupName("G3"), NOW)
    with pytest.raises(TopicNotFound, match="maxRetryTopics"):
        topics.create_for_send(TopicName("%RETRY%G3"), TEMPLATE, 1, NOW)

    assert (early, topics.retry_topics) == ([True, False], 4)
    assert topics.ensure_dlq(GroupName("G1"), NOW).topic_name == "%DLQ%G1"
    topics.create_for_send(TopicName("T1"), TEMPLATE, 1, NOW)
    topics.delete("%RETRY%G1", NOW)
    topics.ensure_retry(GroupName("G3"), 1, NOW)
    restored = TopicTable("C", "b", max_retry_topics=4)
    restored.restore(topics.snapshot())
    assert restored.retry_topics == 4


# topics of a group


@pytest.mark.parametrize(
    ("asked", "queues"), [(-1, 1), (0, 1), (1, 1), (3, 3), (MAX_QUEUES, MAX_QUEUES), (MAX_QUEUES + 1, MAX_QUEUES)]
)
def test_a_group_gets_its_retry_topic(topics: TopicTable, asked: int, queues: int) -> None:
    made = topics.ensure_retry(GROUP, asked, NOW, sys_flag=TopicFlag.UNIT_SUB)

    assert made == TopicConfig("%RETRY%g", queues, queues, topic_sys_flag=2)
    assert topics.pop_changed() == [made]
    assert topics.ensure_retry(GROUP, 9, NOW) == made
    assert topics.pop_changed() == []


def test_a_retry_topic_is_ordered_while_the_group_has_an_ordered_topic(topics: TopicTable) -> None:
    assert topics.ensure_retry(GROUP, 1, NOW, order=True).order
    assert topics.ensure_retry(GROUP, 1, NOW).order
    assert not topics.ensure_retry(GROUP, 1, NOW, order=False).order
    assert topics.version.counter == 2


def test_a_group_gets_a_dead_letter_topic(topics: TopicTable) -> None:
    made = topics.ensure_dlq(GROUP, NOW)

    assert made == TopicConfig("%DLQ%g", 1, 1)
    assert topics.ensure_dlq(GROUP, NOW) is made


def test_the_name_server_decides_which_topics_are_ordered(topics: TopicTable) -> None:
    topics.put([TopicConfig("T"), TopicConfig("U")], NOW)

    topics.mark_ordered(["T", "Unknown"], NOW)
    version = topics.version
    topics.mark_ordered(["T"], NOW)

    assert topics.is_order("T")
    assert not topics.is_order("U")
    assert not topics.is_order("Unknown")
    assert topics.version == version


# telling the name servers


def test_all_topics_are_registered_with_the_version(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 2, 2)], NOW)

    told = topics.registration()

    assert told.data_version == topics.version
    assert told.topic_config_table == topics.snapshot().topic_config_table


@pytest.mark.parametrize(("permission", "perm"), [(6, 7), (7, 7), (4, 4), (2, 2), (0, 0), (5, 5)])
def test_a_broker_with_less_permission_registers_less(topics: TopicTable, permission: int, perm: int) -> None:
    topics.put([TopicConfig("T", perm=7, order=True)], NOW)

    (told,) = topics.registration(permission, topics.pop_changed()).topic_config_table.values()

    assert told == TopicConfig("T", perm=perm, order=True)
    assert topics.require("T").perm == 7


# keeping


def test_a_restored_table_continues_with_the_saved_rows(topics: TopicTable) -> None:
    topics.put([TopicConfig("T", 2, 2)], NOW)
    again = TopicTable("DefaultCluster", "broker-a")

    again.restore(topics.snapshot())

    assert again.snapshot() == topics.snapshot()
    assert again.pop_changed() == []
    again.put([TopicConfig("U")], NOW)
    assert again.version == DataVersion(2, 0, NOW)


def test_a_snapshot_does_not_change_with_the_table(topics: TopicTable) -> None:
    taken = topics.snapshot()

    topics.put([TopicConfig("T")], NOW)

    assert "T" not in taken.topic_config_table


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
def test_the_table_of_an_apache_broker_is_saved_unchanged(kind: str) -> None:
    data = (GOLDEN / "store" / "5.3.3" / kind / "config" / "topics.json").read_bytes()
    topics = TopicTable("DefaultCluster", "broker-a", trace=True)

    topics.restore(bodies.TopicTable.decode(data))

    assert read_json(write_pretty_json(topics.snapshot())) == read_json(data)


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
def test_the_table_of_an_older_broker_gets_the_new_fields(kind: str) -> None:
    data = (GOLDEN / "store" / "4.9.7" / kind / "config" / "topics.json").read_bytes()
    topics = TopicTable("DefaultCluster", "broker-a", trace=True)

    topics.restore(bodies.TopicTable.decode(data))

    saved = read_json(write_pretty_json(topics.snapshot()))
    was = read_json(data)
    assert saved["dataVersion"] == {"stateVersion": 0} | was["dataVersion"]
    assert {name: saved["topicConfigTable"][name] for name in was["topicConfigTable"]} == {
        name: {"attributes": {}} | row for name, row in was["topicConfigTable"].items()
    }
    assert saved["topicConfigTable"].keys() - was["topicConfigTable"].keys() == {
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    }


def _replayed(topics: TopicTable, pattern: str) -> Iterator[TopicConfig]:
    """The changes of the table caused by the sends, send-backs, heartbeats and creations of a conversation."""
    for frame in captured(pattern):
        command = frame.command
        if frame.answers is not None or frame.link not in ("broker", "vip"):
            continue
        if command.code == RequestCode.SEND_MESSAGE_V2 and "b" in (command.ext or {}):
            send = SendMessageV2.decode(command.ext or {})
            try:
                topics.create_for_send(TopicName(send.topic), send.default_topic, send.default_topic_queue_nums, NOW)
            except TopicNotFound:
                assert send.topic == "NotCreatedTopic"
        elif command.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            group = GroupName((command.ext or {})["group"])
            topics.ensure_retry(group, 1, NOW)
            if (command.ext or {})["delayLevel"] == "-1":
                topics.ensure_dlq(group, NOW)
        elif command.code == RequestCode.HEART_BEAT:
            for data in HeartbeatData.decode(command.body).consumer_data_set:
                topics.ensure_retry(GroupName(data.group_name), 1, NOW, order=False)
        yield from topics.pop_changed()


@needs_golden
@pytest.mark.parametrize("name", ["sendErrors", "retry", "push", "members", "orderly"])
def test_topics_are_created_as_in_captured_conversations(name: str) -> None:
    registered: dict[str, TopicConfig] = {}
    for frame in captured(f"wire/5.3.3/json/{name}.jsonl"):
        command = frame.command
        if frame.link == "registration" and command.code == RequestCode.REGISTER_BROKER and frame.answers is None:
            table = read_registration(command.body).topics.topic_config_table
            if len(table) == 1:
                registered |= table
    topics = TopicTable("DefaultCluster", "broker-a", trace=True)

    made = list(_replayed(topics, f"wire/5.3.3/json/{name}.jsonl"))

    assert registered
    assert {topic.topic_name: topic for topic in made} == registered
    assert len(made) == len(registered)


@needs_golden
def test_mqadmin_creates_what_it_reports() -> None:
    topics = TopicTable("DefaultCluster", "broker-a", trace=True)
    refused = []
    for frame in captured("mqadmin/5.3.3/wire/*-updateTopic*.jsonl"):
        command = frame.command
        if frame.answers is None and command.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            asked = CreateTopic.decode(command.ext or {})
            put = partial(
                TopicConfig,
                asked.topic,
                asked.read_queue_nums,
                asked.write_queue_nums,
                asked.perm,
                TopicFilterType(asked.topic_filter_type),
                asked.topic_sys_flag or 0,
                asked.order,
            )
            try:
                topics.put([put(parse_changes(asked.attributes))], NOW)
            except InvalidName:
                refused.append(asked.topic)
        elif frame.answers is None and command.code == RequestCode.UPDATE_AND_CREATE_TOPIC_LIST:
            topics.put(TopicConfigList.decode(command.body).topic_config_list, NOW)

    assert refused == ["bad*topic"]
    assert topics.pop_changed() == [
        TopicConfig("AdminTopic", 4, 4),
        TopicConfig("AdminTopic2", 1, 1, perm=4),
        TopicConfig("AdminFifo", 2, 2, attributes={"message.type": "FIFO"}),
        TopicConfig("AdminOrdered", 2, 2, order=True),
        TopicConfig("AdminList1", 2, 2),
        TopicConfig("AdminList2", 1, 1),
    ]


def test_a_topic_with_batch_queues_of_apache_is_refused() -> None:
    topics = TopicTable("C", "b")
    row = TopicConfig("Whole", attributes={"queue.type": "BatchCQ"})

    with pytest.raises(InvalidSetting, match=r"topic Whole cannot be served: it has queue\.type=BatchCQ"):
        topics.restore(bodies.TopicTable(DataVersion(), {"Whole": row, "T": TopicConfig("T")}))

    assert "T" not in topics
    topics.restore(
        bodies.TopicTable(DataVersion(), {"T": TopicConfig("T", attributes={"cleanup.policy": "COMPACTION"})})
    )
