"""Messages that are not due yet."""

import asyncio

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import real_cluster

from pocketmq.errors import ImpossibleRequest
from pocketmq.model.message_id import RecallHandle
from pocketmq.testing import run


def test_delayed_and_timed_messages_are_listed_with_their_delivery_times() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            now_ms = c.clock.now_ms()
            await c.send("T", b"level", delay_level=5)
            await c.send("T", b"timed", deliver_at_ms=now_ms + 30_000)
            await c.send("T", b"at once")

            waiting = await admin.delays.waiting()

            assert waiting.is_complete
            assert [(one.message.body, one.topic, one.level) for one in waiting.found] == [
                (b"timed", "T", None),
                (b"level", "T", 5),
            ]
            timed, level = waiting.found
            assert 29_000 <= timed.due_ms - now_ms <= 30_000
            assert 60_000 <= level.due_ms - now_ms < 61_000

    run(main())


def test_delivered_and_recalled_messages_are_not_listed() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"soon", delay_level=1)
            await c.send("T", b"soon, too", delay_ms=3_000)
            async with c.producer() as producer:
                timed = await producer.send("T", b"never", delay_ms=60_000)
                assert timed.recall_handle is not None
                await producer.recall("T", timed.recall_handle)
            await asyncio.sleep(10)

            assert (await admin.delays.waiting()).found == ()

    run(main())


def test_an_incomplete_result_is_marked() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", b"3", delay_level=5)

            few = await admin.delays.waiting(limit=2)

            assert (len(few.found), few.is_complete) == (2, False)

    run(main())


@pytest.mark.parametrize("is_indexed", [True, False])
def test_the_message_of_a_handle_is_found_as_long_as_it_waits(is_indexed: bool) -> None:
    async def main() -> None:
        async with real_cluster(store={"index_enabled": is_indexed}) as c, admin_of(c) as admin:
            await c.send("T", b"another", delay_ms=60_000)
            async with c.producer() as producer:
                sent = await producer.send("T", b"timed", delay_ms=60_000)
                soon = await producer.send("T", b"soon", delay_ms=2_000)
                assert sent.recall_handle is not None
                assert soon.recall_handle is not None
                handle = RecallHandle.parse(sent.recall_handle)
                await asyncio.sleep(5)

                found = await admin.delays.find_by_handle(sent.recall_handle)

                assert found is not None
                assert (found.message.body, found.topic, found.level) == (b"timed", "T", None)
                assert found in (await admin.delays.waiting()).found
                assert await admin.delays.find_by_handle(soon.recall_handle) is None, "it was delivered"
                for other in (
                    handle._replace(unique_id="X"),
                    handle._replace(deliver_ms=handle.deliver_ms + 1000),
                    handle._replace(topic="U"),
                ):
                    assert await admin.delays.find_by_handle(str(other)) is None
                await producer.recall("T", sent.recall_handle)
                assert await admin.delays.find_by_handle(sent.recall_handle) is None, "it was taken back"

    run(main())


def test_only_timed_messages_can_be_recalled() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"timed", delay_ms=30_000)
            await c.send("T", b"level", delay_level=5)
            timed, level = (await admin.delays.waiting()).found

            assert await admin.delays.cancel(timed) == timed.message.message_id
            with pytest.raises(ImpossibleRequest, match="has delay level 5"):
                await admin.delays.cancel(level)

            assert (await admin.delays.waiting()).found == (level,)
            await asyncio.sleep(120)
            assert [message.body for queue in range(4) for message in c.stored("T", queue)] == [b"level"]

    run(main())
