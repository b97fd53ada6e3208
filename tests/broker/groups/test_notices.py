"""Notices: which clients are notified, skipped or disconnected, and what is logged."""

import asyncio
import logging

import pytest
from tests.broker.handlers.client_talk import Client, Room, served, settled
from tests.net.talk import until

from pocketmq.broker.groups import notices
from pocketmq.broker.groups.consumer_group import Conflict
from pocketmq.broker.groups.members import Changes, Notice
from pocketmq.broker.groups.notices import NOTICE_INTERVAL_S, NoticeCounters
from pocketmq.codes import RequestCode
from pocketmq.net.peer import Peer
from pocketmq.testing import run

CONFLICT = Conflict("g", {"T": {"a": ("c1",), "b": ("c2",)}})


async def connected(room: Room, *names: str) -> tuple[list[Client], list[Peer]]:
    """Clients, and the peers that they are for the server."""
    clients = [await room.connect(name) for name in names]
    await until(lambda: len(room.server.peers) == len(names))
    return clients, list(room.server.peers)


def test_every_connection_gets_a_notice_one_way() -> None:
    async def main() -> None:
        async with served() as room:
            clients, peers = await connected(room, "c1", "c2", "c3")

            room.notices.apply(Changes((Notice("g", tuple(peers[:2])), Notice("h", tuple(peers[1:2])))))
            await settled()

            told = [[(one.code, one.ext, one.is_oneway) for one in client.told] for client in clients]
            group_g = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, True)
            group_h = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "h"}, True)
            assert told == [[group_g], [group_g, group_h], []]
            assert room.notices.counters == NoticeCounters(notified=3)

    run(main())


def test_a_large_group_gets_one_notice_for_many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "SMALL_GROUP", 1)

    async def main() -> None:
        async with served() as room:
            clients, peers = await connected(room, "c1", "c2", "c3")

            for members in (peers[:2], peers[:3], peers[1:]):
                room.notices.apply(Changes((Notice("g", tuple(members)),)))
            room.notices.apply(Changes((Notice("h", (peers[0],)), Notice("h", (peers[0],)))))
            await settled()

            at_once = [[(one.ext or {})["consumerGroup"] for one in client.told] for client in clients]
            assert at_once == [["g", "h", "h"], ["g"], []]

            await asyncio.sleep(NOTICE_INTERVAL_S)

            assert [len(client.told) for client in clients] == [3, 2, 1], "the last members, once"

            await asyncio.sleep(2 * NOTICE_INTERVAL_S)
            room.notices.apply(Changes((Notice("g", tuple(peers)),)))
            await settled()

            assert [len(client.told) for client in clients] == [4, 3, 2]

    run(main())


def test_notifications_can_be_switched_off() -> None:
    async def main() -> None:
        async with served() as room:
            (client,), peers = await connected(room, "c1")
            room.change(notify_changes=False)

            room.notices.apply(Changes((Notice("g", tuple(peers)),)))
            await settled()

            assert client.told == []
            assert room.notices.counters == NoticeCounters()

    run(main())


def test_a_full_connection_is_skipped_and_the_others_are_notified() -> None:
    async def main() -> None:
        async with served() as room:
            clients, peers = await connected(room, "c1", "c2")
            peers[0].connection.pause_writing()

            room.notices.apply(Changes((Notice("g", tuple(peers)),)))
            await settled()

            assert [len(client.told) for client in clients] == [0, 1]
            assert room.notices.counters == NoticeCounters(notified=1, skipped=1)

    run(main())


def test_a_closed_connection_is_skipped() -> None:
    async def main() -> None:
        async with served() as room:
            (client,), peers = await connected(room, "c1")
            client.peer.connection.abort()
            await until(lambda: not room.server.peers)

            room.notices.apply(Changes((Notice("g", tuple(peers)),)))

            assert room.notices.counters == NoticeCounters(skipped=1)

    run(main())


def test_a_conflict_is_logged_as_a_warning_and_its_end_as_info(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served() as room:
            with caplog.at_level(logging.INFO, "pocketmq.broker"):
                room.notices.apply(Changes(conflicts=(CONFLICT, Conflict("h", {}))))

            assert [(line.levelname, line.message) for line in caplog.records] == [
                ("WARNING", str(CONFLICT)),
                ("INFO", "All members of group h have the same subscriptions again"),
            ]
            assert room.notices.counters == NoticeCounters(conflicts=1)

    run(main())


def test_silent_connections_are_closed() -> None:
    async def main() -> None:
        async with served() as room:
            clients, peers = await connected(room, "c1", "c2")

            room.notices.apply(Changes(silent=(peers[0],)))
            await until(lambda: not clients[0].peer.is_open)

            assert list(room.server.peers) == [peers[1]]
            assert "no heartbeat for 120 s" in str(peers[0].connection.reason)
            assert room.notices.counters == NoticeCounters(silent=1)

    run(main())
