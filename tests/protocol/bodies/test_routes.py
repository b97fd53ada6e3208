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
    assert ROUTE.encode() == BARE
    assert ROUTE.encode(strict=True) == STRICT


@pytest.mark.parametrize("data", [BARE, STRICT])
def test_a_route_is_read_in_both_spellings(data: bytes) -> None:
    assert TopicRouteData.decode(data) == ROUTE


def test_the_flag_is_read_in_the_spelling_of_release_4_8() -> None:
    old = QueueData.decode(b'{"brokerName":"a","topicSynFlag":2}')

    assert old == QueueData("a", topic_sys_flag=2)
    assert b"topicSynFlag" not in old.encode()


def test_an_existing_order_configuration_is_contained() -> None:
    data = TopicRouteData(order_topic_conf="a:4;b:2").encode()

    assert b'"orderTopicConf":"a:4;b:2"' in data
    assert TopicRouteData.decode(data).order_topic_conf == "a:4;b:2"


def test_the_cluster_info_has_two_tables() -> None:
    cluster = ClusterInfo({"a": BrokerData("C", "a", {0: "x:1"}, zone_name="z")}, {"C": ("a",)})

    assert cluster.encode() == (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"x:1"},"brokerName":"a","cluster":"C","enableActingMaster":false,'
        b'"zoneName":"z"}},"clusterAddrTable":{"C":["a"]}}'
    )


def test_the_members_of_a_broker_name_are_parsed() -> None:
    group = BrokerMemberGroup(BrokerMembers("C", "a", {0: "x:1"}))

    assert group.encode() == b'{"brokerMemberGroup":{"brokerAddrs":{0:"x:1"},"brokerName":"a","cluster":"C"}}'
