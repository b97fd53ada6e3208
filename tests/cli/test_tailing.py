import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq
from pocketmq.cli import msg as tailing
from pocketmq.cli.msg import Tail, parse_tags


@pytest.mark.parametrize(
    ("text", "tags"), [(None, None), ("*", None), ("", None), ("A", {"A"}), ("A || B||", {"A", "B"}), ("A||*", None)]
)
def test_tags_are_read_as_consumers_write_them(text: str | None, tags: set[str] | None) -> None:
    assert parse_tags(text) == tags


def test_a_topic_that_is_made_anew_is_read_from_its_begin(cluster: RunningCluster) -> None:
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


def test_messages_come_in_the_order_in_which_they_were_stored(cluster: RunningCluster) -> None:
    cluster.create("ordered", queues=2)
    for number in range(6):
        cluster.send("ordered", b"%d" % number, queue=number % 2)
    with pocketmq.Admin(cluster.name_server) as admin:
        tail = Tail(admin, "ordered", lambda message: message.body != b"3")

        assert [message.body for message in tail.new_messages()] == [b"0", b"1", b"2", b"4", b"5"]
        assert tail.new_messages() == []


def test_the_newest_may_be_more_than_are_read_at_once(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "MAX_AT_ONCE", 2)
    cluster.create("newest")
    cluster.send("newest", *(b"%d" % number for number in range(7)))
    with pocketmq.Admin(cluster.name_server) as admin:
        tail = Tail(admin, "newest", lambda _: True)

        assert [message.body for message in tail.newest(5)] == [b"2", b"3", b"4", b"5", b"6"]
        assert tail.new_messages() == []
        assert len(Tail(admin, "newest", lambda _: True).newest(10**20)) == 7
