"""Producers: selected in turn, found by their client id, shown to administrators."""

from collections.abc import Hashable

import pytest

from pocketmq.broker.groups.consumer_group import ClientInfo
from pocketmq.broker.groups.members import Producers
from pocketmq.errors import ImpossibleRequest
from pocketmq.protocol.bodies.clients import ClientConnection, ProducerConnection, ProducerInfo, ProducerTable

NOW_MS = 1_700_000_000_000


def client(connection: Hashable, client_id: str | None = None) -> ClientInfo:
    return ClientInfo(connection, client_id or f"client-{connection}", f"127.0.0.1:{connection}", "JAVA", 479)


def anyone(_connection: Hashable) -> bool:
    return True


@pytest.fixture
def producers() -> Producers:
    return Producers()


def test_connections_of_a_group_take_turns_as_targets(producers: Producers) -> None:
    for connection in (1, 2, 3):
        producers.join("p", client(connection), 0, NOW_MS)
    producers.join("other", client(4), 0, NOW_MS)

    asked = [producers.next_connection("p", anyone) for _ in range(7)]

    assert asked == [1, 2, 3, 1, 2, 3, 1]


def test_a_heartbeat_does_not_change_the_next_target(producers: Producers) -> None:
    for connection in (1, 2):
        producers.join("p", client(connection), 0, NOW_MS)
    producers.next_connection("p", anyone)
    producers.join("p", client(1), 30, NOW_MS)
    producers.join("p", client(2), 30, NOW_MS)

    assert producers.next_connection("p", anyone) == 2


def test_an_unusable_connection_is_skipped(producers: Producers) -> None:
    for connection in (1, 2, 3):
        producers.join("p", client(connection), 0, NOW_MS)

    assert [producers.next_connection("p", lambda one: one != 2) for _ in range(3)] == [1, 3, 1]
    assert producers.next_connection("p", lambda _: False) is None
    assert producers.next_connection("nobody", anyone) is None


def test_a_client_is_found_by_its_id_while_it_belongs_to_a_group(producers: Producers) -> None:
    producers.join("p", client(1, "c"), 0, NOW_MS)
    producers.join("q", client(1, "c"), 0, NOW_MS)

    producers.leave("p", 1)
    assert producers.find_client("c") == 1

    producers.leave("q", 1)
    assert producers.find_client("c") is None
    assert 1 not in producers


def test_a_client_that_reconnects_is_found_on_its_new_connection(producers: Producers) -> None:
    producers.join("p", client(1, "c"), 0, NOW_MS)
    producers.join("p", client(2, "c"), 1, NOW_MS)

    producers.lost(1)

    assert producers.find_client("c") == 2
    assert producers.connections("p").connection_set == (client(2, "c").described(),)


def test_a_connection_that_changes_its_client_id_is_found_by_the_new_one(producers: Producers) -> None:
    producers.join("p", client(1, "old"), 0, NOW_MS)
    producers.join("p", client(1, "new"), 1, NOW_MS)

    assert producers.find_client("old") is None
    assert producers.find_client("new") == 1
    assert [one.client_id for one in producers.connections("p").connection_set] == ["new"]


def test_a_lost_connection_is_removed_completely(producers: Producers) -> None:
    producers.join("p", client(1), 0, NOW_MS)
    producers.join("q", client(1), 0, NOW_MS)

    producers.lost(1)
    producers.lost(1)
    producers.leave("p", 1)

    assert len(producers) == 0
    assert producers.groups_of(1) == frozenset()
    assert producers.table() == ProducerTable()


@pytest.mark.parametrize(("since", "left"), [(99.9, {"p", "q"}), (100.0, {"p", "q"}), (100.1, {"q"}), (200.1, set())])
def test_groups_expire_one_by_one(producers: Producers, since: float, left: set[str]) -> None:
    producers.join("p", client(1), 100, NOW_MS)
    producers.join("q", client(1), 200, NOW_MS)

    gone = producers.expire(since)

    assert producers.groups_of(1) == left
    assert list(gone) == ([1] if left != {"p", "q"} else [])
    assert (1 in producers) is bool(left)


def test_producers_are_shown_to_an_administrator(producers: Producers) -> None:
    producers.join("p", client(1), 0, NOW_MS)
    producers.join("p", client(2), 0, NOW_MS)
    producers.join("p", client(1), 30, NOW_MS + 30_000)

    assert producers.connections("p") == ProducerConnection(
        (
            ClientConnection("client-1", "127.0.0.1:1", "JAVA", 479),
            ClientConnection("client-2", "127.0.0.1:2", "JAVA", 479),
        )
    )
    assert producers.table() == ProducerTable(
        {
            "p": (
                ProducerInfo("client-1", "/127.0.0.1:1", "JAVA", 479, NOW_MS + 30_000),
                ProducerInfo("client-2", "/127.0.0.1:2", "JAVA", 479, NOW_MS),
            )
        }
    )


def test_a_group_without_producers_cannot_be_shown(producers: Producers) -> None:
    with pytest.raises(ImpossibleRequest, match="no producer of group p") as refused:
        producers.connections("p")

    assert refused.value.code == 1
