"""Files of queues that were removed or cut while the store was closed: no message is skipped."""

import msgspec
import pytest
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore

from pocketmq.errors import StoreDamaged

QUEUE = ROOT / "consumequeue" / "T" / "0"
MESSAGES = 35


def closed(size: int) -> OpenStore:
    """A store with four files of one queue, after a clean stop."""
    opened = OpenStore.small(prepared_files=60)
    for number in range(MESSAGES):
        opened.send(b"%d" % number * size)
        opened.run_workers()
    opened.store.close()
    return opened


@pytest.mark.parametrize("size", [1, 600], ids=["one log file", "many log files"])
@pytest.mark.parametrize("which", [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty"])
def test_a_queue_without_files_is_rebuilt(which: tuple[int, ...], size: int, emptied: bool) -> None:
    opened = closed(size)
    names = opened.disk.list(QUEUE)
    for number in which:
        opened.disk.unlink(QUEUE / names[number])
        if emptied:
            opened.disk.open(QUEUE / names[number], create=True).close()

    again = OpenStore(opened.settings, opened.clock, opened.disk)
    again.run_workers()

    expected = [b"%d" % number * size for number in range(MESSAGES)]
    assert again.report.clean
    assert again.bodies() == expected
    again.send(b"more")
    assert again.crash().bodies() == [*expected, b"more"]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("bytes_left", [100, 117])
def test_a_queue_with_a_truncated_file_is_rebuilt(
    which: int, bytes_left: int, caplog: pytest.LogCaptureFixture
) -> None:
    opened = closed(1)
    name = opened.disk.list(QUEUE)[which]
    with opened.disk.open(QUEUE / name) as file:
        file.truncate(bytes_left)

    again = OpenStore(opened.settings, opened.clock, opened.disk)

    assert again.bodies() == [b"%d" % number for number in range(MESSAGES)]
    assert f"{name} has only {bytes_left} of 200 bytes; rebuilding its queue from the log" in caplog.text


def test_a_store_with_shorter_files_than_the_settings_is_refused() -> None:
    opened = closed(1)

    with pytest.raises(StoreDamaged, match=r"has 200 bytes; .* of this store have 400.*Set queue_file"):
        OpenStore(msgspec.structs.replace(opened.settings, queue_file_entries=20), opened.clock, opened.disk)
