"""Routes as old and new name servers write them."""

import pytest

from pocketmq.protocol.bodies.topics import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMembers,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from pocketmq.protocol.java_json import read_body, write_body

ROUTE = TopicRouteData(
    (QueueData("broker-a", 4, 4, 6),),
    (BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),),
)
BARE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
STRICT = BARE.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')


def test_a_route_is_written_for_old_and_for_strict_readers() -> None:
    assert write_body(ROUTE) == BARE
    assert write_body(ROUTE, strict=True) == STRICT


@pytest.mark.parametrize("data", [BARE, STRICT])
def test_a_route_is_read_in_both_spellings(data: bytes) -> None:
    assert read_body(TopicRouteData, data) == ROUTE


def test_the_flag_is_read_in_the_spelling_of_release_4_8() -> None:
    old = read_body(QueueData, b'{"brokerName":"a","topicSynFlag":2}')

    assert old == QueueData("a", topic_sys_flag=2)
    assert b"topicSynFlag" not in write_body(old)


def test_an_order_configuration_comes_along_when_there_is_one() -> None:
    data = write_body(TopicRouteData(order_topic_conf="a:4;b:2"))

    assert b'"orderTopicConf":"a:4;b:2"' in data
    assert read_body(TopicRouteData, data).order_topic_conf == "a:4;b:2"


def test_a_cluster_is_two_tables() -> None:
    cluster = ClusterInfo({"a": BrokerData("C", "a", {0: "x:1"}, zone_name="z")}, {"C": ("a",)})

    assert write_body(cluster) == (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"x:1"},"brokerName":"a","cluster":"C","enableActingMaster":false,'
        b'"zoneName":"z"}},"clusterAddrTable":{"C":["a"]}}'
    )


def test_the_members_of_a_broker_name() -> None:
    group = BrokerMemberGroup(BrokerMembers("C", "a", {0: "x:1"}))

    assert write_body(group) == b'{"brokerMemberGroup":{"brokerAddrs":{0:"x:1"},"brokerName":"a","cluster":"C"}}'
