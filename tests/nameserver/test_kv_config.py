"""The KV config: acknowledged changes are on the disk, failed ones have no effect, and the file is RocketMQ's."""

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from pocketmq.errors import (
    InvalidParameter,
    ServerFailed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    SystemBusy,
)
from pocketmq.files import DiskFiles, Files
from pocketmq.nameserver.kv_config import ORDER_NAMESPACE, KvConfig, KvLimits
from pocketmq.testing import FaultyFiles, VirtualLoop, run

PATH = Path("/data/namesrv/kvConfig.json")
WRITTEN_BY_ROCKETMQ = '{"configTable":{"NsB":{"colour":"röd 中"},"NsA":{}}}'.encode()


def opened(files: Files, path: Path | None = PATH, limits: KvLimits | None = None) -> KvConfig:
    kv_config = KvConfig(files, path, limits)
    kv_config.open()
    return kv_config


def saved(data: bytes) -> FaultyFiles:
    files = FaultyFiles()
    files.make_dir(PATH.parent)
    with files.open(PATH, create=True) as file:
        file.write_at(0, data)
    return files


async def reopened(kv_config: KvConfig, files: Files) -> KvConfig:
    await kv_config.close()
    return opened(files)


def test_a_stored_value_is_read_after_a_restart() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)

        await kv_config.put("ns", "one", "1")
        await kv_config.put("ns", "two", "2")
        await kv_config.put("other", "one", "3")
        await kv_config.delete("ns", "one")

        for kv in (kv_config, await reopened(kv_config, files)):
            assert kv.get("ns", "one") is None
            assert kv.get("ns", "two") == "2"
            assert kv.table("ns") == {"two": "2"}
            assert kv.table("other") == {"one": "3"}
            assert kv.table("unknown") is None
            assert kv.get("unknown", "one") is None

    run(main())


def test_the_file_has_the_form_of_rocketmq() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)

        await kv_config.put(ORDER_NAMESPACE, "Orders", "broker-a:4")

        assert files.read(PATH) == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"Orders":"broker-a:4"}}}'

    run(main())


def test_a_file_of_rocketmq_is_read() -> None:
    kv_config = opened(saved(WRITTEN_BY_ROCKETMQ))

    assert kv_config.get("NsB", "colour") == "röd 中"
    assert kv_config.table("NsA") == {}


def test_a_namespace_stays_empty_after_its_last_key_is_deleted() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)
        await kv_config.put("ns", "one", "1")

        await kv_config.delete("ns", "one")

        assert kv_config.table("ns") == {}
        assert (await reopened(kv_config, files)).table("ns") == {}

    run(main())


def test_no_file_is_created_before_the_first_change() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)

        await kv_config.delete("ns", "none")
        await kv_config.close()

        assert files.list(Path("/")) == []

    run(main())


def test_a_change_without_effect_is_not_written() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)
        await kv_config.put("ns", "one", "1")
        with files.fail("write", errno.EIO, path="*"):
            await kv_config.put("ns", "one", "1")
            await kv_config.delete("ns", "two")

    run(main())


def test_without_a_path_the_values_are_kept_in_memory() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files, None)

        await kv_config.put("ns", "one", "1")
        await kv_config.close()

        assert kv_config.get("ns", "one") == "1"
        assert files.list(Path("/")) == []

    run(main())


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b'{"configTable":{"ns":{"a":{}}}}', b"\xff", b"\0" * 40])
def test_a_damaged_file_is_named_and_not_changed(data: bytes) -> None:
    files = saved(data)

    with pytest.raises(StoreDamaged, match=r"/data/namesrv/kvConfig\.json is damaged .* move it away"):
        opened(files)

    assert files.read(PATH) == data
    opened(files, PATH.with_name("another.json"))


def test_an_unreadable_file_is_named() -> None:
    files = saved(WRITTEN_BY_ROCKETMQ)
    files.fail("read", errno.EIO, path=str(PATH))

    with pytest.raises(StoreError, match=r"kvConfig\.json cannot be read: Input/output error"):
        opened(files)

    assert opened(files).table("NsA") == {}


@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        ("write", errno.ENOSPC, StoreFull),
        ("sync", errno.EIO, StoreError),
        ("replace", errno.EIO, StoreError),
        ("create", errno.EACCES, StoreError),
        ("make_dir", errno.EROFS, StoreError),
    ],
)
def test_a_change_that_could_not_be_saved_is_undone(
    call: Any, code: int, kind: type[StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)
        files.fail(call, code, path="*")

        with pytest.raises(kind, match=r"kvConfig\.json could not be saved"):
            await kv_config.put("ns", "one", "1")

        assert kv_config.table("ns") is None
        await kv_config.put("ns", "one", "2")
        assert (await reopened(kv_config, files)).get("ns", "one") == "2"

    run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_acknowledged_values_survive_a_power_loss() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)
        acknowledged = {0: 0}
        for number in range(1, 6):
            await kv_config.put("ns", "count", str(number))
            acknowledged[files.position] = number

        for point in files.crash_points(seed=7):
            least = max(number for position, number in acknowledged.items() if position <= point.position)
            after = opened(point.files)
            assert int(after.get("ns", "count") or 0) in (least, least + 1), point

    run(main())


