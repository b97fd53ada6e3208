"""Offsets: recorded, saved, and where."""

import asyncio
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.client.real_cluster import Basket, real_cluster

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.consumer.offsets import (
    LocalFolder,
    LocalOffsets,
    Offsets,
    OffsetStore,
    RemoteOffsets,
    UserOffsets,
    offset_store,
)
from pocketmq.client.consumer.settings import PushSettings
from pocketmq.errors import ConnectFailed, InvalidSetting, PocketMQError, StoreError
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.topics import LocalOffsets as OffsetsFile
from pocketmq.protocol.bodies.topics import LogMark
from pocketmq.testing import FaultyFiles, run

A, B, C = (MessageQueue("T", "broker-a", number) for number in range(3))


class Calls:
    """The side of the broker: records requests, and fails for the queues that a test chooses."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}
        self.asked: list[tuple[str, MessageQueue, int]] = []
        self.away: set[MessageQueue] = set()

    async def of_group(self, group: str, queue: MessageQueue) -> int | None:
        return self.kept.get(queue)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        await self._keep("asked", queue, offset)

    async def commit_one_way(self, group: str, queue: MessageQueue, offset: int) -> None:
        await self._keep("told", queue, offset)

    async def _keep(self, how: str, queue: MessageQueue, offset: int) -> None:
        if queue in self.away:
            raise ConnectFailed(f"{queue} is away")
        self.asked.append((how, queue, offset))
        self.kept[queue] = offset


def remote() -> tuple[Calls, Offsets]:
    calls = Calls()
    return calls, Offsets(RemoteOffsets(cast("OffsetCalls", calls), "G"))


def test_an_offset_only_increases_unless_it_is_reset() -> None:
    _, offsets = remote()

    offsets.advance(A, 5)
    offsets.advance(A, 3)
    assert offsets.get(A) == 5
    offsets.move(A, 3)
    assert offsets.get(A) == 3
    offsets.forget(A)
    assert offsets.get(A) is None


def test_only_changed_offsets_of_the_named_queues_are_saved() -> None:
    async def main() -> None:
        calls, offsets = remote()
        offsets.move(A, 1)
        offsets.move(B, 2)

        await offsets.persist([A, C])
        await offsets.persist([B], wait=True)

        assert calls.asked == [("told", A, 1), ("asked", B, 2)]
        assert offsets.of_topic("T") == {A: 1, B: 2}
        assert offsets.of_topic("X") == {}

    run(main())


def test_an_unavailable_broker_does_not_affect_the_offsets_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        calls, offsets = remote()
        calls.away = {A}
        for queue in (A, B):
            offsets.move(queue, 7)

        await offsets.persist([A, B])
        await offsets.persist([A, B])
        assert calls.kept == {B: 7}
        calls.away.clear()
        await offsets.persist([A, B])
        assert calls.kept == {A: 7, B: 7}

        calls.away = {A}
        with pytest.raises(ConnectFailed):
            await offsets.commit({A: 8, B: 8})
        assert calls.kept == {A: 7, B: 8}

    run(main())
    assert len([record for record in caplog.records if "could not be stored" in record.message]) == 1


def test_a_failure_at_the_stop_is_logged_with_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        calls, offsets = remote()
        calls.away = {A}
        offsets.move(A, 7)
        await offsets.persist([A])
        await offsets.persist([A], wait=True, is_last=True)

    run(main())
    said = [line for line in caplog.messages if "could not be stored" in line]
    assert [line.rpartition("; ")[2] for line in said] == [
        "retrying with the next commit",
        "messages since the last commit are delivered again",
    ]


def test_the_first_offset_of_a_group_in_a_topic_is_sent_before_the_others() -> None:
    """Apache's brokers lose one of two first commits that arrive at once."""
    queues = [MessageQueue(topic, broker, number) for topic in "TU" for broker in ("a", "b") for number in range(3)]

    class SlowCalls(Calls):
        """They answer when the test allows it."""

        def __init__(self) -> None:
            super().__init__()
            self.first: list[MessageQueue] = []
            self.is_answering = asyncio.Event()

        async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
            self.first.append(queue)
            await self.is_answering.wait()
            await super().commit(group, queue, offset)

    async def main() -> None:
        calls = SlowCalls()
        offsets = Offsets(RemoteOffsets(cast("OffsetCalls", calls), "G"))
        keeping = asyncio.create_task(offsets.commit(dict.fromkeys(queues, 5)))
        await asyncio.sleep(1)
        assert {(queue.topic, queue.broker_name) for queue in calls.first} == {
            (topic, broker) for topic in "TU" for broker in "ab"
        }
        assert len(calls.first) == 4
        calls.is_answering.set()
        await keeping
        assert calls.kept == dict.fromkeys(queues, 5)

        calls.first.clear()
        calls.is_answering.clear()
        keeping = asyncio.create_task(offsets.commit(dict.fromkeys(queues, 6)))
        await asyncio.sleep(1)
        assert len(calls.first) == len(queues), "all at once from then on"
        calls.is_answering.set()
        await keeping

    run(main())


def local(files: FaultyFiles) -> Offsets:
    return Offsets(offset_store(cast("OffsetCalls", Calls()), "G", LocalFolder(files, "/home", "10.0.0.1@DEFAULT")))


def test_a_file_keeps_offsets_over_a_restart() -> None:
    async def main() -> None:
        files = FaultyFiles()
        before = local(files)
        assert await before.store.load(A) is None
        await before.store.begin(A, 4)
        before.move(B, 5)
        await before.persist([A, B])

        after = local(files)
        assert (await after.store.load(A), await after.store.load(B)) == (4, 5)
        assert b"broker-a" in files.read(Path("/home/10.0.0.1@DEFAULT/G/offsets.json"))

    run(main())


