"""Names: which are valid, which belong to the system, and how a namespace wraps them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import InvalidName
from pocketmq.model import names
from pocketmq.model.names import (
    GroupName,
    dlq_topic,
    group_of,
    is_dlq,
    is_internal_group,
    is_retry,
    is_system_group,
    is_system_topic,
    is_topic,
    machine_room_of_broker,
    parse_broker,
    parse_group,
    parse_topic,
    reply_topic,
    retry_topic,
    unwrap,
    wrap,
)

GOOD = st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True)
"""Names that users give; `%` and `|` are allowed but mean something."""


@pytest.mark.parametrize("text", ["T", "Topic-Test_1", "a|b", "ns%T", "%RETRY%g", "x" * 127, "0"])
def test_a_valid_topic_name_is_returned_unchanged(text: str) -> None:
    assert parse_topic(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("a b", "contains ' '"),
        ("../etc", "contains '.'"),
        ("a/b", "contains '/'"),
        ("T\n", r"contains '\\n'"),
        ("Tópico", "contains 'ó'"),
        ("主题", "contains '主'"),
        ("T\0", r"contains '\\x00'"),
        ("x" * 128, "has 128 characters; at most 127"),
        ("%RETRY%" + "x" * 249, "has 256 characters; at most 255"),
    ],
)
def test_an_invalid_topic_name_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        parse_topic(text)


@pytest.mark.parametrize(("given", "kind"), [(b"orders", "bytes"), (5, "int"), (None, "NoneType")])
def test_a_topic_name_that_is_not_text_is_refused(given: Any, kind: str) -> None:
    with pytest.raises(InvalidName, match=f"the topic name {given!r} is {kind}, not text"):
        parse_topic(given)


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%", "%LMQ%"])
def test_a_topic_with_the_name_of_a_group_may_be_longer(prefix: str) -> None:
    longest = prefix + "x" * (255 - len(prefix))

    assert parse_topic(longest) == longest


def test_a_broker_name_may_contain_its_machine_room() -> None:
    assert parse_broker("broker-a") == "broker-a"
    assert parse_broker("room@broker-a") == "room@broker-a"
    for wrong in ("@broker-a", "room@", "a@b@c", "a/b@c"):
        with pytest.raises(InvalidName, match="broker name"):
            parse_broker(wrong)


def test_a_group_name_has_at_most_120_characters() -> None:
    assert parse_group("g" * 120) == "g" * 120
    with pytest.raises(InvalidName, match="at most 120"):
        parse_group("g" * 121)
    with pytest.raises(InvalidName, match="the group name is empty"):
        parse_group("")


@given(st.text(max_size=300))
def test_an_accepted_name_cannot_leave_its_folder(text: str) -> None:
    for parse in (parse_topic, parse_group):
        try:
            taken = parse(text)
        except InvalidName:
            continue

        assert taken.isascii()
        assert not set(taken) & set("/\\.\0:~ ")


@given(GOOD)
def test_retry_and_dead_letter_topics_belong_to_their_group(name: str) -> None:
    group = GroupName(name)

    assert retry_topic(group) == f"%RETRY%{name}"
    assert dlq_topic(group) == f"%DLQ%{name}"
    assert group_of(retry_topic(group)) == group_of(dlq_topic(group)) == group
    assert is_retry(retry_topic(group))
    assert is_dlq(dlq_topic(group))
    assert not is_dlq(retry_topic(group))
    assert not is_retry(dlq_topic(group))
    assert group_of(name) is None


def test_the_longest_group_has_a_retry_topic_with_a_good_name() -> None:
    group = parse_group("g" * 120)

    assert parse_topic(retry_topic(group)) == retry_topic(group)
    assert parse_topic(dlq_topic(group)) == dlq_topic(group)


def test_replies_of_a_cluster_have_a_topic() -> None:
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


@pytest.mark.parametrize("topic", sorted([*names.SYSTEM_TOPICS, "rmq_sys_anything", names.TIMER_TOPIC]))
def test_system_topics_are_known(topic: str) -> None:
    assert is_system_topic(topic)


@pytest.mark.parametrize("group", sorted([*names.SYSTEM_GROUPS, "CID_RMQ_SYS_anything"]))
def test_system_groups_are_known(group: str) -> None:
    assert is_system_group(group)


@pytest.mark.parametrize("name", ["TopicTest", "RMQ_SYS_mine", "xrmq_sys_", "%RETRY%g", "CID_RMQ"])
def test_other_names_are_of_users(name: str) -> None:
    assert not is_system_topic(name)
    assert not is_system_group(name)


def test_topics_that_clients_cannot_send_to_are_system_topics() -> None:
    assert names.UNSENDABLE_TOPICS < names.SYSTEM_TOPICS
    assert names.AUTO_CREATE_TOPIC not in names.UNSENDABLE_TOPICS


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("ns%T", "ns%T"),
        ("%RETRY%ns%g", "%RETRY%ns%g"),
        ("other%T", "ns%other%T"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("%RETRY%CID_RMQ_SYS_x", "%RETRY%CID_RMQ_SYS_x"),
        ("DEFAULT_CONSUMER", "ns%DEFAULT_CONSUMER"),
        ("", ""),
        ("%RETRY%", "%RETRY%"),
    ],
)
def test_a_namespace_is_added_to_names_of_users_once(name: str, wrapped: str) -> None:
    assert wrap("ns", name) == wrapped
    assert wrap("ns", wrapped) == wrapped


@pytest.mark.parametrize("namespace", [None, ""])
def test_without_a_namespace_names_stay_as_they_are(namespace: str | None) -> None:
    assert wrap(namespace, "%RETRY%g") == "%RETRY%g"
    assert unwrap(namespace, "ns%T") == "ns%T"


@given(GOOD, GOOD, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_users_see_the_name_that_they_gave(namespace: str, name: str, prefix: str) -> None:
    wrapped = wrap(namespace, prefix + name)

    assert unwrap(namespace, wrapped) == prefix + name
    assert wrap(namespace, wrapped) == wrapped


def test_a_name_of_another_namespace_stays_wrapped() -> None:
    assert unwrap("ns", "other%T") == "other%T"
    assert unwrap("ns", "%RETRY%other%g") == "%RETRY%other%g"
    assert unwrap("ns", "ns2%T") == "ns2%T"


@pytest.mark.parametrize(
    ("group", "is_internal"),
    [
        ("CID_RMQ_SYS_TRANS", True),
        ("TOOLS_CONSUMER", True),
        ("CLIENT_INNER_PRODUCER", True),
        ("_INNER_TRACE_PRODUCER-shop-PUBLISH-1", True),
        ("spark-rocketmq-sink-0123456789ab-odd", True),
        ("etl-0123456789ab-even", True),
        ("shop%etl-0123456789ab-even", True),
        ("spark-rocketmq-source-0123456789ab", True),
        ("spark-orders", False),
        ("billing-odd", False),
        ("etl-0123456789ab", False),
    ],
)
def test_groups_of_internal_programs_are_known(group: str, is_internal: bool) -> None:
    assert is_internal_group(group) is is_internal


@pytest.mark.parametrize(
    ("name", "room"),
    [("hz@a", "hz"), ("hz", None), ("hz@", None), ("@a", ""), ("hz@a@b", None), ("hz@a@", "hz"), ("", None)],
)
def test_the_machine_room_of_a_broker_name_is_parsed_as_in_java(name: str, room: str | None) -> None:
    assert machine_room_of_broker(name) == room


@pytest.mark.parametrize(("name", "is_valid"), [("orders", True), ("%RETRY%g", True), ("", False), ("a/b", False)])
def test_a_name_can_be_tested_without_an_exception(name: str, is_valid: bool) -> None:
    assert is_topic(name) is is_valid
