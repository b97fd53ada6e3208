import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import msg as tailing
from pocketmq.cli.msg import Tail, parse_tags


@pytest.mark.parametrize(
    ("text", "tags"), [(None, None), ("*", None), ("", None), ("A", {"A"}), ("A || B||", {"A", "B"}), ("A||*", None)]
)
def test_tags_are_parsed_as_consumers_write_them(text: str | None, tags: set[str] | None) -> None:
    assert parse_tags(text) == tags


def test_a_recreated_topic_is_read_from_its_start(cluster: RunningCluster) -> None:
    cluster.create("anew")
    cluster.send("anew", b"1", b"2", b"3")
    with pocketmq.Admin(cluster.name_server) as admin:
        tail = Tail(admin, "anew", lambda _: True)
        assert [message.body for message in tail.newest(2)] == [b"2", b"3"]
        admin.topics.delete("anew")
        admin.topics.create("anew", queues=1)
        cluster.send("anew", b"4")

        came = tail.new_messages()

    assert [message.body for message in came] == [b"4"]
    assert tail.is_at_end


def test_messages_are_shown_in_the_order_of_their_store_times(cluster: RunningCluster) -> None:
    cluster.create("ordered", queues=2)
    for number in range(6):
        cluster.send("ordered", b"%d" % number, queue=number % 2)
    with pocketmq.Admin(cluster.name_server) as admin:
        tail = Tail(admin, "ordered", lambda message: message.body != b"3")

        assert [message.body for message in tail.new_messages()] == [b"0", b"1", b"2", b"4", b"5"]
        assert tail.new_messages() == []


def test_more_messages_than_one_pull_returns_can_be_shown(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "MAX_AT_ONCE", 2)
    cluster.create("newest")
    cluster.send("newest", *(b"%d" % number for number in range(7)))
    with pocketmq.Admin(cluster.name_server) as admin:
        tail = Tail(admin, "newest", lambda _: True)

        assert [message.body for message in tail.newest(5)] == [b"2", b"3", b"4", b"5", b"6"]
        assert tail.new_messages() == []
        assert len(Tail(admin, "newest", lambda _: True).newest(10**20)) == 7