def test_concurrent_saves_lose_nothing() -> None:
    async def main() -> None:
        files = FaultyFiles()
        offsets = local(files)
        await asyncio.gather(*(offsets.store.begin(queue, number) for number, queue in enumerate((A, B, C))))

        again = local(files)
        assert [await again.store.load(queue) for queue in (A, B, C)] == [0, 1, 2]

    run(main())


def test_unchanged_offsets_are_not_written_again() -> None:
    class File:
        def __init__(self) -> None:
            self.saved: list[Mapping[MessageQueue, int]] = []

        def load(self) -> OffsetsFile:
            return OffsetsFile({A: 1})

        def save(self, offsets: Mapping[MessageQueue, int], marks: Mapping[MessageQueue, LogMark]) -> None:
            self.saved.append(offsets)

    async def main() -> None:
        file = File()
        store = LocalOffsets(cast("Any", file))
        await store.load(A)
        await store.save({A: 1, B: 2}, wait=True)
        await store.save({A: 1, B: 2}, wait=True)

        assert file.saved == [{B: 2}]

    run(main())


def test_a_disk_error_is_raised_on_an_explicit_commit() -> None:
    async def main() -> None:
        files = FaultyFiles()
        offsets = local(files)
        files.fail("make_dir", errno.EROFS, times=None)

        offsets.move(A, 1)
        await offsets.persist([A])
        with pytest.raises(PocketMQError, match="cannot be created"):
            await offsets.commit({A: 1})

    run(main())


def test_a_client_id_that_would_change_the_folder_is_refused() -> None:
    with pytest.raises(InvalidSetting):
        offset_store(cast("OffsetCalls", Calls()), "G", LocalFolder(FaultyFiles(), "/home", "../../etc"))


# a store of the user's


class Shelf(OffsetStore):
    """Keeps offsets in memory, and fails on request."""

    def __init__(self) -> None:
        self.kept: dict[MessageQueue, int] = {}
        self.fails = False

    async def load(self, queue: MessageQueue) -> int | None:
        self._look()
        return self.kept.get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        self._look()
        self.kept.update(offsets)

    def _look(self) -> None:
        if self.fails:
            raise KeyError("shelf")


@pytest.mark.parametrize("namespace", [None, "ns"])
def test_a_push_consumer_saves_its_offsets_in_the_given_store(namespace: str | None) -> None:
    async def main() -> None:
        topic = "ns%T" if namespace else "T"
        async with real_cluster(topics=(topic,), queues=1) as c:
            shelf, basket = Shelf(), Basket()
            place = MessageQueue("T", "broker-a", 0)
            await c.send(topic, b"0", b"1", b"2")
            shelf.kept[place] = 1
            for bodies in ([b"1", b"2"], [b"1", b"2", b"3"]):
                consumer = c.push_consumer(start_at="first", offset_store=shelf, namespace=namespace)
                consumer.on("T")(basket)
                async with consumer:
                    await basket.wait(len(bodies))
                assert basket.bodies == bodies
                assert shelf.kept[place] == 1 + len(bodies)
                await c.send(topic, b"3")

    run(main())


def test_lite_pull_and_pull_consumers_use_the_given_store_too() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            shelf, place = Shelf(), MessageQueue("T", "broker-a", 0)
            await c.send("T", b"0", b"1", b"2")
            async with c.lite_consumer(start_at="first", offset_store=shelf, auto_commit=False) as lite:
                await lite.subscribe("T")
                assert len(await lite.poll(30)) == 3
                await lite.commit()
            assert shelf.kept == {place: 3}
            async with c.pull_consumer(offset_store=shelf) as puller:
                assert await puller.committed(place) == 3
                await puller.commit({place: 2})
            assert shelf.kept == {place: 2}
            assert c.committed("G", "T", 0) is None

    run(main())


def test_a_failing_store_is_called_again_and_loses_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            shelf, basket = Shelf(), Basket()
            shelf.fails = True
            await c.send("T", b"0", b"1")
            consumer = c.push_consumer(start_at="first", offset_store=shelf, persist_ms=1_000)
            consumer.on("T")(basket)
            async with consumer:
                await asyncio.sleep(20)
                assert not basket.messages
                shelf.fails = False
                await basket.wait(2, timeout_s=30)

            assert shelf.kept[MessageQueue("T", "broker-a", 0)] == 2

    run(main())
    assert "failed: KeyError: 'shelf'" in caplog.text
    assert caplog.text.count("first offset of T@broker-a:0 not found") == 1


class Plain(Shelf):
    """A store with plain methods that stores texts."""

    def load(self, queue: MessageQueue) -> Any:
        raise KeyError("no await")

    def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> Any:
        raise KeyError("no await")


class Giving(Shelf):
    def __init__(self, given: Any) -> None:
        super().__init__()
        self._given = given

    async def load(self, queue: MessageQueue) -> Any:
        return self._given


def test_an_invalid_result_of_a_store_is_an_error_of_the_store() -> None:
    async def main() -> None:
        place = MessageQueue("T", "broker-a", 0)
        wrong = [(Giving(given), f"it returned {given!r} for T@broker-a:0") for given in ("5", True, 5.0, 2**63)]
        for store, words in ((Plain(), "KeyError: 'no await'"), *wrong):
            with pytest.raises(StoreError, match=words):
                await UserOffsets(store, None).load(place)
        with pytest.raises(StoreError, match="no await"):
            await UserOffsets(Plain(), None).save({place: 1}, wait=True)

    run(main())


def test_an_invalid_store_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="inherits from OffsetStore"):
        PushSettings(group="G", offset_store=cast("OffsetStore", {}))
