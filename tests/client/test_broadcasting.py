"""Broadcasting members and the file in which they keep how far they are. Real servers, virtual time."""

import asyncio
import errno
from pathlib import Path

import pytest
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.errors import StoreDamaged
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def test_a_broadcasting_member_without_writable_offsets_still_reads() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c:
            c.files.fail("make_dir", errno.EROFS, "/home*", times=None)
            basket = Basket()
            consumer = c.push_consumer(start_at="first", broadcast=True, local_offsets="/home")
            consumer.on("T")(basket)
            async with consumer:
                await c.send("T", b"0", b"1")
                await basket.wait(2)
                c.files.heal()

            again = Basket()
            other = c.push_consumer(start_at="first", broadcast=True, local_offsets="/home")
            other.on("T")(again)
            async with other:
                await c.send("T", b"2")
                await again.wait(1)
            assert again.bodies == [b"2"]

    run(main())


def test_a_broadcasting_member_that_cannot_read_its_offsets_is_not_started() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            folder = Path("/home/10.0.2.1@DEFAULT/G")
            c.files.make_dir(folder)
            with c.files.open(folder / "offsets.json", create=True) as file:
                file.write_at(0, b"rubbish")
            consumer = c.push_consumer(start_at="first", broadcast=True, local_offsets="/home")
            consumer.on("T")(Basket())

            with pytest.raises(StoreDamaged, match=r"offsets\.json is damaged"):
                await consumer.start()
            assert not c.members("G")

    run(main())


def test_a_message_with_a_hanging_listener_expires_and_the_offset_advances(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            never = asyncio.Event()
            seen: list[bytes] = []

            async def hang(message: StoredMessage) -> None:
                seen.append(message.body)
                if message.body == b"1":
                    await never.wait()

            consumer = c.push_consumer(
                start_at="first", broadcast=True, local_offsets="/home", consume_timeout_ms=30_000
            )
            consumer.on("T")(hang)
            async with consumer:
                await c.send("T", b"0", b"1", b"2")
                await until(lambda: len(seen) == 3)
                info = await consumer.running_info()
                (queue,) = info.mq_table
                assert info.mq_table[queue].commit_offset == 1
                await asyncio.sleep(61)
                info = await consumer.running_info()
                assert info.mq_table[queue].commit_offset == 3

    run(main())
    assert "BROADCASTING, the message was not handled within 30 s, drop it" in caplog.text