def test_changes_are_applied_one_after_the_other() -> None:
    async def main() -> None:
        files = FaultyFiles()
        kv_config = opened(files)

        await asyncio.gather(*(kv_config.put("ns", str(number), "x") for number in range(50)))

        assert len((await reopened(kv_config, files)).table("ns") or {}) == 50

    run(main())


def stalled_run(main: Coroutine[Any, Any, None], files: FaultyFiles) -> None:
    """Run with time that does not wait for threads which a stalled disk holds."""
    loop = VirtualLoop()
    loop.count_stalled(files.stalled)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)


def test_reading_continues_while_the_disk_hangs_and_too_many_changes_are_refused() -> None:
    files = FaultyFiles()

    async def main() -> None:
        kv_config = opened(files, limits=KvLimits(max_waiting=3))
        await kv_config.put("ns", "one", "1")
        with files.stall("sync", path="*.tmp"):
            waiting = [asyncio.create_task(kv_config.put("ns", "one", str(number))) for number in range(2, 5)]
            await asyncio.sleep(60)

            assert kv_config.get("ns", "one") == "1"
            with pytest.raises(SystemBusy, match=r"3 changes .* try again later"):
                await kv_config.put("ns", "one", "5")

        await asyncio.gather(*waiting)
        assert kv_config.get("ns", "one") == "4"
        await kv_config.close()

    stalled_run(main(), files)


def test_a_change_completes_although_its_client_disconnected() -> None:
    files = FaultyFiles()

    async def main() -> None:
        kv_config = opened(files)
        with files.stall("sync", path="*.tmp"):
            asking = asyncio.create_task(kv_config.put("ns", "one", "1"))
            await asyncio.sleep(1)
            asking.cancel()
            await asyncio.sleep(1)
            assert asking.cancelled()

        assert (await reopened(kv_config, files)).get("ns", "one") == "1"

    stalled_run(main(), files)


def test_two_name_servers_cannot_use_one_file(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "new" / "kvConfig.json"
        first, second = opened(DiskFiles(), path), opened(DiskFiles(), path)
        await first.put("ns", "one", "1")

        with pytest.raises(StoreLocked, match="used by another name server"):
            await second.put("ns", "one", "2")
        with pytest.raises(StoreLocked):
            opened(DiskFiles(), path)

        await first.close()
        with pytest.raises(StoreLocked, match="created by another name server"):
            await second.put("ns", "one", "3")
        assert (path.parent / "kvConfig.json").read_bytes() == b'{"configTable":{"ns":{"one":"1"}}}'

        second.open()
        await second.put("ns", "two", "2")
        assert second.table("ns") == {"one": "1", "two": "2"}
        await second.close()

    run(main())


@pytest.mark.parametrize(
    ("namespace", "key", "value", "why"),
    [
        ("n" * 6, "k", "v", "namespace has 6 characters; 1 to 5"),
        ("", "k", "v", "namespace has 0 characters"),
        ("n", "k" * 6, "v", "key has 6 characters"),
        ("n", "", "v", "key has 0 characters"),
        ("n", "k", "v" * 11, "value has 11 characters; at most 10"),
    ],
)
def test_the_length_of_names_and_values_is_limited(namespace: str, key: str, value: str, why: str) -> None:
    async def main() -> None:
        kv_config = opened(FaultyFiles(), limits=KvLimits(max_name_chars=5, max_value_chars=10))

        with pytest.raises(InvalidParameter, match=why):
            await kv_config.put(namespace, key, value)

        await kv_config.put("n" * 5, "k" * 5, "v" * 10)

    run(main())


def test_the_number_of_entries_is_limited_and_an_empty_namespace_counts_as_one() -> None:
    async def main() -> None:
        kv_config = opened(FaultyFiles(), limits=KvLimits(max_entries=2))
        await kv_config.put("a", "one", "1")
        await kv_config.put("b", "one", "1")
        await kv_config.delete("b", "one")

        with pytest.raises(ServerFailed, match=r"more than 2 entries, the limit .* delete some first"):
            await kv_config.put("c", "one", "1")

        await kv_config.put("b", "two", "1")
        await kv_config.put("a", "one", "2")
        assert kv_config.table("c") is None

    run(main())


def test_saved_values_above_the_limit_are_kept() -> None:
    async def main() -> None:
        kv_config = opened(saved(b'{"configTable":{"ns":{"a":"1","b":"2","c":"3"}}}'), limits=KvLimits(max_entries=2))

        await kv_config.put("ns", "a", "changed")

        assert kv_config.table("ns") == {"a": "changed", "b": "2", "c": "3"}

    run(main())
